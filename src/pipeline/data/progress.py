"""Progress of fetching and generating: a plain callable, and its bars in the terminal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

# Called as progress(event, step, total): event is a text such as "fetch mnist", step and total are bytes or rows;
# total 0 means that the end is not known.
Progress = Callable[[str, int, int], None]


def report(progress: Progress | None, event: str, step: int, total: int) -> None:
    """Tell the callback, if there is one."""
    if progress is not None:
        progress(event, step, total)


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Bars on standard error, one per event; they disappear when done."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f} %"))
    with Bars(*columns, TimeElapsedColumn(), console=Console(stderr=True), transient=True) as bars:
        tasks: dict[str, object] = {}

        def show(event: str, step: int, total: int) -> None:
            if event not in tasks:
                tasks[event] = bars.add_task(event, total=total or None)
            bars.update(tasks[event], completed=step, total=total or None)  # type: ignore[arg-type]

        yield show
