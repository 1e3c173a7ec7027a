"""tracking=server against MLflow on PostgreSQL: nothing lost, whatever happens to the server."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mlflow_server import Server, free_port
from pipeline.cache import entry as entries
from runs import start, wait_until

SETTINGS = ("tune=none", "evaluation.max_attacked=8", "tracking=server")
FAULTS = Path(__file__).parents[1] / "survival"

pytestmark = [pytest.mark.server, pytest.mark.timeout(600)]


def _client(server: Server) -> Any:
    from mlflow import MlflowClient

    return MlflowClient(server.uri)


def _runs(server: Server, experiment: str, role: str = "experiment") -> list[Any]:
    client = _client(server)
    found = client.get_experiment_by_name(experiment)
    return client.search_runs([found.experiment_id], filter_string=f"tags.role = '{role}'") if found else []


def _assert_complete(server: Server, run: Any, folder: Path) -> None:
    """Every metric and every point of every curve that was computed is on the server, once."""
    client = _client(server)
    stored = entries.read(folder / "mlruns" / "stages" / "evaluate" / run.data.tags["run_signature"]).values
    for name, value in stored["metrics"].items():
        (point,) = client.get_metric_history(run.info.run_id, name)
        assert point.value == pytest.approx(value, rel=1e-5)
    for name, curve in stored["curves"].items():
        points = client.get_metric_history(run.info.run_id, name)
        assert sorted((p.step, p.value) for p in points) == sorted((s, pytest.approx(v)) for s, v in curve)
    names = {artifact.path for artifact in client.list_artifacts(run.info.run_id)}
    assert {"config", "checks.json", "adversarial", "figures", "model"} <= names


def test_eight_concurrent_jobs_lose_no_metric(running: Server, tmp_path: Path) -> None:
    sweep = start(
        "-m", "hydra/launcher=joblib", "hydra.launcher.n_jobs=8", "seed=0,1,2,3,4,5,6,7", *SETTINGS,
        f"tracking.uri={running.uri}", "tracking.experiment=eight", cwd=tmp_path,
    )  # fmt: skip
    output, _ = sweep.communicate(timeout=500)
    assert sweep.returncode == 0, output
    assert "8 jobs: 8 finished" in output
    runs = _runs(running, "eight")
    assert [run.info.status for run in runs] == ["FINISHED"] * 8
    assert {run.data.tags["seed"] for run in runs} == set("01234567")
    for run in runs:
        _assert_complete(running, run, tmp_path)
    (summary,) = _runs(running, "eight", "summary")
    assert summary.info.status == "FINISHED"


@pytest.mark.parametrize("mode", [[], ["-m", "seed=0,1"]], ids=["run", "sweep"])
def test_a_server_that_is_down_is_reported_before_any_computing(run_cli: Callable, tmp_path: Path, mode: list) -> None:
    uri = f"http://127.0.0.1:{free_port()}"
    started = time.monotonic()
    result = run_cli(*mode, *SETTINGS, f"tracking.uri={uri}")
    # The limit of 10 s holds for the search; under load the interpreter's own start may take as long again.
    assert time.monotonic() - started < 60  # not the minutes that MLflow would try again for
    assert result.returncode == 1
    assert f"tracking.uri: no MLflow server answers at {uri}" in result.stderr
    assert "Traceback" not in result.stdout + result.stderr
    assert not (tmp_path / "mlruns" / "stages").exists()


def test_a_server_that_dies_mid_run_loses_nothing(running: Server, tmp_path: Path, run_cli: Callable) -> None:
    path = os.pathsep.join(p for p in (str(FAULTS), os.environ.get("PYTHONPATH", "")) if p)
    job = start(
        "attack._target_=faults.Paused", *SETTINGS, f"tracking.uri={running.uri}", "tracking.experiment=mid-run",
        cwd=tmp_path, PYTHONPATH=path,
    )  # fmt: skip
    wait_until((tmp_path / "paused").exists, 300, "the attack")
    running.kill()
    (tmp_path / "go").touch()
    output, _ = job.communicate(timeout=200)
    assert job.returncode == 0, output
    assert "the results are kept in" in output
    assert "result  clean" in output
    assert len(list((tmp_path / "mlruns" / "pending").glob("*/run.json"))) == 1

    waiting = run_cli(module="pipeline.sync")
    assert waiting.returncode == 1
    assert "0 uploaded, 1 waiting" in waiting.stdout
    assert "no MLflow server answers" in waiting.stderr
    assert "Traceback" not in waiting.stderr

    running.start()
    sent = run_cli(module="pipeline.sync")
    assert sent.returncode == 0, sent.stderr
    assert "1 uploaded, 0 waiting" in sent.stdout
    (run,) = _runs(running, "mid-run")
    assert run.info.status == "FINISHED"
    _assert_complete(running, run, tmp_path)
    assert not list((tmp_path / "mlruns" / "pending").glob("*/run.json"))


def test_the_next_run_uploads_what_waits(running: Server, tmp_path: Path, run_cli: Callable) -> None:
    path = os.pathsep.join(p for p in (str(FAULTS), os.environ.get("PYTHONPATH", "")) if p)
    where = (*SETTINGS, f"tracking.uri={running.uri}", "tracking.experiment=next-run")
    job = start("attack._target_=faults.Paused", *where, cwd=tmp_path, PYTHONPATH=path)
    wait_until((tmp_path / "paused").exists, 300, "the attack")
    running.kill()
    (tmp_path / "go").touch()
    job.communicate(timeout=200)
    running.start()
    again = run_cli("attack._target_=faults.Paused", *where, PYTHONPATH=path)
    assert again.returncode == 0, again.stderr
    assert "uploaded a run that was waiting" in again.stdout
    assert "reused run" in again.stdout
    (run,) = _runs(running, "next-run")
    assert run.info.status == "FINISHED"
    _assert_complete(running, run, tmp_path)


def test_the_password_of_the_address_is_kept_out_of_runs_and_folders(running: Server, tmp_path: Path) -> None:
    secret = "hunter2-correct-horse"
    address = running.uri.replace("http://", f"http://ann:{secret}@")
    sweep = start(
        "-m", "hydra/launcher=submitit_local", *SETTINGS, f"tracking.uri={address}", "tracking.experiment=secret",
        cwd=tmp_path,
    )  # fmt: skip
    output, _ = sweep.communicate(timeout=300)
    assert sweep.returncode == 0, output
    assert secret not in output
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert [path for path in files if secret.encode() in path.read_bytes()] == []
    kept = [path for path in running.artifacts.rglob("*") if path.is_file()]
    assert kept
    assert [path for path in kept if secret.encode() in path.read_bytes()] == []
    for role in ("experiment", "summary"):
        for run in _runs(running, "secret", role):
            assert secret not in str(run.to_dictionary())
