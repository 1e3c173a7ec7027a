"""Signals and full disks, turned into exceptions that a job can end by."""

from __future__ import annotations

import errno
import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.errors import UserError

# Set when a stop signal was understood and the job is being wound up.
_stopping = threading.Event()
_REPEAT_SECONDS = 0.5


class Terminated(BaseException):
    """SIGTERM arrived (a cancelled cluster job): unwinds like Ctrl-C."""


@contextmanager
def terminated_as_exception() -> Iterator[None]:
    """Turn SIGTERM into :class:`Terminated` while a job runs, so that its run ends KILLED instead of RUNNING."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def again() -> None:
        if not _stopping.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def stop(signum: int, frame: Any) -> None:
        # SLURM sends it more than once; a second one must not cut the marking of the run short.
        if _stopping.is_set():
            return
        # Raised while a finalizer runs, an exception is dropped by the interpreter: repeat until it got through.
        timer = threading.Timer(_REPEAT_SECONDS, again)
        timer.daemon = True
        timer.start()
        raise Terminated

    _stopping.clear()
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        _stopping.set()
        signal.signal(signal.SIGTERM, before)


def winding_up() -> None:
    """Say that a stop was understood: further signals of the same kind are ignored."""
    _stopping.set()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back until the block is done: a run must not start without anybody knowing its id."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    both = (signal.SIGINT, signal.SIGTERM)
    before = {number: signal.signal(number, lambda signum, frame: arrived.append(signum)) for number in both}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


@contextmanager
def no_space_as_user_error() -> Iterator[None]:
    """A full disk is something the user can mend."""
    try:
        yield
    except Exception as error:
        if is_full_disk(error):
            raise UserError("no space left on the disk: free some, or move tracking.folder or cache.folder") from error
        raise


def is_full_disk(error: BaseException) -> bool:
    # SQLite and safetensors say it in words of their own.
    words = ("disk is full", "No space left on device")
    return getattr(error, "errno", None) == errno.ENOSPC or any(word in str(error) for word in words)
