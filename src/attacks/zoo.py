"""ZOO: the Carlini-Wagner objective minimised with score queries alone."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np

from attacks.base import MinimumNormAttack
from attacks.boundary import TRIES, Nearest, approach_at_random, approach_from_anchors, bisect, crosses_within, walk
from attacks.carlini_wagner import Adam, ConstantSearch, EarlyAbort
from attacks.geometry import columns_of, row_norms
from attacks.problem import Probing, Problem, RunResult
from models.limits import POSITIVE, at_least, whole, within

# Beyond the c of a linear model, for margins that curve. Of 2, 4, 8 and 16 on held-out training rows of the digits and
# of MNIST 1 vs 7: 4 finds the nearest points on average, and the choice matters little (within 4 %).
HEADROOM = 4.0
# A sweep over a few dozen coordinates is a single step: too little to tell whether ADAM has stalled.
SHORTEST_WINDOW = 20
# Queries to try one point of the other class: its own score, then a dozen bisections.
RESCUE = 13
# Share of the budget the first walk may spend. Rows that come to rest leave earlier; ADAM needs more steps than a small
# budget has.
FIRST_WALK = 0.75
# Share of the work that the walks are, for the progress.
WALKED = 0.8


@dataclass(frozen=True)
class ZOO(MinimumNormAttack):
    """Zeroth-order optimisation by coordinate-wise ADAM (Chen et al. 2017).

    Every step asks for the scores at ``x' ± h e_j`` on a random batch of coordinates j, the same for all rows, and
    moves those coordinates by ADAM, each with its own step count as in the reference code. The attack sees scores only;
    a model that can answer many one-coordinate queries at once (``probe``) just answers faster. The midpoint of a pair
    is the score at x' up to h², so success needs no further queries while it runs.

    As in :class:`CarliniWagner` a walk comes first, to the nearest point of the linearised adversarial region, here on
    gradients made of those differences, one batch of coordinates renewed per step. It is what spares queries: on MNIST
    1 vs 7 the median L2 is that of C&W within 20,000 of them, on the 64 pixels of the digits within 2,000. Where a walk
    comes to rest the distance is stationary on the boundary and ADAM, which is local too, has nothing to add: it
    serves the other rows.

    Parameters
    ----------
    max_queries : int
        Budget of score queries per example: two per coordinate and step, plus bisections.
    coordinates : int
        Coordinates per step (all of them when the data have fewer).
    h : float
        Half the distance of the symmetric difference, in pixel units.
    learning_rate, beta1, beta2 : float
        Of ADAM.
    binary_search_steps : int
        Most rounds over c; each begins at the best point so far.
    steps : int
        Most steps in a round.
    confidence : float
        The margin must be at most ``-confidence``.
    initial_const : float, optional
        First c; None takes four times the c at which a linear model's penalty has its minimum on the boundary,
        ``2 · margin / ‖∇‖²``, from the first batch of coordinates.
    patience : int
        A row leaves the walk when this many sweeps over all coordinates brought it no nearer, and a round of ADAM when
        they did not lower its loss by 1 %.
    sweeps : int
        Most sweeps over all coordinates of the walk; it spends at most three quarters of the budget.
    restarts : int
        How many of the nearest points of the other class are tried, by bisection on the sign of the score, by failures
        and by rows whose walk ended farther away than that.

    Notes
    -----
    ``history``: ``restarted`` counts rows that went on from there, ``out_of_budget`` rows stopped by
    `max_queries`, ``steps`` is the largest number of ADAM steps a row took.
    """

    max_queries: Annotated[int, whole(1)] = 200_000
    coordinates: Annotated[int, whole(1)] = 128
    h: Annotated[float, POSITIVE] = 1e-4
    learning_rate: Annotated[float, POSITIVE] = 0.01
    beta1: Annotated[float, within(0, 1, open_above=True)] = 0.9
    beta2: Annotated[float, within(0, 1, open_above=True)] = 0.999
    binary_search_steps: Annotated[int, whole(1)] = 3
    steps: Annotated[int, whole(1)] = 1000
    confidence: Annotated[float, at_least(0)] = 0.0
    initial_const: Annotated[float | None, POSITIVE] = None
    patience: Annotated[int, whole(1)] = 4
    sweeps: Annotated[int, whole(1)] = 40
    restarts: Annotated[int, whole(0)] = 1

    name: ClassVar[str] = "zoo"
    norm: ClassVar[str] = "l2"
    needs_gradients: ClassVar[bool] = False

    def run(self, problem: Problem) -> RunResult:
        n = len(problem.X)
        nearest = Nearest(problem, self.confidence)
        steps = np.zeros(n, dtype=np.int64)
        self._approach(problem, nearest, problem.X, np.arange(n), share=FIRST_WALK)
        restarted = self._restart(problem, nearest)
        problem.progress(WALKED, n - len(nearest.missing))
        constants = ConstantSearch(np.full(n, np.nan if self.initial_const is None else self.initial_const))
        index = np.flatnonzero(self._affords(problem, np.arange(n)) & ~nearest.settled)
        for round_ in range(self.binary_search_steps):
            if len(index) == 0:
                break
            before = nearest.distances[index]
            succeeded = self._descend(problem, nearest, constants, index, steps, round_)
            constants.update(index, succeeded)
            gained = np.isinf(nearest.distances[index]) | (nearest.distances[index] < 0.99 * before)
            index = index[gained & self._affords(problem, index)]
        self._tighten(problem, nearest)
        trace = {"restarted": restarted, "steps": steps, "out_of_budget": ~self._affords(problem, np.arange(n))}
        return RunResult(nearest.points, trace)

    def _batch(self, problem: Problem) -> int:
        return min(self.coordinates, problem.X.shape[1])

    def _affords(self, problem: Problem, index: np.ndarray) -> np.ndarray:
        """Rows whose budget covers one more step; what a rescue would cost is kept back."""
        return problem.queries[index] + 2 * self._batch(problem) + self.restarts * RESCUE <= self.max_queries

    def _approach(
        self, problem: Problem, nearest: Nearest, starts: np.ndarray, index: np.ndarray, share: float = 1.0
    ) -> None:
        """Walk to the boundary on gradients made of differences, with at most a share of what is left to spend."""
        index = index[self._affords(problem, index)]
        if len(index) == 0:
            return
        gradients = CoordinateGradients(nearest, index, self.h, self._batch(problem), self.random_state)
        sweep = len(gradients.batches)
        left = int(self.max_queries - problem.queries[index].max()) - self.restarts * RESCUE
        steps = min(self.sweeps * sweep, int(share * left) // (2 * self._batch(problem)) - sweep)
        if steps < sweep:
            return
        # The walk's own first question completes the first sweep.
        for _ in range(sweep - 1):
            gradients(starts[index], index)
        reach = 0.25 * problem.anchors.distances(problem.X[index], problem.signs[index])
        walk(problem, nearest, starts[index], index, steps, reach, self.patience * sweep, gradients, rest=sweep)

    def _descend(
        self,
        problem: Problem,
        nearest: Nearest,
        constants: ConstantSearch,
        index: np.ndarray,
        steps: np.ndarray,
        round_: int,
    ) -> np.ndarray:
        """One round; whether each row of `index` was adversarial at some step."""
        d, q = problem.X.shape[1], self._batch(problem)
        known = np.isfinite(nearest.distances[index])
        points = np.where(known[:, None], nearest.points[index], problem.X[index])
        succeeded = np.zeros(len(index), dtype=bool)
        place = np.arange(len(index))
        adam = Adam(points, self.learning_rate, self.beta1, self.beta2)
        window = max(self.patience * -(-d // q), SHORTEST_WINDOW)
        abort = EarlyAbort(nearest.distances[index] ** 2, window, 0.99)
        probe = Probing(problem)
        for step in range(self.steps):
            # The batch depends on the seed and the step alone: every chunk of rows visits the same coordinates.
            rng = np.random.default_rng([self.random_state, round_, step])
            coords = np.sort(rng.choice(d, q, replace=False))
            plus, minus = probe(points, index, coords, self.h)
            steps[index] += 1
            margins = 0.5 * (plus + minus).mean(axis=1)
            nearest.offer(points, margins, index)
            hinge = margins + nearest.depth
            succeeded[place[hinge <= 0]] = True
            slopes = (plus - minus) / (2.0 * self.h)
            moved = points[:, coords]
            delta = moved - problem.X[np.ix_(index, coords)]
            self._first_constants(constants, index, margins, slopes, delta, d)
            c = constants.c[index]
            gradients = (2.0 * delta + np.where(hinge > 0, c, 0.0)[:, None] * slopes).astype(points.dtype)
            stepped = moved - adam.step(gradients, coords)
            lower, upper = problem.limits(index)
            points[:, coords] = np.clip(stepped, columns_of(lower, coords), columns_of(upper, coords))
            losses = row_norms(points - problem.X[index]) ** 2 + c * np.maximum(hinge, 0.0)
            leave = abort.stalled(step, losses) | ~self._affords(problem, index)
            if leave.any():
                stay = ~leave
                index, place, points = index[stay], place[stay], points[stay]
                abort.keep(stay)
                adam.keep(stay)
                probe.keep(stay)
                if len(index) == 0:
                    break
            # Few rows stay for all the steps they may take: what is left to do is a matter of the rows that are.
            waiting = len(index) / len(problem.X) * window / (window + step)
            problem.progress(WALKED + (1.0 - WALKED) * (1.0 - waiting), len(problem.X) - len(nearest.missing))
        return succeeded

    @staticmethod
    def _first_constants(
        constants: ConstantSearch, index: np.ndarray, margins: np.ndarray, slopes: np.ndarray, delta: np.ndarray, d: int
    ) -> None:
        """At x: where a linear model's penalty is least on the boundary. On the boundary: stationarity, 2δ = -c ∇m."""
        unset = np.flatnonzero(np.isnan(constants.c[index]))
        if len(unset) == 0:
            return
        squared = (slopes[unset] ** 2).sum(axis=1) * (d / slopes.shape[1])
        linear = 2.0 * np.maximum(margins[unset], 0.0) / np.maximum(squared, 1e-30)
        away = (delta[unset] ** 2).sum(axis=1, dtype=np.float64)
        stationary = 2.0 * away / np.maximum(np.abs((slopes[unset] * delta[unset]).sum(axis=1)), 1e-30)
        constants.c[index[unset]] = np.clip(HEADROOM * np.where(away > 0, stationary, linear), 1e-3, 1e6)

    def _restart(self, problem: Problem, nearest: Nearest) -> np.ndarray:
        """Walk from where the way to a point of the other class crosses the boundary, if that is nearer; which rows."""
        restarted = np.zeros(len(problem.X), dtype=bool)
        index = np.flatnonzero(problem.queries + 1 + self.restarts * RESCUE <= self.max_queries)
        index = index[self._crosses_nearer(problem, nearest, index)] if self.restarts else index[:0]
        if len(index):
            before = nearest.distances[index]
            approach_from_anchors(problem, nearest, index, self.restarts, queries=RESCUE - 1)
            afford = index[problem.queries[index] + TRIES + RESCUE <= self.max_queries]
            approach_at_random(problem, nearest, afford, RESCUE - 1, self.random_state)
            index = index[nearest.distances[index] < before]
            restarted[index] = True
            nearest.settled[index] = False
            self._approach(problem, nearest, nearest.points.copy(), index, share=0.5)
        return restarted

    def _crosses_nearer(self, problem: Problem, nearest: Nearest, index: np.ndarray) -> np.ndarray:
        """Whether the way to the nearest point of the other class is across the boundary by the distance of the best.

        One query tells, of rows that have a point already; walks that went astray end farther than that.
        """
        nearer = np.isinf(nearest.distances[index])
        known = index[~nearer]
        nearer[~nearer] = crosses_within(problem, nearest, known, nearest.distances[known])
        return nearer

    def _tighten(self, problem: Problem, nearest: Nearest, queries: int = 5) -> None:
        """The segment from x to the best point may cross the boundary earlier; a walk ends a little beyond it."""
        index = np.flatnonzero(np.isfinite(nearest.distances) & (problem.queries + queries <= self.max_queries))
        if len(index):
            bisect(problem, nearest, nearest.points[index], index, queries, first=0.98)

    def _history(self, search: Any, already: np.ndarray) -> dict[str, Any]:
        return {
            "restarted": int(search.trace["restarted"].sum()),
            "out_of_budget": int(search.trace["out_of_budget"].sum()),
            "steps": int(search.trace["steps"].max()),
        }


