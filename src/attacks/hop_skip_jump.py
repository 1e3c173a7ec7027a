"""HopSkipJump: the nearest misclassified point for those who see labels alone."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np

from attacks.base import MinimumNormAttack
from attacks.boundary import TRIES, Nearest, approach_at_random, approach_from_anchors, bisect
from attacks.geometry import row_norms
from attacks.problem import Problem, RunResult
from models.limits import whole

# Labels asked to find the boundary on a segment, and to find a step that stays on the far side of it.
BISECTIONS, HALVINGS = 12, 8
# Points at once, (points, d): bounds the memory of a round.
MOST = 2**22


@dataclass(frozen=True)
class HopSkipJump(MinimumNormAttack):
    """Walk on the boundary by a gradient made of labels (Chen, Jordan and Wainwright 2020), in L2.

    Around a point of the boundary the labels of random neighbours vote for the direction of the other class; a step
    that way, then a bisection back towards x. Only the sign of the model's answer is used, so `predict` is enough.

    Parameters
    ----------
    max_queries : int
        Labels asked per example.
    votes : int
        Neighbours in the first round; their number grows with the root of the round.
    """

    max_queries: Annotated[int, whole(1)] = 5_000
    votes: Annotated[int, whole(1)] = 100

    name: ClassVar[str] = "hop_skip_jump"
    norm: ClassVar[str] = "l2"
    needs_gradients: ClassVar[bool] = False
    needs_scores: ClassVar[bool] = False

    def run(self, problem: Problem) -> RunResult:
        nearest = Nearest(problem)
        everything = np.arange(len(problem.X))
        if self.max_queries > BISECTIONS:
            approach_from_anchors(problem, nearest, everything, 1, BISECTIONS)
            afford = np.flatnonzero(problem.queries + TRIES + BISECTIONS <= self.max_queries)
            approach_at_random(problem, nearest, afford, BISECTIONS, self.random_state)
        round_ = 0
        while True:
            round_ += 1
            votes = int(self.votes * np.sqrt(round_))
            index = np.flatnonzero(np.isfinite(nearest.distances))
            index = index[problem.queries[index] + votes + HALVINGS + BISECTIONS <= self.max_queries]
            if len(index) == 0:
                return RunResult(nearest.points)
            step = max(1, MOST // (votes * problem.X.shape[1]))
            for start in range(0, len(index), step):
                self._round(problem, nearest, index[start : start + step], round_, votes)
            problem.progress(float(problem.queries.max() / self.max_queries), int(np.isfinite(nearest.distances).sum()))

    def _round(self, problem: Problem, nearest: Nearest, index: np.ndarray, round_: int, votes: int) -> None:
        """Vote on a direction, go as far as labels allow, and come back to the boundary."""
        points, distances = nearest.points[index], nearest.distances[index]
        ways = self._direction(problem, points, distances, index, round_, votes)
        sizes = distances / np.sqrt(round_)
        ends, open_ = points.copy(), np.ones(len(index), dtype=bool)
        for _ in range(HALVINGS):
            rows = np.flatnonzero(open_)
            if len(rows) == 0:
                break
            tried = points[rows] + (sizes[rows, None] * ways[rows]).astype(points.dtype)
            tried = np.clip(tried, *problem.limits(index[rows]))
            beyond = problem.margins_at(tried, index[rows]) <= -nearest.depth
            ends[rows[beyond]] = tried[beyond]
            open_[rows[beyond]] = False
            sizes[rows] *= 0.5
        arrived = ~open_
        if arrived.any():
            bisect(problem, nearest, ends[arrived], index[arrived], BISECTIONS)

    def _direction(
        self, problem: Problem, points: np.ndarray, distances: np.ndarray, index: np.ndarray, round_: int, votes: int
    ) -> np.ndarray:
        """Unit vectors towards the other class, (n, d)."""
        n, d = points.shape
        # What is drawn depends on the seed and the round alone: every chunk of rows asks about the same neighbours.
        noise = np.random.default_rng([self.random_state, 13, round_]).standard_normal((votes, d))
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        radii = np.maximum(distances / d, distances * 2.0 ** (3 - BISECTIONS))
        around = points[:, None] + (radii[:, None, None] * noise).astype(points.dtype)
        rows = np.repeat(index, votes)
        around = np.clip(around.reshape(n * votes, d), *problem.limits(rows))
        labels = np.where(problem.margins_at(around, rows) < 0, 1.0, -1.0).reshape(n, votes)
        moves = (around.reshape(n, votes, d) - points[:, None]) / radii[:, None, None]
        mean = labels.mean(axis=1, keepdims=True)
        weights = np.where(np.abs(mean) == 1.0, labels, labels - mean)
        ways = np.einsum("nv,nvd->nd", weights, moves)
        return ways / np.maximum(row_norms(ways), 1e-30)[:, None]
