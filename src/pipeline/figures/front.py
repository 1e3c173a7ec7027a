"""What the folds offered between clean and robust accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.style import BROKEN, panels_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Front:
    """Settings by accuracy and metric, in percent; ``measured`` marks those whose metric is no estimate."""

    metric: str
    accuracy: np.ndarray
    robust: np.ndarray
    measured: np.ndarray
    front: list[int]
    chosen: int

    @classmethod
    def of_table(
        cls, table: Mapping[str, Sequence[Any]], front: list[int], chosen: int, metric: str, threat: str
    ) -> Front:
        """From the columns of ``cv_results``."""
        accuracy, robust = (100 * np.asarray(table[f"mean_{name}"], dtype=float) for name in ("accuracy", metric))
        measured = np.asarray(table.get("attacked", [True] * len(accuracy)), dtype=bool)
        return cls(f"{metric.replace('_', ' ')} within {threat}", accuracy, robust, measured, front, chosen)


def front(panel: Front) -> Figure:
    """One point per setting; the front as a line, the chosen setting circled."""
    figure, (axes,) = panels_of(1, size=(5.2, 3.8), legend=False)
    kinds = {"to first order": ~panel.measured, "measured": panel.measured}
    for (label, rows), alpha in zip(kinds.items(), (0.3, 0.9)):
        if rows.any():
            axes.scatter(panel.accuracy[rows], panel.robust[rows], s=14, alpha=alpha, label=label, linewidths=0)
    axes.plot(panel.accuracy[panel.front], panel.robust[panel.front], linewidth=1.2, label="front")
    at = panel.accuracy[panel.chosen], panel.robust[panel.chosen]
    axes.scatter(*at, s=110, facecolors="none", edgecolors=BROKEN, linewidths=1.6, label="chosen")
    # Settings that learned nothing would squeeze the others into a corner.
    low = max(panel.accuracy.min(), panel.accuracy[panel.front].min() - 15.0)
    axes.set_xlim(low - 1.0, min(100.5, panel.accuracy.max() + 1.0))
    axes.set_xlabel("held-out accuracy [%]")
    axes.set_ylabel(f"held-out {panel.metric} [%]")
    axes.legend(loc="best", fontsize="small")
    return figure
