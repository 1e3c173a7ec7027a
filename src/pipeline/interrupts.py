"""Signals and full disks, turned into exceptions that a job can end by."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pipeline.errors import UserError

# Ctrl-C, a cancelled cluster job, a terminal that went away, Ctrl-\\.
_STOPS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Set when a stop signal was understood and the job is being wound up.
_stopping = threading.Event()
_REPEAT_SECONDS = 0.5
# What winding up may take; who asks again after that is let go at once.
_PATIENCE = 20.0
_installed = False


class Terminated(BaseException):
    """A signal that ends processes arrived; its name is the message. Unwinds like Ctrl-C."""


@contextmanager
def terminated_as_exception(last: bool = False) -> Iterator[None]:
    """Turn the signals that would end the process into exceptions, so that a run ends KILLED instead of RUNNING.

    Only the first one is raised: another one, of whatever kind, must not cut the winding up short. What the parent
    process chose to have ignored (``nohup``) stays ignored. After the ``last`` block of a process that was stopped,
    nothing but the end is left to interrupt.
    """
    global _installed
    if _installed or threading.current_thread() is not threading.main_thread():
        yield
        return
    raised = 0.0

    def again(number: int) -> None:
        if not _stopping.is_set():
            os.kill(os.getpid(), number)

    def stop(number: int, frame: Any) -> None:
        nonlocal raised
        waited = time.monotonic() - raised
        if raised and waited > _PATIENCE:
            os._exit(128 + number)
        if _stopping.is_set() or (raised and waited < _REPEAT_SECONDS):
            return
        raised = time.monotonic()
        # Raised while a finalizer runs, an exception is dropped by the interpreter: repeat until it got through.
        timer = threading.Timer(2 * _REPEAT_SECONDS, again, [number])
        timer.daemon = True
        timer.start()
        raise KeyboardInterrupt if number == signal.SIGINT else Terminated(signal.Signals(number).name)

    _stopping.clear()
    before = _handled_by(stop)
    _installed = True
    try:
        yield
    finally:
        _installed = False
        _stopping.set()
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if last and raised else handler)


def winding_up() -> None:
    """Say that a stop was understood: further signals are ignored for a while."""
    _stopping.set()


@contextmanager
def uninterrupted() -> Iterator[None]:
    """Hold the signals back until the block is done: a run must not start without anybody knowing its id."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    arrived: list[int] = []
    before = _handled_by(lambda number, frame: arrived.append(number))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            signal.raise_signal(arrived[0])


def _handled_by(handler: Callable[[int, Any], None]) -> dict[int, Any]:
    """Install the handler for all of the signals that are not ignored; returns what was there before."""
    return {n: signal.signal(n, handler) for n in _STOPS if signal.getsignal(n) is not signal.SIG_IGN}


@contextmanager
def no_space_as_user_error() -> Iterator[None]:
    """A full disk is something the user can put right."""
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
