"""Cross-validated scores over the grid of two settings: C and step size, or a network's learning rate and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.style import BROKEN, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


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