class CoordinateGradients:
    """Margins and gradients of rows that move, from symmetric differences on one batch of coordinates at a time.

    The slopes along the other coordinates are those last seen. The batches cover all coordinates in turn, in an order
    that depends on the seed alone: every chunk of rows visits the same ones.
    """

    def __init__(self, nearest: Nearest, index: np.ndarray, h: float, batch: int, seed: int) -> None:
        self._nearest, problem = nearest, nearest.problem
        d = problem.X.shape[1]
        order = np.random.default_rng([seed, d]).permutation(d)
        self.batches = [np.sort(order[i : i + batch]) for i in range(0, d, batch)]
        self._turn, self._h = 0, h
        self._slopes = np.zeros_like(problem.X)
        self._index = index
        self._probe = Probing(problem)

    def __call__(self, points: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if len(index) < len(self._index):
            self._probe.keep(np.isin(self._index, index))
        self._index = index
        coords = self.batches[self._turn % len(self.batches)]
        self._turn += 1
        plus, minus = self._probe(points, index, coords, self._h)
        self._slopes[np.ix_(index, coords)] = (plus - minus) / (2.0 * self._h)
        margins = 0.5 * (plus + minus).mean(axis=1)
        broken = len(self._slopes) - len(self._nearest.missing)
        # Most rows come to rest within a dozen sweeps: what is left to do is a matter of those that have not.
        waiting = len(index) / len(self._slopes) / (1.0 + self._turn / (12 * len(self.batches)))
        self._nearest.problem.progress(WALKED * (1.0 - waiting), broken)
        return margins, self._slopes[index]
