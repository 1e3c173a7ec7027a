"""Lines with a band over seeds, in one or more panels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.style import legend_beside, panels_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Points = Sequence[tuple[int, float]]
_MARKERS = "osD^vP"


@dataclass(frozen=True)
class Line:
    """Mean and standard deviation over seeds, at every x."""

    name: str
    x: np.ndarray
    mean: np.ndarray
    spread: np.ndarray
    colour: str | None = None
    style: str = "-"

    @classmethod
    def of_curves(cls, name: str, curves: Sequence[Points], **look: str | None) -> Line | None:
        """From one curve per seed, at the steps that all of them have; None without a step to show."""
        tables = [dict(curve) for curve in curves if curve]
        steps = sorted(set.intersection(*map(set, tables))) if tables else []
        if not steps:
            return None
        return cls.of_groups(name, {step: [table[step] for table in tables] for step in steps}, **look)

    @classmethod
    def of_groups(cls, name: str, groups: Mapping[float, Sequence[float]], **look: str | None) -> Line:
        """In percent, from the shares at each x."""
        x = sorted(groups)
        mean, spread = (np.array([100 * float(f(groups[key])) for key in x]) for f in (np.mean, np.std))
        return cls(name, np.array(x, dtype=float), mean, spread, **look)  # type: ignore[arg-type]


@dataclass(frozen=True)
class Panel:
    """One pair of axes; ``percent`` keeps the y axis within 0 and 100."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]
    percent: bool = True
    from_zero: bool = False
    log_x: bool = False


def lines(panels: Sequence[Panel], *, same_scale: bool = False) -> Figure:
    """Draw the panels, with one legend beside them."""
    figure, row = panels_of(len(panels), sharey=same_scale, size=(4.6, 3.2) if len(panels) == 1 else (3.6, 2.7))
    for axes, panel in zip(row, panels):
        for number, line in enumerate(panel.lines):
            few = len(line.x) <= 40
            marker = _MARKERS[number % len(_MARKERS)] if few else None
            (drawn,) = axes.plot(
                line.x, line.mean, line.style, marker=marker, markersize=3.5, color=line.colour, label=line.name,
                # A line along 100 % is seen in its full width although the axis ends there.
                clip_on=False,
            )  # fmt: skip
            low, high = line.mean - line.spread, line.mean + line.spread
            if panel.percent:
                low, high = np.maximum(low, 0), np.minimum(high, 100)
            axes.fill_between(line.x, low, high, color=drawn.get_color(), alpha=0.18, linewidth=0)
        axes.set(title=panel.title, xlabel=panel.xlabel, ylabel=panel.ylabel)
        if panel.log_x:
            axes.set_xscale("log")
        tidy(axes)
        bottom, top = axes.get_ylim()
        if panel.percent:
            bottom, top = max(bottom, 0.0), min(top, 100.0)
        axes.set_ylim(0.0 if panel.from_zero else bottom, max(top, bottom + 1e-9))
    legend_beside(figure)
    return figure
