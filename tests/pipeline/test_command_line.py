"""The command line as a stranger meets it: help, typos, bad values."""

from __future__ import annotations

import math

import pytest

from pipeline.messages import one_line

TYPOS = {
    "model=bogus": "model=bogus: no such choice; there are adv_linear_svm, adv_svm_c",
    "attack=pdg": "did you mean pgd?",
    "model.Cx=1": "model.Cx: no such setting",
    "atack=pgd": "did you mean attack?",
    "attack.epsilon=abc": "attack.epsilon: Value 'abc' of type 'str' could not be converted to Float",
    "seed=1.5": "seed: Value '1.5' of type 'float' could not be converted to Integer",
    "model.C=-1": "model.C must hold numbers greater than 0; got -1",
    "model.C=null": "model.C=null: field 'model.C' is not Optional",
    "model": "'model' is not of the form key=value",
    "hydra/launcher=slrm": "did you mean slurm?",
}


@pytest.mark.parametrize(("argument", "message"), TYPOS.items(), ids=TYPOS)
def test_a_typo_is_one_line_naming_the_setting(command, tmp_path, argument, message):
    done = command(argument)
    assert done.returncode == 1
    assert message in done.stderr
    assert done.stderr.strip().count("\n") == 0
    assert "Traceback" not in done.stderr + done.stdout
    assert not (tmp_path / "mlruns" / "mlflow.db").exists()


@pytest.mark.parametrize("error", [MemoryError("1.00 TiB"), RuntimeError("[x] DefaultCPUAllocator: 1.00 TiB")])
def test_what_does_not_fit_is_said_without_the_exception_s_name(error):
    assert one_line(error) == "not enough memory for these settings (1.00 TiB)"


def test_the_full_trace_is_there_on_request(run_cli):
    assert "Traceback" in run_cli("model.C=-1", HYDRA_FULL_ERROR="1").stderr


def test_help_names_the_groups_and_typical_commands(run_cli):
    text = run_cli("--help").stdout
    assert text.count("python -m pipeline.run") >= 5
    for group in ("dataset:", "model:", "attack:", "tune:", "tracking:", "model/expansion:"):
        assert group in text
    assert "schema" not in text


def test_a_typo_in_a_sweep_leaves_no_store(command, tmp_path):
    done = command("-m", "model=natural,nonsense", "tune=none")
    assert done.returncode == 1
    assert "error: model=nonsense: no such choice" in done.stderr
    assert not (tmp_path / "mlruns").exists()


def test_an_unwritable_store_is_one_line(command, tmp_path):
    (tmp_path / "mlruns").write_text("a file where the folder should be")
    done = command("tune=none")
    assert done.returncode == 1
    assert done.stderr.startswith("error: tracking.folder: cannot write to")
    assert done.stderr.strip().count("\n") == 0


def test_a_broken_database_is_one_line(run_cli, tmp_path):
    (tmp_path / "mlruns").mkdir()
    (tmp_path / "mlruns" / "mlflow.db").write_bytes(b"not a database at all" * 100)
    done = run_cli("tune=none")
    assert done.returncode == 1
    assert "is not a readable database" in done.stderr


def test_a_job_returns_the_metric_that_a_sweeper_optimises(composed):
    from pipeline.job import Outcome
    from pipeline.run import objective

    done = Outcome("finished", {}, metrics={"robust_accuracy": 0.75})
    assert objective(composed(), done) == {"status": "finished"}
    assert objective(composed("objective=robust_accuracy"), done) == 0.75
    assert math.isnan(objective(composed("objective=robust_accuracy"), Outcome("failed", {})))
