"""Processes of this machine for the jobs of a sweep, forked from one that has imported everything already.

Importing torch, scikit-learn and MLflow takes longer than a small job. A worker that dies takes its own job with it and
no other.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any

import cloudpickle

# Elsewhere a fork of loaded numerical libraries is not to be trusted: there every worker imports for itself, once.
_FORKS = sys.platform == "linux"
_CANCEL_SECONDS = 30.0


@dataclass
class Died:
    """What is left of a call whose process ended before it."""

    reason: str


def get_ready() -> None:
    """Start importing, beside what the driver still has to do."""
    if not _FORKS:
        return
    from multiprocessing import forkserver

    forkserver.set_forkserver_preload(["pipeline.preloaded"])
    # Ctrl-C is for the driver, which then cancels the jobs: they start with it ignored.
    handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        forkserver.ensure_running()
    finally:
        signal.signal(signal.SIGINT, handler)


def run(calls: Sequence[Callable[[], Any]], count: int) -> list[Any]:
    """What the calls return, or :class:`Died`, in order; ``count`` of them run at a time.

    When this process is stopped, the jobs are cancelled and given the time to end their runs.
    """
    get_ready()
    returned: dict[int, Any] = {}
    waiting, idle, busy = deque(range(len(calls))), list[_Worker](), dict[Connection, tuple[_Worker, int]]()
    try:
        while waiting or busy:
            while waiting and len(busy) < count:
                worker, position = idle.pop() if idle else _Worker(), waiting.popleft()
                busy[worker.connection] = worker, position
                worker.give(calls[position])
            for connection in wait(list(busy)):
                assert isinstance(connection, Connection)
                worker, position = busy.pop(connection)
                returned[position] = worker.take()
                if not isinstance(returned[position], Died):
                    idle.append(worker)
    except BaseException:
        from pipeline.interrupts import winding_up

        winding_up()
        for worker, _ in busy.values():
            worker.process.terminate()
        raise
    finally:
        limit = time.monotonic() + _CANCEL_SECONDS
        for worker in (*idle, *(worker for worker, _ in busy.values())):
            worker.end(limit)
    return [returned[position] for position in range(len(calls))]


class _Worker:
    """A process that does one call after the other, until nobody has any left for it."""

    def __init__(self) -> None:
        context: Any = multiprocessing.get_context("forkserver" if _FORKS else "spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_serve, args=(theirs, dict(os.environ)))
        self.process.start()
        theirs.close()

    def give(self, call: Callable[[], Any]) -> None:
        sent = cloudpickle.dumps(call)
        with suppress(ConnectionError):  # it died while it had nothing to do: `take` says so
            self.connection.send_bytes(sent)

    def take(self) -> Any:
        try:
            return cloudpickle.loads(self.connection.recv_bytes())
        except (EOFError, ConnectionError):
            self.process.join()
            code = self.process.exitcode
            how = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
            return Died(f"its process died ({how}: killed, or out of memory)")

    def end(self, limit: float) -> None:
        self.connection.close()
        self.process.join(max(0.0, limit - time.monotonic()))
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def _serve(connection: Connection, environment: dict[str, str]) -> None:
    import numpy as np

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # where it was not inherited
    os.environ.clear()
    os.environ.update(environment)
    np.random.seed()  # all that were forked have the same state  # noqa: NPY002
    while True:
        try:
            call = cloudpickle.loads(connection.recv_bytes())
        except (EOFError, ConnectionError):
            return
        returned = cloudpickle.dumps(call())
        try:
            connection.send_bytes(returned)
        except ConnectionError:  # the driver is gone; the job has written down how it ended
            return
