"""Which figures there are: functions marked as such, in the modules of this folder and in those a user names."""

from __future__ import annotations

import importlib
import logging
import pkgutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.figures.style import Drawing, SavedFigure, save
from pipeline.interrupts import is_full_disk

log = logging.getLogger(__name__)

Draw = Callable[..., Drawing | None]


class FigureKind:
    """All figures that are drawn of the same thing; a decorator that adds one, under its function's name."""

    def __init__(self) -> None:
        self.functions: dict[str, Draw] = {}

    def __call__(self, function: Draw) -> Draw:
        """Add a figure; the function returns None where the data do not give one."""
        self.functions[function.__name__] = function
        return function

    def draw(
        self, folder: Path, *data: Any, which: str = "auto", name: str = "{}", everywhere: bool = False
    ) -> list[SavedFigure]:
        """Draw all figures of ``data``, which the functions take; one that fails is noted and never costs the numbers.

        ``which`` is ``auto``, ``off`` or a module with further figures; ``name`` the pattern of the files' names, with
        ``{}`` for the function's; ``everywhere``: also for dark pages and as SVG.
        """
        if which == "off":
            return []
        load(which)
        drawn = []
        for figure, function in self.functions.items():
            try:
                drawing = function(*data)
                if drawing is not None:
                    drawn.append(save(drawing, folder, name.format(figure), everywhere=everywhere))
            except Exception as error:
                if is_full_disk(error):
                    raise  # not the figure's fault: whatever is written next fails, too
                log.warning("  figure  %s could not be drawn (%s: %s)", figure, type(error).__name__, error)
        return drawn


run_figure = FigureKind()
"""``function(cfg, results)``: figures of every run."""

sweep_figure = FigureKind()
"""``function(dataset, jobs)``: figures of every sweep, per dataset."""

report_figure = FigureKind()
"""``function(section, reader)``: figures of every section of a report."""

dataset_figure = FigureKind()
"""``function(sections, reader)``: figures of all sections of a dataset in a report."""


def load(which: str) -> None:
    """Import our figures, and those of the user's module ``which`` if it is one."""
    import pipeline.figures

    for module in pkgutil.iter_modules(pipeline.figures.__path__):
        importlib.import_module(f"pipeline.figures.{module.name}")
    if which not in ("auto", "off"):
        try:
            importlib.import_module(which)
        except ImportError as error:
            raise UserError(f"figures: '{which}' is neither auto, nor off, nor a module ({error})") from error
