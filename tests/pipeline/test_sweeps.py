"""Sweeps: a run belongs to all that asked for it, lines say whose they are, a failure leaves its trace."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from pipeline.sweep import name_sweep
from runs import experiments, tracked

QUICK = ("tune=none", "evaluation.max_attacked=4", "figures=off", "checks=off", "evaluation.certify_seconds=0")


@pytest.fixture
def client(tmp_path: Path):
    from mlflow import MlflowClient

    return lambda: MlflowClient(f"sqlite:///{tmp_path}/mlruns/mlflow.db")


def test_a_run_reused_by_a_second_sweep_stays_in_the_first(run_cli, client, tmp_path):
    first = run_cli("-m", "attack=fgsm,none", *QUICK)
    second = run_cli("-m", "attack=fgsm", "seed=0,1", *QUICK)
    assert first.returncode == second.returncode == 0, first.stderr + second.stderr
    store = client()
    views = {k.removeprefix("mlflow.sharedViewState."): json.loads(v)
             for k, v in store.get_experiment("1").tags.items() if "sharedViewState" in k}  # fmt: skip
    found = {}
    for output in (first.stdout, second.stdout):
        name = output.split("viewStateShareKey=")[1].split()[0]
        for view in (name, f"{name}-charts"):
            runs = store.search_runs(["1"], filter_string=views[view]["searchFilter"])
            found[view] = sorted((r.data.tags["attack"], r.data.tags["seed"])
                                 for r in runs if r.data.tags["role"] == "experiment")  # fmt: skip
            assert sum(r.data.tags["role"] == "summary" for r in runs) == 1
        assert views[f"{name}-charts"]["compareRunsMode"] == "CHART"
        assert f"viewStateShareKey={name}-charts" in output
    assert list(found.values()) == [[("fgsm", "0"), ("none", "0")]] * 2 + [[("fgsm", "0"), ("fgsm", "1")]] * 2
    assert len(experiments(tmp_path)) == 3
    # The table begins with what a run is, then the numbers under names that fit a column.
    columns = views[name]["selectedColumns"]
    assert columns[:3] == ["tags.`model`", "tags.`attack`", "tags.`seed`"]
    assert columns[3:6] == ["metrics.`clean`", "metrics.`certified`", "metrics.`attacked`"]
    assert store.get_experiment("1").tags["mlflow.experimentKind"] == "custom_model_development"


def test_a_sweep_that_is_all_reused_leaves_its_summary_as_it_is(run_cli, tmp_path):
    """Nothing new is nothing to write; what the summary is made of decides that, not that there is one."""
    command = ("-m", "attack=fgsm,none", *QUICK)

    def table(done):
        return done.stdout[done.stdout.index("digits_1v7: accuracy") :].replace("reused", "finished")

    def summaries():
        found = tracked(tmp_path, role="summary")
        with sqlite3.connect(tmp_path / "mlruns" / "mlflow.db") as database:
            return found, database.execute("select run_uuid, end_time from runs order by start_time").fetchall()

    first = run_cli(*command)
    (known, ends) = summaries()
    again = run_cli(*command)
    assert "2 jobs: 2 reused" in again.stdout
    assert table(again) == table(first)
    assert summaries() == (known, ends)
    # A summary that says something else is written anew: here of runs that are gone.
    with sqlite3.connect(tmp_path / "mlruns" / "mlflow.db") as database:
        database.execute("update tags set value = 'of other runs' where key = 'content'")
    run_cli(*command)
    (renewed, other_ends) = summaries()
    assert renewed == known
    assert other_ends != ends


def test_swept_settings_are_columns_and_part_of_the_names(run_cli, client, tmp_path):
    done = run_cli("-m", "attack.epsilon=0.1,0.2", *QUICK)
    assert done.returncode == 0, done.stderr
    names = sorted(run["name"] for run in experiments(tmp_path))
    assert ["attack.epsilon=0.1" in names[0], "attack.epsilon=0.2" in names[1]] == [True, True]
    name = done.stdout.split("viewStateShareKey=")[1].split()[0]
    view = json.loads(client().get_experiment("1").tags[f"mlflow.sharedViewState.{name}"])
    assert "params.`attack.epsilon`" in view["selectedColumns"]
    # Lines of jobs that run side by side say whose they are.
    assert "2 jobs in " in done.stdout.splitlines()[0]
    assert "[1 of 2] adv_svm_c · pgd" in done.stdout
    assert "[2 of 2]   result" in done.stdout


FAILING = """
from dataclasses import dataclass
from attacks import PGD

@dataclass(frozen=True)
class Failing(PGD):
    def run(self, problem):
        raise RuntimeError("the attack tripped")
"""


@pytest.mark.parametrize("mode", [(), ("-m",)], ids=["single", "sweep"])
def test_a_failed_job_leaves_its_traceback_in_its_log_and_in_its_run(run_cli, client, tmp_path, mode):
    (tmp_path / "failing.py").write_text(FAILING)
    (tmp_path / "my" / "attack").mkdir(parents=True)
    (tmp_path / "my" / "attack" / "failing.yaml").write_text("_target_: failing.Failing\nname: failing\n")
    done = run_cli(
        *mode,
        "--config-dir",
        str(tmp_path / "my"),
        "attack=failing",
        "trusted=[failing]",
        *QUICK,
        PYTHONPATH=str(tmp_path),
    )
    assert done.returncode == 1
    assert "the attack tripped" in done.stderr + done.stdout
    assert "Traceback" not in done.stderr + done.stdout
    (log,) = (tmp_path / ("multirun" if mode else "outputs")).rglob("advsvm.log")
    assert "Traceback" in log.read_text()
    assert 'raise RuntimeError("the attack tripped")' in log.read_text()
    (run,) = tracked(tmp_path, role="experiment")
    assert run["status"] == "FAILED"
    text = Path(client().download_artifacts(run["id"], "traceback.txt")).read_text()
    assert 'raise RuntimeError("the attack tripped")' in text


def _identity(monkeypatch, *arguments: str) -> str:
    import os

    for name in ("ADVSVM_SWEEP_ID", "ADVSVM_SWEEP"):
        monkeypatch.setenv(name, "")
    name_sweep(list(arguments))
    return os.environ["ADVSVM_SWEEP_ID"]


def test_the_same_command_is_the_same_sweep_and_another_configuration_folder_another(monkeypatch):
    one = _identity(monkeypatch, "-m", "seed=0,1")
    assert one == _identity(monkeypatch, "seed=0,1", "-m", "tracking.folder=elsewhere", "compute.threads=2")
    folders = [_identity(monkeypatch, "-m", f"--config-dir={name}", "seed=0,1") for name in ("a", "b")]
    assert len({one, *folders}) == 3


def test_a_relative_configuration_folder_is_the_one_it_stands_for(monkeypatch, tmp_path):
    found = set()
    for name in ("one", "two"):
        (tmp_path / name / "conf").mkdir(parents=True)
        monkeypatch.chdir(tmp_path / name)
        ways = (["--config-dir=conf"], ["--config-dir", "conf"], ["-cd", str(tmp_path / name / "conf")])
        found |= {(name, _identity(monkeypatch, "-m", *way, "seed=0,1")) for way in ways}
    assert len(found) == len({identity for _, identity in found}) == 2
