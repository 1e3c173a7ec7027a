"""Where a point may be moved to: a ball of one norm, cut by the box its values live in."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from models.threat import Box

_GROW = 1 + 8 * np.finfo(np.float64).eps


@dataclass(frozen=True)
class Region:
    """All x + δ with lower ≤ δ ≤ upper and ‖δ‖₂ ≤ radius, one region a row; every edge is rounded outwards.

    An L∞ ball is a cell whose farthest corner gives the radius, an L2 ball a ball whose bounding cube gives the edges,
    so that every bound may use whichever of the two it can.
    """

    X: np.ndarray  # (n, d), float64
    lower: np.ndarray  # (n, d), lower ≤ 0 ≤ upper, finite
    upper: np.ndarray
    radius: np.ndarray  # (n,)

    def __len__(self) -> int:
        return len(self.X)

    def take(self, rows: Any) -> "Region":
        """Some of the rows."""
        return Region(self.X[rows], self.lower[rows], self.upper[rows], self.radius[rows])

    def widened(self, by: np.ndarray) -> "Region":
        """Grown by `by`, shape (n, d), in every coordinate: what a conversion of the attacked point may add."""
        return Region(self.X, self.lower - by, self.upper + by, (self.radius + np.linalg.norm(by, axis=1)) * _GROW)


def region(X: np.ndarray, epsilon: float | np.ndarray, norm: str = "l2", box: Box = None) -> Region:
    """The ball of size `epsilon`, one or (n,), around every row of X, inside the box: numbers, or (d,) or (n, d)."""
    if norm not in ("l2", "linf"):
        raise ValueError(f"norm must be 'l2' or 'linf', got {norm!r}")
    size = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), X.shape[:1])
    if not (size >= 0).all():
        raise ValueError(f"epsilon must not be negative, got {np.min(size)!r}")
    X = np.asarray(X, dtype=np.float64)
    size = size * _GROW
    edge = np.broadcast_to(size[:, None], X.shape)
    if box is None:
        lower, upper = -edge, edge
    else:
        low, high = (np.asarray(edge, dtype=np.float64) for edge in box)
        if (low > X).any() or (high < X).any():
            raise ValueError(
                "X must lie inside the box: pass box=(low, high) in the units of X, numbers or one per feature, or "
                "box=None"
            )
        # The subtraction rounds by a unit of its result: outwards with it.
        lower, upper = np.maximum(-edge, (low - X) * _GROW), np.minimum(edge, (high - X) * _GROW)
    reach = np.linalg.norm(np.maximum(-lower, upper), axis=1) * (1 + X.shape[1] * np.finfo(np.float64).eps)
    return Region(X, lower, upper, reach if norm == "linf" else np.minimum(size, reach))


def lowest_linear(slopes: np.ndarray, where: Region, rounds: int = 30) -> np.ndarray:
    """Lower bound of slope·δ over every region, shape (n,): exact up to rounding, never above.

    Over the cell alone it is the sum of the worse ends, over the ball alone -‖slope‖·radius. Over both, for every
    μ > 0,

        min slope·δ ≥ Σ_j min over [lower_j, upper_j] of (slope_j δ_j + μ/2 δ_j²) - μ/2 radius²,

    and the best μ is the one whose minimiser δ = clip(-slope/μ) has length radius: found by bisection, but any is safe.
    """
    units = (slopes.shape[1] + 8) * np.finfo(np.float64).eps
    ends = np.minimum(slopes * where.lower, slopes * where.upper)
    cell = ends.sum(1)
    length = np.linalg.norm(slopes, axis=1)
    ball = -length * where.radius
    best = np.maximum(cell * (1 + units), ball * (1 + units))
    corners = np.linalg.norm(np.where(slopes > 0, where.lower, where.upper), axis=1)
    rows = np.flatnonzero((corners > where.radius) & (ball < 0) & (where.radius > 0))
    # The bounding cube cuts nothing off a ball: only where the box is nearer is there anything to gain.
    cut = (np.minimum(-where.lower[rows], where.upper[rows]) < where.radius[rows, None] * (1 - 1e-12)).any(1)
    rows = rows[cut]
    if len(rows) == 0:
        return best
    part, slope, radius = where.take(rows), slopes[rows], where.radius[rows]
    # δ(t) = clip(-slope·t) grows with t = 1/μ, from the free minimiser at t = radius/‖slope‖ on.
    low = radius / length[rows]
    high = low.copy()
    for _ in range(200):
        short = np.linalg.norm(np.clip(-slope * high[:, None], part.lower, part.upper), axis=1) < radius
        if not short.any():
            break
        high = np.where(short, 2 * high, high)
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        short = np.linalg.norm(np.clip(-slope * middle[:, None], part.lower, part.upper), axis=1) < radius
        low, high = np.where(short, middle, low), np.where(short, high, middle)
    with np.errstate(over="ignore", invalid="ignore"):
        mu = 1 / high
        point = np.clip(-slope * high[:, None], part.lower, part.upper)
        terms = slope * point + 0.5 * mu[:, None] * point * point
        value = terms.sum(1) - 0.5 * mu * radius * radius
        value -= units * (np.abs(terms).sum(1) + 0.5 * mu * radius * radius)
    best[rows] = np.fmax(best[rows], value)
    return best
