"""A job that raises, runs out of memory, is killed, cancelled or interrupted does not take the others with it."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import pytest

from runs import experiments, start, tracked, wait_until

FAULTS = Path(__file__).parent
SETTINGS = ("tune=none", "evaluation.max_attacked=8", "compute.threads=1")

pytestmark = [pytest.mark.survival, pytest.mark.timeout(400)]


def _start(folder: Path, *arguments: str):
    path = os.pathsep.join(p for p in (str(FAULTS), os.environ.get("PYTHONPATH", "")) if p)
    return start(*arguments, *SETTINGS, cwd=folder, PYTHONPATH=path)


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


def test_ctrl_c_ends_the_run_and_the_same_command_resumes(tmp_path: Path) -> None:
    slow = ("-m", "attack=fgsm,pgd", "seed=0,1")
    sweep = _start(tmp_path, *slow)
    wait_until(lambda: len(experiments(tmp_path)) == 2 and experiments(tmp_path), 120, "the second job")
    os.killpg(sweep.pid, signal.SIGINT)
    output, _ = sweep.communicate(timeout=60)
    assert sweep.returncode == 130, output
    assert "Traceback" not in output
    assert "interrupted: the same command goes on where this one stopped" in output
    runs = experiments(tmp_path)
    finished = sum(run["status"] == "FINISHED" for run in runs)
    assert {run["status"] for run in runs} == {"FINISHED", "KILLED"}
    again = _start(tmp_path, *slow)
    output, _ = again.communicate(timeout=200)
    assert again.returncode == 0, output
    assert f"{finished} reused" in output
    assert sum(run["status"] == "FINISHED" for run in experiments(tmp_path)) == 4
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


def test_a_run_left_by_a_killed_process_is_marked_at_the_next_start(tmp_path: Path) -> None:
    victim = _start(tmp_path, "attack._target_=faults.Slow")
    wait_until(lambda: experiments(tmp_path), 120, "the run")
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    assert [run["status"] for run in experiments(tmp_path)] == ["RUNNING"]
    again = _start(tmp_path, "attack._target_=faults.Slow")
    wait_until(lambda: len(experiments(tmp_path)) == 2, 120, "the second run")
    assert sorted(run["status"] for run in experiments(tmp_path)) == ["KILLED", "RUNNING"]
    again.send_signal(signal.SIGTERM)
    output, _ = again.communicate(timeout=60)
    assert "Traceback" not in output
    assert [run["status"] for run in experiments(tmp_path)] == ["KILLED", "KILLED"]


@pytest.mark.parametrize("signals", [[signal.SIGHUP], [signal.SIGQUIT], [signal.SIGINT] * 5], ids=str)
def test_whatever_stops_a_run_it_ends_as_killed(tmp_path: Path, signals: list[signal.Signals]) -> None:
    victim = _start(tmp_path, "attack._target_=faults.Slow")
    wait_until(lambda: experiments(tmp_path), 120, "the run")
    for number in signals:
        victim.send_signal(number)
        time.sleep(0.05)
    output, _ = victim.communicate(timeout=60)
    assert victim.returncode == 130, output
    assert "Traceback" not in output
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


def test_a_run_of_a_killed_process_is_put_right_by_any_other_job(tmp_path: Path) -> None:
    victim = _start(tmp_path, "attack._target_=faults.Slow")
    wait_until(lambda: experiments(tmp_path), 120, "the run")
    os.killpg(victim.pid, signal.SIGKILL)
    victim.wait()
    other = _start(tmp_path, "attack=fgsm", "seed=1")
    output, _ = other.communicate(timeout=120)
    assert other.returncode == 0, output
    assert sorted(run["status"] for run in experiments(tmp_path)) == ["FINISHED", "KILLED"]
