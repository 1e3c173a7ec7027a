"""Finished runs of a sweep are reported by its driver; a launcher gets the other jobs, under their own numbers."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from unittest import mock

import pytest
from hydra.core.utils import JobReturn

from pipeline import sweep, workers
from pipeline.answers import Numbers, Sparing

QUICK = ("tune=none", "checks=off", "figures=off", "dataset.max_train=40", "evaluation.certify_seconds=0")


def _outcomes(folder):
    (latest,) = sorted(folder.glob("multirun/*/*"))[-1:]
    found = {int(path.parent.name): json.loads(path.read_text()) for path in latest.glob("*/result.json")}
    return [found[number] for number in sorted(found)], sorted(found)


def _tags(folder):
    with closing(sqlite3.connect(folder / "mlruns" / "mlflow.db")) as connection:
        return sorted(connection.execute("select run_uuid, key, value from tags where key <> 'mlflow.note.content'"))


def test_a_finished_sweep_starts_no_workers_and_says_the_same(run_cli, command, tmp_path):
    arguments = ("-m", "hydra/launcher=joblib", "model=natural,svc", "attack=none,fgsm", *QUICK)
    first = run_cli(*arguments)
    assert first.returncode == 0, first.stdout + first.stderr
    before, tags = _outcomes(tmp_path), _tags(tmp_path)
    with mock.patch.object(workers, "get_ready", side_effect=AssertionError("workers for nothing")):
        again = command(*arguments)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 jobs: 4 reused" in again.stdout
    after = _outcomes(tmp_path)
    assert after[1] == before[1] == [0, 1, 2, 3]
    for one, other in zip(before[0], after[0]):
        measured, kept = one.pop("metrics"), other.pop("metrics")  # MLflow keeps the last points of curves as metrics
        assert {name: kept[name] for name in measured} == pytest.approx(measured, nan_ok=True)
        assert other == one | {"status": "reused"}
    assert _tags(tmp_path) == tags
    table = first.stdout.index("digits_1v7: accuracy")
    shown = again.stdout.index("digits_1v7: accuracy")
    assert first.stdout[table:].replace("4 finished", "4 reused") == again.stdout[shown:]


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_what_is_missing_runs_under_its_own_number(run_cli, tmp_path, launcher):
    """The second of three jobs is finished, and marked as the sweep's: the driver may answer for it."""
    arguments = ("-m", f"hydra/launcher={launcher}", "model=svc", "attack=none", "seed=range(3)", *QUICK)
    first = run_cli(*arguments)
    assert first.returncode == 0, first.stdout + first.stderr
    wanted = [outcome["labels"] for outcome in _outcomes(tmp_path)[0]]
    kept = _outcomes(tmp_path)[0][1]["run_id"]
    with closing(sqlite3.connect(tmp_path / "mlruns" / "mlflow.db")) as connection:
        connection.execute(
            "update runs set status = 'FAILED' where run_uuid <> ? and run_uuid in "
            "(select run_uuid from tags where key = 'role' and value = 'experiment')",
            (kept,),
        )
        connection.commit()
    again = run_cli(*arguments)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "3 jobs: 2 finished, 1 reused" in again.stdout
    outcomes, numbers = _outcomes(tmp_path)
    assert numbers == [0, 1, 2]
    assert [outcome["labels"] for outcome in outcomes] == wanted
    assert [outcome["status"] == "reused" for outcome in outcomes] == [False, True, False]
    (reused,) = [line for line in again.stdout.splitlines() if "reused run" in line]
    assert reused.startswith("[2 of 3]")


def test_one_job_that_cannot_be_composed_stops_the_sweep_before_any_runs(run_cli, command, tmp_path):
    assert run_cli("-m", "model=svc", "attack=none", "seed=0,1", *QUICK).returncode == 0
    done = command("-m", "model=svc", "attack=none", "seed=0,1,x", *QUICK)
    assert done.returncode == 1
    assert done.stderr.startswith("error: seed")
    assert "jobs:" not in done.stdout


def test_a_job_that_is_refused_says_so_itself(run_cli, command):
    assert run_cli("-m", "model=svc", "attack=none", "model.C=1,2", *QUICK).returncode == 0
    done = command("-m", "model=svc", "attack=none", "model.C=1,2,-1", *QUICK)
    assert done.returncode == 1
    assert "3 jobs: 2 reused, 1 failed" in done.stdout
    assert "failed: svc · none · digits_1v7 · seed 0: model.C" in done.stdout


def test_a_run_that_is_not_the_sweeps_yet_becomes_one_of_its(run_cli, tmp_path):
    assert run_cli("model=svc", "attack=none", "seed=0", *QUICK).returncode == 0
    for expected in ("1 finished, 1 reused", "2 reused"):
        done = run_cli("-m", "model=svc", "attack=none", "seed=0,1", *QUICK)
        assert f"2 jobs: {expected}" in done.stdout
    members = [run for run, key, _ in _tags(tmp_path) if key.startswith("sweep.")]
    assert len(set(members)) == 3  # two jobs and the summary


def test_returns_keep_their_order_and_launchers_count_with_gaps():
    launched = []

    def launch(job_overrides, initial_job_idx):
        launched.extend((initial_job_idx + position, job) for position, job in enumerate(job_overrides))
        return [JobReturn(_return_value=f"run {job[0]}") for job in job_overrides]

    session = sweep.Session(answered={3: JobReturn(_return_value="known")})
    with mock.patch.object(sweep, "SESSION", session):
        returns = Sparing(mock.Mock(launch=launch)).launch([["a"], ["b"], ["c"]], 2)
    assert launched == [(2, ["a"]), (4, ["c"])]
    assert [job._return_value for job in returns] == ["run a", "known", "run c"]
    numbers = Numbers([4, 7])
    assert (numbers, numbers + 0, numbers + 1) == (4, 4, 7)


def test_jobs_that_were_submitted_are_collected_not_answered(run_cli, command):
    assert run_cli("-m", "model=svc", "attack=none", "seed=0,1", *QUICK).returncode == 0
    with mock.patch("hydra_plugins.advsvm.launchers.PatientSlurm.launch", autospec=True, return_value=[]) as launch:
        command(
            "-m", "hydra/launcher=slurm", "hydra.launcher.wait=false", "model=svc", "attack=none", "seed=0,1", *QUICK
        )
    assert len(launch.call_args.args[1]) == 2


def test_ctrl_c_before_the_first_job_leaves_nothing_to_report(command, tmp_path):
    with mock.patch.object(sweep, "make_store", side_effect=KeyboardInterrupt):
        stopped = command("-m", "hydra/launcher=joblib", "seed=0,1", *QUICK)
    assert stopped.returncode == 130
    assert stopped.stdout.count("\n") == 1  # how many jobs there are, and where
    assert stopped.stderr == "error: interrupted: the same command goes on where this one stopped\n"
    assert not (tmp_path / "mlruns" / "mlflow.db").exists()
