"""Real processes that tests may kill, started quickly: the slow imports happen once, in a fork server."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

_PRELOAD = ["torch", "mlflow", "mlflow.pyfunc", "sqlalchemy", "matplotlib.pyplot", "matplotlib", "pipeline.run"]


@pytest.fixture(scope="session")
def _forkserver() -> Any:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    return context


@pytest.fixture
def launch(_forkserver: Any) -> Iterator[Callable[..., Any]]:
    """``launch(folder, *arguments)`` starts ``python -m pipeline.run *arguments`` in ``folder``; output in ``log``.

    In a session of its own, so that a signal may be sent to it and all its children: ``os.killpg(process.pid, …)``.
    """
    started = []

    def start(folder: Path, *arguments: str, log: str = "log") -> Any:
        folder.mkdir(parents=True, exist_ok=True)
        process = _forkserver.Process(target=_run, args=(str(folder), list(arguments), log))
        process.start()
        started.append(process)
        return process

    yield start
    for process in started:
        if process.is_alive():
            process.kill()
        process.join()


def _run(folder: str, arguments: list[str], log: str) -> None:
    os.chdir(folder)
    os.setsid()
    out = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):  # ignored by tests that run in the background
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    sys.path.insert(0, str(Path(__file__).parent))  # attacks that go wrong: faults.py
    for name in [name for name in os.environ if name.startswith(("HYDRA", "ADVSVM_SWEEP", "ADVSVM_FULL"))]:
        del os.environ[name]
    sys.argv = ["pipeline.run", *arguments]
    from pipeline.run import main

    try:
        main()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
