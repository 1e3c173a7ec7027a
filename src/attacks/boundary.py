"""Finding the decision boundary near a clean point: the part minimum-norm attacks share."""

from collections.abc import Callable

import numpy as np

from attacks.geometry import nearest_below_plane, row_distances, row_dots, row_norms
from attacks.problem import Problem

Oracle = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]

# Random points asked about for a row that no known point of the other class leads to.
TRIES = 64


# Full steps overshoot where the boundary curves, short ones do not arrive. Together with the attack's longest step (a
# quarter of the way to the other class) chosen on held-out training rows of the digits and of MNIST 1 vs 7, SVC and
# exact expansion: of 0.35 to 1.0 and 0.05 to 0.25 these need the fewest restarts and find the nearest points.
DAMPING = 0.7
# A step of this share of the distance is none: square to the way back it brings the point nearer by the square of it,
# and what lies along that way is found by bisection. Four times that, and a walk that no longer gains is at rest, too.
STILL = 0.01


class Nearest:
    """The nearest adversarial point seen so far, per row of a problem.

    A point counts when its margin is at most ``-depth``: the attack's confidence plus a tolerance for rounding.
    """

    def __init__(self, problem: Problem, confidence: float = 0.0, norm: str = "l2") -> None:
        self.problem, self.norm = problem, norm
        self.depth = confidence + problem.tolerance
        self.points = problem.X.copy()
        self.distances = np.full(len(problem.X), np.inf)
        self.settled = np.zeros(len(problem.X), dtype=bool)  # rows whose walk came to rest

    @property
    def missing(self) -> np.ndarray:
        """Rows without an adversarial point."""
        return np.flatnonzero(np.isinf(self.distances))

    def offer(self, points: np.ndarray, margins: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keep those of `points` that are adversarial and nearer than the best; which ones were kept, (k,) bool."""
        distances = row_distances(points - self.problem.X[index], self.norm)
        better = (margins <= -self.depth) & (distances < self.distances[index])
        kept = index[better]
        self.points[kept], self.distances[kept] = points[better], distances[better]
        return better


def bisect(
    problem: Problem, nearest: Nearest, ends: np.ndarray, index: np.ndarray, queries: int, first: float = 0.5
) -> np.ndarray:
    """Find where the segments from x to adversarial `ends` cross the boundary; costs `queries` per row.

    Returns the adversarial side of the last interval and offers it to `nearest`. `first` is the share of the way that
    is asked about first: near 1 for ends that lie close to the boundary.
    """
    X = problem.X[index]
    inside, outside = np.zeros(len(index)), np.ones(len(index))
    for number in range(queries):
        middle = 0.5 * (inside + outside) if number else np.full(len(index), first)
        points = X + middle[:, None].astype(X.dtype) * (ends - X)
        margins = problem.margins_at(points, index)
        nearest.offer(points, margins, index)
        crossed = margins <= -nearest.depth
        outside = np.where(crossed, middle, outside)
        inside = np.where(crossed, inside, middle)
    return X + outside[:, None].astype(X.dtype) * (ends - X)


def approach_from_anchors(
    problem: Problem, nearest: Nearest, index: np.ndarray, count: int, queries: int, first: int = 0
) -> int:
    """Bisect from each row of `index` to its nearest points of the other class; how many rows had any.

    Those numbered `first` to ``first + count - 1`` are tried, the nearest is number 0.

    This is what makes success certain: scores of an RBF model vanish far from the data, but a segment between two
    classes always crosses the boundary.
    """
    reached = 0
    for sign, place in problem.by_known_side(index):
        rows = index[place]
        reached += len(rows)
        ends = problem.anchors.nearest(problem.X[rows], sign, first + count, nearest.depth)
        for k in range(first, ends.shape[1]):
            end = np.clip(ends[:, k], *problem.limits(rows))
            margins = problem.margins_at(end, rows)
            nearest.offer(end, margins, rows)
            hit = margins <= -nearest.depth
            if hit.any():
                bisect(problem, nearest, end[hit], rows[hit], queries)
    return reached


def approach_at_random(problem: Problem, nearest: Nearest, index: np.ndarray, queries: int, seed: int) -> np.ndarray:
    """Bisect to those rows of `index` without an adversarial point from random points of their limits; which had luck.

    A point of the other class is of no use where the attacker may change a few of its features only. Every second try
    is a corner: the far ends of the features are where most is gained. A try is one query.
    """
    lost = index = index[np.isinf(nearest.distances[index])]
    for number in range(TRIES):
        if len(index) == 0:
            break
        # What is drawn depends on the seed and the try alone, not on the rows beside.
        draw = np.random.default_rng([seed, 17, number])
        X, (low, high) = problem.X[index], problem.limits(index)
        shares = draw.integers(0, 2, X.shape[1]) if number % 2 == 0 else draw.random(X.shape[1])
        low = np.where(np.isfinite(low), low, X.min(axis=1, keepdims=True) - 1.0)
        high = np.where(np.isfinite(high), high, X.max(axis=1, keepdims=True) + 1.0)
        ends = np.clip(low + shares * (high - low) + np.zeros_like(X), low, high).astype(X.dtype)
        margins = problem.margins_at(ends, index)
        nearest.offer(ends, margins, index)
        hit = margins <= -nearest.depth
        if hit.any():
            bisect(problem, nearest, ends[hit], index[hit], queries)
        index = index[~hit]
    return np.setdiff1d(lost, index)


def crosses_within(
    problem: Problem, nearest: Nearest, index: np.ndarray, reach: np.ndarray, number: int = 0
) -> np.ndarray:
    """Which rows' way to the point `number` of the other class has crossed the boundary by `reach` (k,); one query."""
    crossed = np.zeros(len(index), dtype=bool)
    for sign, place in problem.by_known_side(index):
        rows = index[place]
        ends = problem.anchors.nearest(problem.X[rows], sign, number + 1, nearest.depth)
        if ends.shape[1] > number:
            way = ends[:, number] - problem.X[rows]
            share = np.minimum(reach[place] / np.maximum(row_distances(way, nearest.norm), 1e-30), 1.0)
            points = np.clip(problem.X[rows] + share[:, None].astype(way.dtype) * way, *problem.limits(rows))
            crossed[place] = problem.margins_at(points, rows) <= -nearest.depth
    return crossed


def walk(
    problem: Problem,
    nearest: Nearest,
    starts: np.ndarray,
    index: np.ndarray,
    steps: int,
    reach: np.ndarray,
    patience: int = 4,
    oracle: Oracle | None = None,
    rest: int | None = None,
) -> None:
    """Step to the nearest point of the linearised adversarial region, again and again.

    From p the model looks like the half-space ``m(p) + g·(z - p) <= -depth``; the point of it (and of the box)
    nearest to x is known in closed form. A row leaves after `patience` steps that did not bring it nearer, or where it
    is its own nearest point: there the distance is stationary on the boundary.

    `reach` is the longest step in L2: where the gradient almost vanishes the plane lies far outside the data. `oracle`
    gives margins and gradients, when not the model itself. After `rest` steps in a row of (almost) no length a row has
    come to rest; None goes on until `patience` ends.
    """
    oracle = oracle or problem.margins_and_gradients
    points, reach = starts, reach.astype(starts.dtype)
    stale, still = np.zeros(len(index), dtype=int), np.zeros(len(index), dtype=int)
    for _ in range(steps):
        if len(index) == 0:
            return
        before = nearest.distances[index]
        margins, gradients = oracle(points, index)
        nearest.offer(points, margins, index)
        gained = nearest.distances[index] < before * (1.0 - 1e-3)
        stale = np.where(gained | np.isinf(nearest.distances[index]), 0, stale + 1)
        # Aim a little beyond the boundary, or curvature would leave every iterate just short of it.
        aim = nearest.depth + problem.tolerance + 0.1 * np.abs(margins) + 1e-5 * problem.margins[index]
        offsets = row_dots(gradients, points) - margins - aim
        goals = nearest_below_plane(problem.X[index], gradients, offsets, problem.limits(index), nearest.norm)
        move = goals - points
        length = row_norms(move)
        leave = stale >= patience
        if rest is not None:
            known = np.isfinite(nearest.distances[index])
            still = np.where(known & (length <= STILL * nearest.distances[index]), still + 1, 0)
            leave |= still >= rest
            nearest.settled[index] = leave & known & (length <= 4.0 * STILL * nearest.distances[index])
        if leave.any():
            stay = ~leave
            index, points, move, length = index[stay], points[stay], move[stay], length[stay]
            reach, stale, still = reach[stay], stale[stay], still[stay]
        # In L∞ a walk is short, and each damped step leaves a quarter of the margin: whole steps until one is across.
        whole = np.isinf(nearest.distances[index]) & (nearest.norm == "linf")
        scale = np.where(whole, 1.0, DAMPING) * np.minimum(1.0, reach / np.maximum(length, 1e-30))
        points = points + scale[:, None].astype(points.dtype) * move
    if len(index):
        nearest.offer(points, problem.margins_at(points, index), index)
