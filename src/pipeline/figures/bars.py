"""Accuracy of models under attacks as bars: certified in full colour, undecided pale above it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.style import CYCLE, legend_beside, panels_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


def bars(rows: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """One group per model, one bar per attack; a bar is (certified, attacked) in percent."""
    columns = list(dict.fromkeys(column for cells in rows.values() for column in cells))
    figure, (axes,) = panels_of(1, size=(max(3.6, 0.9 + 0.3 * len(rows) * (len(columns) + 1)), 3.0))
    width = 0.8 / max(1, len(columns))
    for number, column in enumerate(columns):
        colour = CYCLE[number % len(CYCLE)]
        x = np.array([place for place, cells in enumerate(rows.values()) if column in cells])
        x = x + (number - (len(columns) - 1) / 2) * width
        low, high = np.array([cells[column] for cells in rows.values() if column in cells]).T
        axes.bar(x, low, 0.92 * width, color=colour, label=column)
        axes.bar(x, high - low, 0.92 * width, bottom=low, color=colour, alpha=0.3)
    axes.bar([0], [0], color="gray", alpha=0.3, label="pale: undecided")
    axes.set(ylabel="accuracy [%]", ylim=(0, 100))
    axes.set_xticks(range(len(rows)), [name.replace(" ", "\n", 1) for name in rows], fontsize=8)
    tidy(axes)
    axes.grid(False, axis="x")
    legend_beside(figure)
    return figure
