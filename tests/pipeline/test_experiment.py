"""One sweep on the digits, looked at from every side: what the contract says must be in a run is in it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from runs import ENVIRONMENT
from warm_start import warm_python

SWEEP = ("-m", "model=adv_svm_c,adv_svm_d", "attack=pgd,zoo", "dataset.max_train=150", "evaluation.max_attacked=12")
METRICS = [
    "clean_accuracy",
    "robust_accuracy",
    "certified_accuracy",
    "undecided",
    "clean_accuracy_attacked",
    "attack_success_rate",
    "distortion_l2_median",
    "distortion_l2_mean",
    "distortion_linf_max",
    "accuracy_at_l2_cap",
    "queries_mean",
    "cv_accuracy",
    "n_test",
    "n_attacked",
    "n_radii",
    "tune_seconds",
    "train_seconds",
    "attack_seconds",
    "checks_failed",
]


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    return warm_python().run("pipeline.run", arguments, folder, ENVIRONMENT, timeout=280)


@pytest.fixture(scope="module")
def swept(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess]:
    folder = tmp_path_factory.mktemp("sweep")
    return folder, run(folder, *SWEEP)


@pytest.fixture(scope="module")
def client(swept):
    from mlflow import MlflowClient

    folder, done = swept
    assert done.returncode == 0, done.stdout + done.stderr
    return MlflowClient(f"sqlite:///{folder}/mlruns/mlflow.db")


@pytest.fixture(scope="module")
def runs(client):
    experiment = client.get_experiment_by_name("advsvm")
    return client.search_runs([experiment.experiment_id])


@pytest.fixture(scope="module")
def experiments(runs):
    return [r for r in runs if r.data.tags["role"] == "experiment"]


def test_the_sweep_ends_with_its_table_and_the_way_to_the_ui(swept):
    _, done = swept
    assert done.returncode == 0
    assert "adv_svm_c" in done.stdout
    assert "4 jobs: 4 finished" in done.stdout
    assert "make ui" in done.stdout
    assert "Traceback" not in done.stderr


def test_one_flat_run_per_job_and_one_summary(runs, experiments):
    assert len(experiments) == 4
    assert len(runs) == 5
    assert all("mlflow.parentRunId" not in r.data.tags for r in runs)
    assert len({r.data.tags["sweep"] for r in runs}) == 1
    assert {r.info.status for r in runs} == {"FINISHED"}


def test_a_run_has_the_contracts_metrics(experiments):
    for run_ in experiments:
        assert set(METRICS) <= set(run_.data.metrics)
        for name in ("clean_accuracy", "robust_accuracy", "certified_accuracy", "accuracy_at_l2_cap"):
            assert 0 <= run_.data.metrics[name] <= 1
        assert run_.data.metrics["robust_accuracy"] <= run_.data.metrics["clean_accuracy"] + 0.1
        assert run_.data.metrics["n_attacked"] == 12


def test_a_run_has_the_contracts_params_and_tags(experiments):
    for run_ in experiments:
        assert {"model.C", "model.step", "attack.chunk_size", "dataset.name", "tune.folds", "seed"} <= set(
            run_.data.params
        )
        assert {"run_signature", "dataset", "model", "attack", "seed", "stage_reuse", "host"} <= set(run_.data.tags)
        name = f"{run_.data.tags['model']} · {run_.data.tags['attack']} · digits_1v7 · seed 0"
        assert run_.info.run_name == f"{name} · max_train=150 · max_attacked=12"
        assert "mlflow.note.content" in run_.data.tags
        assert run_.inputs.dataset_inputs[0].dataset.name == "digits_1v7"
    assert len({r.data.tags["run_signature"] for r in experiments}) == 4


def test_certified_and_attacked_accuracy_are_in_one_threat_over_the_same_rows(client, experiments):
    for run_ in experiments:
        m, params = run_.data.metrics, run_.data.params
        unbounded = run_.data.tags["attack"] == "zoo"
        upper = m["accuracy_at_l2_cap" if unbounded else "robust_accuracy"]
        assert m["certified_accuracy"] + m["undecided"] == pytest.approx(upper, abs=1e-5)
        assert m["certified_accuracy"] <= upper <= m["clean_accuracy_attacked"] + 1e-9
        assert params["threat.norm"] == ("l2" if unbounded else "linf")
        assert float(params["threat.epsilon"]) == float(params["evaluation.l2_cap" if unbounded else "attack.epsilon"])
        stored = np.load(client.download_artifacts(run_.info.run_id, "certificates/points.npz"), allow_pickle=False)
        assert np.mean(stored["state"] == "certified") == pytest.approx(m["certified_accuracy"], abs=1e-5)
        note = run_.data.tags["mlflow.note.content"]
        assert ("certified within L2 0.5 (the cap)" if unbounded else "certified within L∞ 0.0625") in note
        # An attack without a bound breaks everything in the end: that is not a bound on anything.
        known = upper, m["certified_accuracy"], m["undecided"]
        assert f"| {m['robust_accuracy']:.2%} |" not in note or m["robust_accuracy"] in known


def test_curves_are_stepped_metrics(client, experiments):
    for run_ in experiments:
        for name in ("test_error", "adversarial_test_error"):
            points = client.get_metric_history(run_.info.run_id, name)
            assert [p.step for p in points] == list(range(1, len(points) + 1)), name
            assert len(points) >= 100, name  # what small data gets unless its passes are set


def test_a_run_has_the_contracts_artifacts(swept, client, experiments):
    import mlflow

    # A client looks up the files of a logged model in the store of its process, whatever its own address.
    mlflow.set_tracking_uri(f"sqlite:///{swept[0]}/mlruns/mlflow.db")
    for run_ in experiments:
        names = set()

        def walk(path, run_id=run_.info.run_id, names=names):
            for item in client.list_artifacts(run_id, path):
                names.add(item.path)
                if item.is_dir:
                    walk(item.path)

        walk(None)
        assert {"config/config.yaml", "config/overrides.yaml", "tuning/cv_results.csv", "checks.json"} <= names
        assert {
            "adversarial/examples.npz",
            "certificates/radii.npz",
            "certificates/points.npz",
            "model/MLmodel",
        } <= names
        assert {"figures/training_curve.png", "figures/tuning.png", "figures/gallery.png"} <= names
        assert not [n for n in names if n.endswith((".pkl", ".pickle", ".joblib", ".pt"))]


def test_attacks_share_tuning_training_and_certificates(experiments):
    """Order of execution: pgd computes, zoo reuses (or the other way round)."""
    for model in ("adv_svm_c", "adv_svm_d"):
        reuse = [r.data.tags["stage_reuse"] for r in experiments if r.data.tags["model"] == model]
        assert sorted(reuse) == ["none", "tune,train,certify"]


def test_the_model_loads_as_pyfunc_and_predicts_as_recorded(swept, client, experiments):
    import mlflow

    folder, _ = swept
    mlflow.set_tracking_uri(f"sqlite:///{folder}/mlruns/mlflow.db")
    run_ = experiments[0]
    model = mlflow.pyfunc.load_model(f"runs:/{run_.info.run_id}/model")
    local = client.download_artifacts(run_.info.run_id, "adversarial/examples.npz")
    stored = np.load(local, allow_pickle=False)
    predicted = model.predict(stored["examples"])
    assert np.array_equal(predicted != stored["labels"], stored["success"])


def test_a_model_is_on_disk_once_for_its_stage_and_all_attacks(swept):
    folder, _ = swept
    logged = [path.stat() for path in (folder / "mlruns" / "artifacts").rglob("model.safetensors")]
    trained = [path.stat() for path in (folder / "mlruns" / "stages" / "train").rglob("arrays.safetensors")]
    assert len(logged) == 4
    assert {state.st_ino for state in logged} == {state.st_ino for state in trained}
    assert len(trained) == 2


def test_the_summary_run_holds_table_and_figures(client, runs):
    summary = next(r for r in runs if r.data.tags["role"] == "summary")
    assert "| adv_svm_c |" in summary.data.tags["mlflow.note.content"]
    names = {item.path for item in client.list_artifacts(summary.info.run_id)}
    assert {"table_digits_1v7.md", "figures"} <= names


def test_the_same_command_again_reuses_every_run_and_says_so(swept, client, runs):
    folder, first = swept
    again = run(folder, *SWEEP)
    assert again.returncode == 0
    assert again.stdout.count("reused run") == 4
    assert "4 jobs: 4 reused" in again.stdout
    assert _table(again.stdout) == _table(first.stdout)
    after = client.search_runs([runs[0].info.experiment_id])
    assert {r.info.run_id for r in after} == {r.info.run_id for r in runs}


def test_what_is_read_without_mlflow_is_what_mlflow_says(swept, client, experiments):
    from types import SimpleNamespace

    from pipeline.tracking.runs import find_finished, look_up

    database = swept[0] / "mlruns" / "mlflow.db"
    for one in experiments:
        store = SimpleNamespace(client=client, experiment_id=one.info.experiment_id)
        signature = one.data.tags["run_signature"]
        found = look_up(database, "advsvm", signature, lambda name: name == "test_error")
        assert found == find_finished(store, signature, lambda name: name == "test_error")
        assert found is not None
        assert len(found.curves["test_error"]) > 1
        assert look_up(database, "another", signature, bool) is None
    assert look_up(database, "advsvm", "0" * 40, bool) is None


def test_a_reused_job_answers_without_the_slow_libraries(swept, runs):
    settings = ["model=adv_svm_c", *(a for a in SWEEP if a.startswith(("dataset", "eval")))]
    code = (
        "import sys; from pipeline.run import main\n"
        "try: main()\n"
        "finally: print(sorted({'torch', 'mlflow', 'sklearn', 'matplotlib'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *settings], cwd=swept[0], capture_output=True, text=True, timeout=120
    )
    assert "reused run" in done.stdout, done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == "[]"


def test_rerun_on_request_repeats_a_finished_run_with_the_same_numbers(swept, client, experiments):
    folder, _ = swept
    one = next(r for r in experiments if r.data.tags["model"] == "adv_svm_c" and r.data.tags["attack"] == "pgd")
    done = run(folder, *(a for a in SWEEP if a.startswith(("dataset", "eval"))), "on_existing=rerun")
    assert done.returncode == 0
    twins = client.search_runs(
        [one.info.experiment_id], filter_string=f"tags.run_signature = '{one.data.tags['run_signature']}'"
    )
    assert len(twins) == 2
    assert twins[0].data.metrics == twins[1].data.metrics


def test_job_outcomes_are_left_in_the_sweeps_folder(swept):
    folder, _ = swept
    files = sorted((folder / "multirun").glob("*/*/*/result.json"))
    assert len(files) >= 4
    assert json.loads(files[0].read_text())["metrics"]["n_attacked"] == 12


def test_runs_leave_no_lock_files_behind(swept):
    """However many there were: the store has one, and its stages have one."""
    store = swept[0] / "mlruns"
    left = sorted(str(path.relative_to(store)) for path in store.rglob("*.lock"))
    assert left == [".store.lock", "stages/.identity.lock"]


def _table(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("│")]
