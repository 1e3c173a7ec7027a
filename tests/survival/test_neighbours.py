"""A job that raises, runs out of memory, is killed, cancelled or interrupted does not take the others with it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from runs import experiments, start, tracked, wait_until

FAULTS = Path(__file__).parent
SETTINGS = ("tune=none", "evaluation.max_attacked=8", "compute.threads=1")

pytestmark = [pytest.mark.survival, pytest.mark.timeout(400)]


SLOW = ("attack._target_=faults.Slow", *SETTINGS)


def _start(folder: Path, *arguments: str):
    path = os.pathsep.join(p for p in (str(FAULTS), os.environ.get("PYTHONPATH", "")) if p)
    return start(*arguments, *SETTINGS, cwd=folder, PYTHONPATH=path)


def _ended(process: Any, folder: Path, code: int) -> str:
    """What a launched command said, once it ended with this code."""
    process.join(120)
    output = (folder / "log").read_text()
    assert process.exitcode == code, output
    assert "Traceback" not in output
    return output


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_local"])
def test_failing_jobs_do_not_stop_the_others(tmp_path: Path, launcher: str) -> None:
    faults = ["Raises", "OutOfMemory"] + (["Killed", "Cancelled"] if launcher != "basic" else [])
    targets = [*(f"faults.{name}" for name in faults), "attacks.PGD"]
    sweep = _start(tmp_path, "-m", f"hydra/launcher={launcher}", f"attack._target_={','.join(targets)}")
    output, _ = sweep.communicate(timeout=380)
    assert sweep.returncode == 1, output
    assert "Traceback" not in output
    lines = [line for line in output.splitlines() if "failed: " in line]
    assert len(lines) == len(faults), output
    for fault, words in (
        ("Raises", "a bug in an attack"),
        ("OutOfMemory", "Unable to allocate"),
        ("Killed", "died" if launcher == "joblib" else "the job ended as"),
        ("Cancelled", "cancelled" if launcher == "joblib" else "ended as"),
    ):
        assert sum(words in line for line in lines) >= (fault in faults), (fault, output)
    status = [run["status"] for run in experiments(tmp_path)]
    assert "RUNNING" not in status
    assert status.count("FINISHED") == 1
    assert status.count("FAILED") == 2


def test_ctrl_c_ends_the_run_and_the_same_command_resumes(tmp_path: Path, launch: Callable[..., Any]) -> None:
    slow = ("-m", "attack._target_=attacks.PGD,faults.Paused", *SETTINGS)
    sweep = launch(tmp_path, *slow)
    wait_until((tmp_path / "paused").exists, 120, "the second job")
    os.killpg(sweep.pid, signal.SIGINT)
    output = _ended(sweep, tmp_path, 130)
    assert "interrupted: the same command goes on where this one stopped" in output
    assert sorted(run["status"] for run in experiments(tmp_path)) == ["FINISHED", "KILLED"]
    (tmp_path / "go").touch()
    output = _ended(launch(tmp_path, *slow), tmp_path, 0)
    assert "2 jobs: 1 finished, 1 reused" in output
    assert sorted(run["status"] for run in experiments(tmp_path)) == ["FINISHED", "FINISHED", "KILLED"]
    (summary,) = tracked(tmp_path, role="summary")
    assert summary["status"] == "FINISHED"


@pytest.mark.parametrize("launcher", ["joblib", "submitit_local"])
def test_ctrl_c_reaches_the_jobs_of_a_launcher(tmp_path: Path, launcher: str) -> None:
    sweep = _start(tmp_path, "-m", f"hydra/launcher={launcher}", "attack._target_=faults.Slow", "seed=0,1,2,3")
    wait_until(lambda: len(experiments(tmp_path)) >= 2, 180, "two running jobs")
    os.killpg(sweep.pid, signal.SIGINT)
    output, _ = sweep.communicate(timeout=100)
    assert sweep.returncode == 130, output
    assert "Traceback" not in output
    wait_until(lambda: {r["status"] for r in experiments(tmp_path)} == {"KILLED"}, 30, "the end of the runs")


def test_a_run_left_by_a_killed_process_is_marked_at_the_next_start(tmp_path: Path, launch: Callable[..., Any]) -> None:
    _leave_a_run(tmp_path, launch)
    again = launch(tmp_path, *SLOW)
    wait_until(lambda: len(experiments(tmp_path)) == 2, 120, "the second run")
    assert sorted(run["status"] for run in experiments(tmp_path)) == ["KILLED", "RUNNING"]
    again.terminate()
    _ended(again, tmp_path, 130)
    assert [run["status"] for run in experiments(tmp_path)] == ["KILLED", "KILLED"]


def test_a_run_of_a_killed_process_is_put_right_by_any_other_job(tmp_path: Path, launch: Callable[..., Any]) -> None:
    _leave_a_run(tmp_path, launch)
    _ended(launch(tmp_path, "attack=fgsm", "seed=1", *SETTINGS), tmp_path, 0)
    assert sorted(run["status"] for run in experiments(tmp_path)) == ["FINISHED", "KILLED"]


def _leave_a_run(folder: Path, launch: Callable[..., Any]) -> None:
    victim = launch(folder, *SLOW)
    wait_until(lambda: experiments(folder), 120, "the run")
    os.killpg(victim.pid, signal.SIGKILL)
    victim.join()
    assert [run["status"] for run in experiments(folder)] == ["RUNNING"]


@pytest.mark.parametrize("signals", [[signal.SIGHUP], [signal.SIGQUIT], [signal.SIGINT] * 5], ids=str)
def test_whatever_stops_a_run_it_ends_as_killed(
    tmp_path: Path, launch: Callable[..., Any], signals: list[signal.Signals]
) -> None:
    victim = launch(tmp_path, *SLOW)
    wait_until(lambda: experiments(tmp_path), 120, "the run")
    for number in signals:
        with suppress(ProcessLookupError):  # the first ones were enough
            os.kill(victim.pid, number)
        time.sleep(0.05)
    _ended(victim, tmp_path, 130)
    assert [run["status"] for run in experiments(tmp_path)] == ["KILLED"]


def test_a_cancelled_driver_takes_its_workers_with_it_and_writes_the_summary(tmp_path: Path) -> None:
    sweep = _start(tmp_path, "-m", "hydra/launcher=joblib", "attack._target_=faults.Slow", "seed=0,1,2,3")
    wait_until(lambda: len(experiments(tmp_path)) >= 2, 180, "two running jobs")
    sweep.send_signal(signal.SIGTERM)
    output, _ = sweep.communicate(timeout=100)  # as long as a worker lives, it holds the pipe open
    assert sweep.returncode == 130, output
    assert "Traceback" not in output
    assert "4 jobs: 4 failed" in output
    assert {run["status"] for run in experiments(tmp_path)} == {"KILLED"}
    (summary,) = tracked(tmp_path, role="summary")
    assert summary["status"] == "FAILED"
