"""The kinds of figures, drawn from plain data: lines with a band, what is known over the radius, a grid, bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.style import BLUE, BROKEN, CYCLE, GREY, PROVED, YELLOW, legend_beside, panels_of, tidy

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
    # Once all is drawn: panels of the same scale share their limits, and those of one leave no room for the others.
    for axes, panel in zip(row, panels):
        bottom, top = axes.get_ylim()
        if panel.percent:
            bottom, top = max(bottom, 0.0), min(top, 100.0)
        axes.set_ylim(0.0 if panel.from_zero else bottom, max(top, bottom + 1e-9))
    legend_beside(figure)
    return figure


@dataclass(frozen=True)
class Known:
    """What certificate and attack say about the same n points of one model, both in one norm."""

    title: str
    certified: np.ndarray  # radius within which nothing breaks the point; 0 for misclassified points
    nearest: np.ndarray  # distance of the nearest adversarial point: 0 if it was wrong before, infinity if it stood
    norm: str = "L2"
    mark: float | None = None  # a radius worth a line, such as the cap
    attacks: dict[str, np.ndarray] = field(default_factory=dict)  # further distances, drawn as dashed lines

    @property
    def edge(self) -> float:
        """Where the interesting part ends: nine of ten points are broken, and the mark is inside."""
        finite = self.nearest[np.isfinite(self.nearest)]
        reached = float(np.quantile(finite, 0.9)) if finite.size else 0.0
        return max(0.1, 1.05 * reached, 1.05 * float(self.certified.max(initial=0.0)), 1.15 * (self.mark or 0.0))


def at_least(radii: np.ndarray, rows: np.ndarray, certified: np.ndarray, epsilon: float) -> np.ndarray:
    """L2 radii that also know which ``rows`` (bool or numbers) hold a certificate of size ``epsilon``.

    A proof at one given size is stronger than the general radius; one in L∞ counts, because its ball holds the L2 ball.
    """
    raised = radii.copy()
    raised[rows[certified]] = np.maximum(raised[rows[certified]], epsilon)
    return raised


def accuracy_at(distances: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Share of points whose nearest known adversarial point lies beyond each of the ``radii``."""
    return 1.0 - np.searchsorted(np.sort(distances), radii, side="right") / max(1, len(distances))


def certified_at(certified: np.ndarray, radii: np.ndarray) -> np.ndarray:
    """Share of points certified at each of the ``radii``; a radius of 0 means misclassified or nothing proved."""
    ordered = np.sort(certified[certified > 0])
    return (len(ordered) - np.searchsorted(ordered, radii, side="left")) / max(1, len(certified))


def bracket(panels: Sequence[Known]) -> Figure:
    """One panel per model: the areas certified, undecided and broken over the radius."""
    figure, row = panels_of(len(panels), sharey=True, size=(4.6, 3.2) if len(panels) == 1 else (3.6, 2.7))
    edge = max(panel.edge for panel in panels)
    at = np.linspace(0, edge, 400)
    for axes, panel in zip(row, panels):
        low, high = 100 * certified_at(panel.certified, at), 100 * accuracy_at(panel.nearest, at)
        high = np.maximum(low, high)
        areas = [low, high - low, 100 - high]
        axes.stackplot(
            at, areas, colors=(PROVED, GREY, BROKEN), alpha=0.35, labels=("certified", "undecided", "broken"), lw=0
        )
        axes.plot(at, low, color=PROVED)
        axes.plot(at, high, color=BROKEN)
        for colour, (name, distances) in zip((BLUE, YELLOW) * len(panel.attacks), panel.attacks.items()):
            axes.plot(at, 100 * accuracy_at(distances, at), "--", color=colour, linewidth=1.4, label=f"under {name}")
        if panel.mark is not None:
            label = f"{panel.norm} {panel.mark:g}"
            axes.axvline(panel.mark, color="0.5", linewidth=1.0, linestyle=":", label=f"cap {label}")
        title = f"{panel.title} ({len(panel.nearest)} points)" if panel.title else f"{len(panel.nearest)} points"
        axes.set(title=title, xlabel=f"{panel.norm} radius", ylim=(0, 100), xlim=(0, edge))
        tidy(axes)
    row[0].set_ylabel("share of points [%]")
    legend_beside(figure)
    return figure


