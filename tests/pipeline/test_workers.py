"""Jobs in forked workers: in order, so many at once, and one that dies alone."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pipeline import workers

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")


def _process(value: int) -> tuple[int, int]:
    return value, os.getpid()


def _beside(folder: Path, name: int) -> int:
    """How many were at work when this one was, itself included; it waits for the other if there may be one."""
    (folder / str(name)).touch()
    limit = time.monotonic() + 5
    while time.monotonic() < limit and len(list(folder.iterdir())) < 2:
        time.sleep(0.01)
    time.sleep(0.2)
    found = len(list(folder.iterdir()))
    (folder / str(name)).unlink()
    return found


def _dies(how: str) -> None:
    if how == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit(3)


def test_returns_come_in_order_from_few_processes() -> None:
    returned = workers.run([partial(_process, value) for value in range(7)], 2)
    assert [value for value, _ in returned] == list(range(7))
    processes = {pid for _, pid in returned}
    assert len(processes) <= 2
    assert os.getpid() not in processes


def test_as_many_as_asked_for_run_at_once(tmp_path: Path) -> None:
    assert max(workers.run([partial(_beside, tmp_path, name) for name in range(4)], 2)) == 2


@pytest.mark.parametrize(("how", "words"), [("killed", "SIGKILL"), ("exits", "exit code 3")])
def test_one_that_dies_takes_no_other_with_it(how: str, words: str) -> None:
    calls = [partial(_process, 0), partial(_dies, how), partial(_process, 2), partial(_process, 3)]
    first, dead, *others = workers.run(calls, 2)
    assert [first[0], *(value for value, _ in others)] == [0, 2, 3]
    assert isinstance(dead, workers.Died)
    assert "died" in dead.reason
    assert words in dead.reason


def test_one_that_died_between_two_jobs_is_reported_not_raised() -> None:
    worker = workers._Worker()
    worker.process.kill()
    worker.process.join()
    worker.give(partial(_process, 0))
    found = worker.take()
    assert isinstance(found, workers.Died)
    assert "SIGKILL" in found.reason


def test_a_worker_has_the_environment_of_the_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    workers.run([partial(_process, 0)], 1)  # what they are forked from has started before
    monkeypatch.setenv("ADVSVM_TEST", "later")
    assert workers.run([partial(os.environ.get, "ADVSVM_TEST")], 1) == ["later"]
    monkeypatch.delenv("ADVSVM_TEST")
    assert workers.run([partial(os.environ.get, "ADVSVM_TEST")], 1) == [None]


def test_workers_do_not_share_their_random_numbers(tmp_path: Path) -> None:
    one, other = workers.run([partial(_drawn, tmp_path, name) for name in range(2)], 2)
    assert one != other


def _drawn(folder: Path, name: int) -> float:
    _beside(folder, name)
    return float(np.random.random())  # noqa: NPY002


def test_what_is_imported_is_there_before_a_job_asks() -> None:
    (loaded,) = workers.run([partial(_loaded, ("torch", "mlflow", "sklearn.svm", "pipeline.stages.evaluate"))], 1)
    assert loaded == ([True] * 4 if sys.platform == "linux" else loaded)


def _loaded(names: tuple[str, ...]) -> list[bool]:
    return [name in sys.modules for name in names]


def test_an_exception_here_ends_the_workers(tmp_path: Path) -> None:
    """Here by a call that cannot be sent, once another one is at work; a signal takes the same way."""
    calls = [partial(_waits, tmp_path), partial(_sees_one, tmp_path), partial(_waits, threading.Lock())]
    with pytest.raises(TypeError, match="pickle"):
        workers.run(calls, 2)
    (file,) = tmp_path.iterdir()
    with pytest.raises(ProcessLookupError):
        os.kill(int(file.name), 0)


def _waits(folder: Path) -> None:
    (folder / str(os.getpid())).touch()
    time.sleep(60)


def _sees_one(folder: Path) -> None:
    while not list(folder.iterdir()):
        time.sleep(0.01)
