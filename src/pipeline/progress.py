"""Progress of long work: a bar on a terminal, sparse log lines everywhere else."""

from __future__ import annotations

import copy
import io
import logging
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO, Any, Protocol, cast

from pipeline.labels import visible

log = logging.getLogger(__name__)

# A line says something new only when the work is long: nothing before the first wait, then rarer and rarer.
_FIRST_LINE_AFTER = 10.0
_LINES_EVERY = 30.0
_LOG_WIDTH = 160


# Attribute of a log record that belongs into the log file only.
QUIET = "quiet"
_job = ""


def name_job(words: str | None) -> None:
    """Let every line of this process say which job of a sweep it is about: jobs may run side by side."""
    global _job
    _job = f"[{words}] " if words else ""


class Observer(Protocol):
    """What models and attacks call while they work."""

    def __call__(self, event: str, step: int, total: int, **values: Any) -> None: ...


class TerminalHandler(logging.Handler):
    """Log records through rich, so that a line does not cut a progress bar in two."""

    def emit(self, record: logging.LogRecord) -> None:
        if getattr(record, QUIET, False):
            return
        try:
            if os.environ.get("ADVSVM_FULL_ERROR") != "1":  # the log file keeps the traceback
                record = copy.copy(record)
                record.exc_info = record.exc_text = None
            text = _job + visible(self.format(record))
            style = {"WARNING": "yellow", "ERROR": "red"}.get(record.levelname)
            console().print(text, style=style, markup=False, highlight=False, soft_wrap=True)
        except Exception:
            self.handleError(record)


@contextmanager
def spoken() -> Iterator[None]:
    """Show what the pipeline logs where Hydra has not set up the logging of a job."""
    logger, handler = logging.getLogger("pipeline"), TerminalHandler()
    level, above = logger.level, logger.propagate
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    logger.propagate = False
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = above


class Unbreakable:
    """A stream that goes on without a word when nobody reads any more.

    ``| head -1`` has gone, the terminal was closed, or there was none from the start: that must not cost a run.
    """

    def __init__(self, stream: Any):
        self._stream = stream or io.StringIO()

    def write(self, text: str) -> int:
        """Write, or do as if."""
        return self._safely(self._stream.write, text)

    def flush(self) -> None:
        """Flush, or do as if."""
        self._safely(self._stream.flush)

    def _safely(self, call: Any, *arguments: str) -> Any:
        try:
            return call(*arguments)
        except (OSError, ValueError):  # also a stream that somebody closed
            with suppress(OSError, ValueError):
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())
            return len(arguments[0]) if arguments else None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


_console: Any = None


def console() -> Any:
    """The one rich console of the process, on standard output."""
    global _console
    if _console is None:
        from rich.console import Console

        _console = Console(file=cast(IO[str], Unbreakable(sys.stdout)))
        if not _console.is_terminal:
            _console.width = max(_console.width, _LOG_WIDTH)  # a table in a log file need not fit a screen
    return _console


@contextmanager
def watch(label: str) -> Iterator[Observer]:
    """Give an observer that shows ``label`` and how far the work is."""
    if console().is_terminal:
        yield from _bar(label)
    else:
        yield _lines(label)


def _bar(label: str) -> Iterator[Observer]:
    from rich import progress as bars

    columns = (
        bars.TextColumn("  {task.description}"),
        bars.BarColumn(30),
        bars.MofNCompleteColumn(),
        bars.TimeElapsedColumn(),
        bars.TimeRemainingColumn(),
        bars.TextColumn("{task.fields[values]}"),
    )
    with bars.Progress(*columns, console=console(), transient=True) as progress:
        task = progress.add_task(_job + label, total=None, values="")

        def observer(event: str, step: int, total: int, **values: Any) -> None:
            progress.update(task, completed=step, total=total, values=_words(values))

        yield observer


def _lines(label: str) -> Observer:
    started = time.monotonic()
    due = started + _FIRST_LINE_AFTER

    def observer(event: str, step: int, total: int, **values: Any) -> None:
        nonlocal due
        now = time.monotonic()
        if now >= due and step < total:
            due = now + _LINES_EVERY
            log.info("  %s %d/%d, %.0f s %s", label, step, total, now - started, _words(values))

    return observer


def _words(values: dict[str, Any]) -> str:
    return "  ".join(
        f"{name.replace('_', ' ')} {value:.4g}" for name, value in values.items() if isinstance(value, (int, float))
    )
