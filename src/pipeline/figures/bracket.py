"""What is known over the radius: certified, undecided and broken, as areas that add up to all points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.style import BLUE, BROKEN, GREY, PROVED, YELLOW, legend_beside, panels_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Known:
    """What certificate and attack say about the same points of one model.

    Attributes
    ----------
    certified : ndarray (n,)
        Radius within which nothing breaks the point; 0 for misclassified points.
    nearest : ndarray (n,)
        Distance of the nearest adversarial point known: 0 if it was wrong before, infinity if it stood.
    norm : str
        The norm both are measured in.
    mark : float, optional
        A radius worth a line, such as the cap.
    attacks : dict of str to ndarray
        Further distances, drawn as dashed lines.
    """

    title: str
    certified: np.ndarray
    nearest: np.ndarray
    norm: str = "L2"
    mark: float | None = None
    attacks: dict[str, np.ndarray] = field(default_factory=dict)

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
