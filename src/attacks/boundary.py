"""Walking on the decision boundary towards a clean point: the part minimum-norm attacks share."""

from __future__ import annotations

import numpy as np

from .geometry import nearest_below_plane, row_dots, row_norms
from .problem import Problem

# Full steps overshoot where the boundary curves, short ones do not arrive. Together with the attack's longest step (a
# quarter of the way to the other class) chosen on held-out training rows of the digits and of MNIST 1 vs 7, SVC and
# exact expansion: of 0.35 to 1.0 and 0.05 to 0.25 these need the fewest restarts and find the nearest points.
DAMPING = 0.7


class Nearest:
    """The nearest adversarial point seen so far, per row of a problem.

    A point counts when its margin is at most ``-depth``: the attack's confidence plus a cushion for rounding.
    """

    def __init__(self, problem: Problem, confidence: float = 0.0) -> None:
        self.problem = problem
        self.depth = confidence + problem.cushion
        self.points = problem.X.copy()
        self.l2 = np.full(len(problem.X), np.inf)

    @property
    def missing(self) -> np.ndarray:
        """Rows without an adversarial point."""
        return np.flatnonzero(np.isinf(self.l2))

    def offer(self, points: np.ndarray, margins: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keep those of `points` that are adversarial and nearer than the best; which ones were kept, (k,) bool."""
        l2 = row_norms(points - self.problem.X[index])
        better = (margins <= -self.depth) & (l2 < self.l2[index])
        kept = index[better]
        self.points[kept], self.l2[kept] = points[better], l2[better]
        return better


def bisect(problem: Problem, nearest: Nearest, ends: np.ndarray, index: np.ndarray, queries: int) -> np.ndarray:
    """Find where the segments from x to adversarial `ends` cross the boundary; costs `queries` per row.

    Returns the adversarial side of the last interval and offers it to `nearest`.
    """
    X = problem.X[index]
    inside, outside = np.zeros(len(index)), np.ones(len(index))
    for _ in range(queries):
        middle = 0.5 * (inside + outside)
        points = X + middle[:, None].astype(X.dtype) * (ends - X)
        margins = problem.margins_at(points, index)
        nearest.offer(points, margins, index)
        crossed = margins <= -nearest.depth
        outside = np.where(crossed, middle, outside)
        inside = np.where(crossed, inside, middle)
    return X + outside[:, None].astype(X.dtype) * (ends - X)


def approach_from_anchors(problem: Problem, nearest: Nearest, index: np.ndarray, count: int, queries: int) -> int:
    """Bisect from each row of `index` to its `count` nearest points of the other class; how many rows had any.

    This is what makes success certain: scores of an RBF model vanish far from the data, but a segment between two
    classes always crosses the boundary.
    """
    reached = 0
    for sign in (-1, 1):
        rows = index[problem.signs[index] == sign]
        if len(rows) == 0 or not problem.anchors.exist(sign):
            continue
        reached += len(rows)
        ends = problem.anchors.nearest(problem.X[rows], sign, count, nearest.depth)
        for k in range(ends.shape[1]):
            margins = problem.margins_at(ends[:, k], rows)
            nearest.offer(ends[:, k], margins, rows)
            hit = margins <= -nearest.depth
            if hit.any():
                bisect(problem, nearest, ends[hit, k], rows[hit], queries)
    return reached


def walk(
    problem: Problem,
    nearest: Nearest,
    starts: np.ndarray,
    index: np.ndarray,
    steps: int,
    reach: np.ndarray,
    patience: int = 4,
) -> None:
    """Step to the nearest point of the linearised adversarial region, again and again.

    From p the model looks like the half-space ``m(p) + g·(z - p) <= -depth``; the point of it (and of the box)
    nearest to x is known in closed form. A row leaves after `patience` steps that did not bring it nearer.

    Parameters
    ----------
    starts : ndarray (k, d)
    index : int ndarray (k,)
    reach : ndarray (k,)
        Longest step in L2: where the gradient almost vanishes the plane lies far outside the data.
    """
    points, reach = starts, reach.astype(starts.dtype)
    stale = np.zeros(len(index), dtype=int)
    for _ in range(steps):
        if len(index) == 0:
            return
        before = nearest.l2[index]
        margins, gradients = problem.margins_and_gradients(points, index)
        nearest.offer(points, margins, index)
        gained = nearest.l2[index] < before * (1.0 - 1e-3)
        stale = np.where(gained | np.isinf(nearest.l2[index]), 0, stale + 1)
        keep = stale < patience
        if not keep.all():
            index, points, margins, gradients = index[keep], points[keep], margins[keep], gradients[keep]
            reach, stale = reach[keep], stale[keep]
        # Aim a little beyond the boundary, or curvature would leave every iterate just short of it.
        aim = nearest.depth + problem.cushion + 0.1 * np.abs(margins) + 1e-5 * problem.margins[index]
        offsets = row_dots(gradients, points) - margins - aim
        goals = nearest_below_plane(problem.X[index], gradients, offsets, problem.box)
        move = goals - points
        length = row_norms(move)
        scale = DAMPING * np.minimum(1.0, reach / np.maximum(length, 1e-30))
        points = points + scale[:, None].astype(points.dtype) * move
    if len(index):
        nearest.offer(points, problem.margins_at(points, index), index)
