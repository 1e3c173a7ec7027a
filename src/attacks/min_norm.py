"""The nearest misclassified point, in L2 or L∞, within a budget of gradients."""

import math
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from attacks.base import MinimumNormAttack
from attacks.boundary import Nearest, approach_at_random, approach_from_anchors, crosses_within, walk
from attacks.geometry import row_distances, row_norms
from attacks.problem import Problem, Records, RunResult
from models.limits import whole
from models.threat import NORM, Threat

# Gradients a first walk may take. Most rows leave after a dozen; those that need more are better served from elsewhere.
FIRST_WALK = 40
# Bisections on the segment to a point of the other class, before a walk from there.
BISECTIONS = 10
# Share of the steps in a cube after which a row that has no adversarial point yet takes one on the way to other data.
SEARCH = 0.25
# Where only a ball counts (inside another attack): how many radii away a point is not worth going on from.
FAR = 3.0


@dataclass(frozen=True)
class MinNorm(MinimumNormAttack):
    """Walk along the decision boundary to the point nearest to x, from several starts.

    From every point the model is taken for its tangent plane, and the next point is the one of that half-space and of
    the box nearest to x, which has a closed form in both norms (the idea of DeepFool and FAB). On a linear model the
    first step ends in the optimum. What is left of the budget goes into walks that begin where the segments to the
    nearest points of the other class cross the boundary: a curved boundary has many points that are nearest around
    themselves. In L∞ most of it goes into gradient steps inside a cube that shrinks while its point is adversarial and
    grows while it is not (the idea of FMN).

    Parameters
    ----------
    norm : {"l2", "linf"}
        In which the distance is made small.
    gradients : int
        Most gradient evaluations per example.
    starts : int
        How many of the nearest points of the other class are tried.

    Notes
    -----
    ``history``: ``gained_by_starts`` is the share of rows for which a later walk found a nearer point than the first.
    """

    norm: Annotated[str, NORM] = "l2"
    gradients: Annotated[int, whole(1)] = 100
    starts: Annotated[int, whole(0)] = 5

    name: ClassVar[str] = "min_norm"

    def threat(self, l2_cap: float = math.inf) -> Threat:
        return (
            super().threat(l2_cap)
            if math.isfinite(l2_cap)
            else Threat(self.norm, l2_cap, self.box, constraints=self.constraints)
        )

    def run(self, problem: Problem) -> RunResult:
        nearest = Nearest(problem, norm=self.norm)
        everything = np.arange(len(problem.X))
        reach = 0.25 * problem.anchors.distances(problem.X, problem.signs)
        # In L∞ the nearest point of a plane is a corner, and corners change from plane to plane: a walk soon circles.
        share = 1.0 if self.norm == "l2" else 0.3
        walk(problem, nearest, problem.X, everything, min(FIRST_WALK, max(1, int(share * self.gradients))), reach)
        first = nearest.distances.copy()
        if self.norm == "linf":
            rows = everything[~(nearest.distances > FAR * problem.radius)]
            steps = int(self.gradients - problem.gradient_evaluations.max())
            shrink(problem, nearest, rows, steps, 2.0 * reach, self.random_state)
        for start in range(self.starts):
            problem.progress((start + 1) / (self.starts + 1), len(problem.X) - len(nearest.missing))
            self._from_anchor(problem, nearest, start, reach)
        if not np.isfinite(problem.radius):
            found = approach_at_random(problem, nearest, everything, BISECTIONS, self.random_state)
            self._walk_on(problem, nearest, nearest.points, found, reach)
        return RunResult(nearest.points, {"gained": nearest.distances < first * (1.0 - 1e-3)})

    def _from_anchor(self, problem: Problem, nearest: Nearest, start: int, reach: np.ndarray) -> None:
        """A walk for every row from where the way to one more point of the other class crosses the boundary."""
        index = np.flatnonzero((problem.gradient_evaluations < self.gradients) | np.isinf(nearest.distances))
        if np.isfinite(problem.radius):
            index = index[nearest.distances[index] > problem.radius]
            far = np.full(len(index), FAR * problem.radius)
            index = index[crosses_within(problem, nearest, index, far, start)]
        crossing = Nearest(problem, norm=self.norm)
        approach_from_anchors(problem, crossing, index, 1, BISECTIONS, first=start)
        index = index[np.isfinite(crossing.distances[index])]
        nearest.offer(crossing.points[index], np.full(len(index), -np.inf), index)
        self._walk_on(problem, nearest, crossing.points, index, reach)

    def _walk_on(
        self, problem: Problem, nearest: Nearest, starts: np.ndarray, index: np.ndarray, reach: np.ndarray
    ) -> None:
        """Walk from `starts` (n, d) with what is left of the budget of the rows `index`."""
        index = index[problem.gradient_evaluations[index] < self.gradients]
        left = self.gradients - problem.gradient_evaluations[index]
        # In two groups, or the row that has least left would stop all others.
        for rows in (index[left >= FIRST_WALK], index[left < FIRST_WALK]):
            if len(rows):
                steps = int(min(FIRST_WALK, (self.gradients - problem.gradient_evaluations[rows]).min()))
                found = Nearest(problem, norm=self.norm)
                walk(problem, found, starts[rows], rows, steps, reach[rows])
                nearest.offer(found.points[rows], np.where(np.isfinite(found.distances[rows]), -np.inf, np.inf), rows)

    def _history(self, search: Records, already: np.ndarray) -> dict[str, Any]:
        return {"gained_by_starts": float(search.trace["gained"].sum() / max(int((~already).sum()), 1))}


def shrink(problem: Problem, nearest: Nearest, index: np.ndarray, steps: int, sizes: np.ndarray, seed: int) -> None:
    """Gradient steps in a cube around x that closes in on the boundary, from the nearest points so far.

    Parameters
    ----------
    index : int ndarray (k,)
        The rows.
    sizes : ndarray (n,)
        Length in L2 of the first step; the last is a hundredth of it.
    """
    if len(index) == 0:
        return
    X, sizes = problem.X[index], sizes[index]
    points, radius = nearest.points[index], nearest.distances[index]
    for step in range(steps):
        if step == int(SEARCH * steps):
            lost = np.isinf(nearest.distances[index])
            approach_from_anchors(problem, nearest, index[lost], 1, BISECTIONS)
            approach_at_random(problem, nearest, index[lost], BISECTIONS, seed)
            points[lost], radius[lost] = nearest.points[index[lost]], nearest.distances[index[lost]]
        margins, gradients = problem.margins_and_gradients(points, index)
        nearest.offer(points, margins, index)
        share = 0.5 * (1.0 + np.cos(np.pi * step / steps))
        change = 0.001 + 0.049 * share
        # As long as nothing is known: where the tangent plane reaches zero.
        slopes = np.maximum(np.abs(gradients).sum(axis=1, dtype=np.float64), 1e-30)
        ahead = row_distances(points - X, "linf") + np.maximum(margins, 0.0) / slopes
        known = nearest.distances[index]
        wider = np.where(np.isinf(known), ahead, radius * (1.0 + change))
        radius = np.where(margins <= -nearest.depth, np.minimum(radius, known) * (1.0 - change), wider)
        radius = np.minimum(radius, known)
        lengths = sizes * (0.01 + 0.99 * share) / np.maximum(row_norms(gradients), 1e-30)
        cube = radius[:, None].astype(X.dtype)
        points = np.clip(points - (lengths[:, None] * gradients).astype(X.dtype), X - cube, X + cube)
        points = np.clip(points, *problem.limits(index))
    if steps > 0:
        nearest.offer(points, problem.margins_at(points, index), index)