@dataclass(frozen=True)
class Grid:
    """Scores in percent over the values of two settings: ``across`` (columns) and ``up`` (rows)."""

    title: str
    across: list[float]
    up: list[float]
    scores: np.ndarray
    names: tuple[str, str] = ("C", "step size")
    chosen: tuple[float, float] | None = None

    @classmethod
    def of_table(
        cls, table: Mapping[str, Sequence[Any]], metric: str, title: str, best: Mapping[str, Any]
    ) -> Grid | None:
        """From the columns of ``cv_results``; None when there is no such grid. Widths: a cell shows the best.

        ``best`` is the chosen setting; with equal scores, or a rule of choice, it is not just the highest cell.
        """
        chosen = f"mean_{metric}" if f"mean_{metric}" in table else "mean_accuracy"
        across, up = ("C", "step") if "C" in table else ("learning_rate", "epochs")
        if not len(table.get(across, ())) or chosen not in table:
            return None
        columns = [float(value) for value in table[across]]
        rows = [float(value or 0.0) for value in table.get(up, [0.0] * len(columns))]
        x, y = sorted(set(columns)), sorted(set(rows))
        scores = np.full((len(y), len(x)), np.nan)
        for row, column, value in zip(rows, columns, table[chosen]):
            cell = y.index(row), x.index(column)
            scores[cell] = np.fmax(scores[cell], 100 * float(value) if value != "" else np.nan)
        if np.isnan(scores).all():
            return None
        names = across.replace("_", " "), {"step": "step size"}.get(up, up)
        at = (float(best[across]), float(best.get(up) or 0.0)) if across in best else None
        return cls(f"{title}\n{chosen.removeprefix('mean_').replace('_', ' ')} [%]".strip(), x, y, scores, names, at)


def heat_map(panels: Sequence[Grid]) -> Figure:
    """One panel per model; the chosen cell is framed."""
    import seaborn

    figure, grid = panels_of(len(panels), size=(4.6, 3.4), legend=False)
    for axes, panel in zip(grid, panels):
        scores = panel.scores
        lowest, highest = float(np.nanmin(scores)), float(np.nanmax(scores))
        seaborn.heatmap(
            scores, ax=axes, cmap="viridis", vmin=min(lowest, highest - 1), vmax=highest, mask=np.isnan(scores),
            annot=True, fmt=".1f", annot_kws={"fontsize": 6.5}, cbar_kws={"fraction": 0.046},
            xticklabels=[power_of_two(value) for value in panel.across],
            yticklabels=[power_of_two(value) if value else "" for value in panel.up],
        )  # fmt: skip
        axes.invert_yaxis()
        if panel.chosen is not None and panel.chosen[0] in panel.across and panel.chosen[1] in panel.up:
            column, row = panel.across.index(panel.chosen[0]), panel.up.index(panel.chosen[1])
            axes.plot(
                column + np.array([0, 1, 1, 0, 0]), row + np.array([0, 0, 1, 1, 0]),
                color=BROKEN, linewidth=2.5, clip_on=False,
            )  # fmt: skip
        axes.set(title=panel.title, xlabel=panel.names[0], ylabel=panel.names[1] if any(panel.up) else "")
    return figure


_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


def power_of_two(value: float) -> str:
    """``2⁻³``, or the number. In plain letters: setting formulas takes longer than all the rest of the figure."""
    exponent = np.log2(value) if value > 0 else np.nan
    return f"2{f'{exponent:.0f}'.translate(_RAISED)}" if float(exponent).is_integer() else f"{value:.3g}"


def bars(rows: Mapping[str, Mapping[str, tuple[float, float]]]) -> Figure:
    """One group per model, one bar per attack: certified in full colour, up to attacked pale, in percent."""
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
