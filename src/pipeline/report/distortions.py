"""How far the minimum-distortion attacks had to go: quantiles, and the budget that would give the paper's number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pipeline.report.content import Cell, Section, stat
from pipeline.report.tracked import Reader, TrackedRun


@dataclass(frozen=True)
class Distortions:
    """L2 distortions of the examples that an attack broke, over all seeds of a cell.

    ``matching_budget`` is the L2 cap at which our accuracy equals the paper's: the smallest radius whose accuracy is
    no longer above it, None when the paper has no such cell or clean accuracy is already below.
    """

    q10: float
    median: float
    q90: float
    success_rate: float
    queries: float
    matching_budget: float | None


def breaking_distances(run: TrackedRun, reader: Reader) -> np.ndarray | None:
    """Per example the L2 distortion that changed its label: 0 if it was wrong before, infinity if it stood."""
    arrays = reader.arrays(run, "adversarial/examples.npz", ("success", "distortion_l2"))
    if arrays is None:
        return None
    return np.where(arrays["success"], arrays["distortion_l2"], np.inf)


def distortions_of(cell: Cell, section: Section, published_mean: float | None, reader: Reader) -> Distortions | None:
    """Quantiles over the broken examples of all seeds, None without the runs' files."""
    found = [d for run in cell.runs.values() if (d := breaking_distances(run, reader)) is not None]
    if not found:
        return None
    distances = np.concatenate(found)
    moved = distances[(distances > 0) & np.isfinite(distances)]
    quantiles = np.quantile(moved, [0.1, 0.5, 0.9]) if moved.size else np.zeros(3)
    success, queries = cell.stat("attack_success_rate"), stat(cell.values("queries_mean").values())
    return Distortions(
        q10=float(quantiles[0]),
        median=float(quantiles[1]),
        q90=float(quantiles[2]),
        success_rate=success.mean if success else float("nan"),
        queries=queries.mean if queries else float("nan"),
        matching_budget=_budget(distances, published_mean),
    )


def _budget(distances: np.ndarray, percent: float | None) -> float | None:
    if percent is None or 100 * np.mean(distances > 0) < percent:
        return None
    # accuracy(r) = share of distances above r, so r is the quantile at 1 - accuracy.
    radius = float(np.sort(distances)[min(len(distances) - 1, int(np.floor((1 - percent / 100) * len(distances))))])
    return radius if np.isfinite(radius) else None
