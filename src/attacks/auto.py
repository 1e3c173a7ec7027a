"""A worst case at one radius without settings: gradients with a step size of its own, nearest points, random search."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from attacks.base import FixedEpsilonAttack
from attacks.geometry import row_distances, row_dots
from attacks.min_norm import MinNorm
from attacks.pgd import Feasible, Lowest, random_starts
from attacks.problem import Problem, Records, Request, RunResult
from attacks.result import AttackResult
from attacks.targets import ManyClasses
from models.limits import whole

# Of APGD: share of a point's own step against its momentum, and the share of steps that must have helped.
MOMENTUM, HELPFUL = 0.75, 0.75
# A row whose size was halved once is at rest when so many steps gain less than this share of its fall in margin.
PATIENCE, GAIN = 5, 1e-3
# So is one whose tangent plane in ball and box goes down by less than that, and by less than this share of its margin.
HOPELESS = 0.1
# Share of its queries after which Square gives up on a row, where it is told how far others lowered the margin.
TRIAL = 0.05
# Gradients Auto gives MinNorm: twice as many lowered nothing on training rows of MNIST 1 vs 7, wide and narrow kernels.
NEAREST = 30
# Of Auto, in this order.
STAGES = ("apgd", "min_norm", "apgd_from_min_norm", "apgd_from_random", "square")
# And where there are many classes, after all these.
TARGETED = "apgd_targeted"


@dataclass(frozen=True)
class APGD(FixedEpsilonAttack):
    """Projected gradient descent on the margin with momentum and a step size it halves itself (Croce and Hein 2020).

    The first step goes to where the tangent plane is lowest in ball and box: on a linear model that is the optimum. In
    L2 all others go a share of the way there, too (Frank and Wolfe 1956): steps along the gradient are cut by box and
    ball in turn, and stall off the optimum. Rows leave when they are broken, when their tangent plane promises nothing
    more, and when shorter steps do not lower their margin.

    Parameters
    ----------
    steps : int
    restarts : int
        Runs; those after the first begin at random points of the ball, for rows still standing.
    """

    steps: Annotated[int, whole(1)] = 50
    restarts: Annotated[int, whole(1)] = 2

    name: ClassVar[str] = "apgd"

    def run(self, problem: Problem) -> RunResult:
        lowest = Lowest(problem)
        for restart in range(self.restarts):
            self.descend(lowest, random_starts(problem, self.norm, self.random_state, restart) if restart else None)
            broken = len(problem.X) - len(lowest.standing)
            problem.progress((restart + 1) / self.restarts, broken)
        return RunResult(lowest.points, margins=lowest.margins)

    def descend(self, lowest: Lowest, starts: np.ndarray | None) -> None:
        """One run for the rows still standing, from `starts` (n, d) or from the clean points."""
        problem, index = lowest.problem, lowest.standing
        if len(index) == 0:
            return
        ball = Feasible(problem, self.norm, index)
        points = problem.X[index] if starts is None else ball.project(starts[index])
        at_clean = starts is None
        before = points
        best, best_margins, best_gradients = points.copy(), np.full(len(index), np.inf), np.zeros_like(points)
        shares = np.ones(len(index))  # of a full step
        helped, halved, last_best = np.zeros(len(index)), np.ones(len(index), dtype=bool), best_margins
        age, mark = np.full(len(index), -1), best_margins.copy()  # steps since the mark, from the first halving on
        checkpoints = dict(windows(self.steps))
        for step in range(self.steps + 1):
            if step == self.steps:
                margins = problem.margins_at(points, index)
                lowest.offer(points, margins, index)
                return
            if step == 0 and at_clean:
                margins, gradients = problem.clean_margins_and_gradients(index)
            else:
                margins, gradients = problem.margins_and_gradients(points, index)
            lowest.offer(points, margins, index)
            better = margins < best_margins
            best[better], best_gradients[better] = points[better], gradients[better]
            best_margins = np.where(better, margins, best_margins)
            helped += better
            if step in checkpoints:
                stuck = ~halved & (best_margins >= last_best)
                halved = (helped < HELPFUL * checkpoints[step]) | stuck
                shares[halved] *= 0.5
                first = halved & (age < 0)
                age[first], mark[first] = 0, best_margins[first]
                points, gradients = points.copy(), gradients.copy()
                points[halved], gradients[halved] = best[halved], best_gradients[halved]
                before = np.where(halved[:, None], best, before)
                helped, last_best = np.zeros(len(index)), best_margins.copy()
            due = age == PATIENCE
            little = GAIN * (problem.margins[index] - best_margins)
            # How far below the point its tangent plane gets in ball and box: what steps can still hope for.
            goals = ball.lowest(gradients)
            hope = row_dots(gradients, points - goals)
            stay = ~problem.broken(margins, index) & ((hope > little) | (hope > HOPELESS * best_margins))
            stay &= ~due | (mark - best_margins > little)
            age, mark = np.where(due, 0, age), np.where(due, best_margins, mark)
            age += age >= 0
            if not stay.all():
                index, points, before, gradients, best = (a[stay] for a in (index, points, before, gradients, best))
                best_gradients, best_margins, shares = best_gradients[stay], best_margins[stay], shares[stay]
                helped, halved = helped[stay], halved[stay]
                last_best, age, mark, ball = last_best[stay], age[stay], mark[stay], ball.keep(stay)
                goals = goals[stay]
                if len(index) == 0:
                    return
            if step == 0 and at_clean:
                moved = ball.project(goals)
            else:
                moved = ball.project(self._step(ball, points, goals, gradients, shares))
                if step > 0:
                    moved = ball.project(points + MOMENTUM * (moved - points) + (1.0 - MOMENTUM) * (points - before))
            before, points = points, moved

    def _step(
        self, ball: Feasible, points: np.ndarray, goals: np.ndarray, gradients: np.ndarray, shares: np.ndarray
    ) -> np.ndarray:
        """So large a share of the ball's diameter along the signs, or in L2 of the way to the goal."""
        shares = shares.astype(points.dtype)[:, None]
        if self.norm == "linf":
            # numpy's own sign takes 30 times as long
            return points - 2.0 * ball.radius * shares * torch.from_numpy(gradients).sign().numpy()
        return points + shares * (goals - points)


def windows(steps: int) -> list[tuple[int, int]]:
    """(step, steps since the last one) at which APGD judges its step size: ever closer together, never under 6 %."""
    shares = [0.0, 0.22]
    while shares[-1] < 1.0:
        shares.append(shares[-1] + max(shares[-1] - shares[-2] - 0.03, 0.06))
    places = sorted({int(np.ceil(share * steps)) for share in shares})
    return [(place, place - earlier) for earlier, place in pairwise(places)]


@dataclass(frozen=True)
class Square(FixedEpsilonAttack):
    """Random search with scores alone (after Andriushchenko et al. 2020): sets a share of the features to extremes.

    Every query moves some features to the surface of the ball, with random signs, and keeps what lowers the margin; the
    share shrinks as queries go by. Features are drawn one by one, not in squares: a table has no neighbours.

    Parameters
    ----------
    queries : int
        Per example.
    """

    queries: Annotated[int, whole(1)] = 500

    name: ClassVar[str] = "square"
    needs_gradients: ClassVar[bool] = False

    def run(self, problem: Problem) -> RunResult:
        return self.search(problem)

    def search(self, problem: Problem, bar: np.ndarray | None = None) -> RunResult:
        """The search; after a twentieth of the queries rows leave whose margin is still above `bar`, (n,)."""
        lowest = Lowest(problem)
        d = problem.X.shape[1]
        trial = int(np.ceil(TRIAL * self.queries))
        for query in range(self.queries):
            index = lowest.standing
            if bar is not None and query >= trial:
                index = index[lowest.margins[index] <= bar[index]]
            if len(index) == 0:
                break
            # What is drawn depends on the seed and the query alone: every chunk of rows tries the same.
            rng = np.random.default_rng([self.random_state, 11, query])
            count = d if query == 0 else max(1, round(d * 0.4 * 2.0 ** (-8.0 * query / self.queries)))
            features, signs = rng.permutation(d)[:count], rng.choice([-1.0, 1.0], count)
            points = self._proposal(problem, lowest.points[index], index, features, signs)
            lowest.offer(points, problem.margins_at(points, index), index)
            problem.progress((query + 1) / self.queries, len(problem.X) - len(lowest.standing))
        return RunResult(lowest.points, margins=lowest.margins)

    def _proposal(
        self, problem: Problem, points: np.ndarray, index: np.ndarray, features: np.ndarray, signs: np.ndarray
    ) -> np.ndarray:
        """The points with these features pushed to the ball's surface, as far as the box allows."""
        X = problem.X[index]
        delta = (points - X).astype(np.float64)
        if self.norm == "linf":
            delta[:, features] = problem.radius * signs
        else:
            delta[:, features] = 0.0
            left = np.sqrt(np.maximum(problem.radius**2 - (delta**2).sum(axis=1), 0.0))
            # Half of the length is taken from where it was: nothing is left to spend once the ball is reached.
            share = np.maximum(left, 0.5 * problem.radius) / np.sqrt(len(features))
            delta[:, features] = share[:, None] * signs
        return Feasible(problem, self.norm, index).project((X + delta).astype(X.dtype))


COUNTS = ("queries", "gradient_evaluations")


def merged(result: AttackResult, other: AttackResult, rows: np.ndarray | None = None) -> AttackResult:
    """A result with the examples of another attack on some of its rows where only that one broke them."""
    rows = np.arange(len(result.success)) if rows is None else rows
    taken = other.success & ~result.success[rows]
    changes: dict[str, Any] = {}
    for name in ("examples", "scores", "success", "distortion_l2", "distortion_linf"):
        changes[name] = getattr(result, name).copy()
        changes[name][rows[taken]] = getattr(other, name)[taken]
    for name in COUNTS:
        changes[name] = getattr(result, name).copy()
        changes[name][rows] += getattr(other, name)
    return replace(result, **changes)


@dataclass(frozen=True)
class Auto(FixedEpsilonAttack):
    """The strongest attack at one radius, without settings to choose: the worst case of four, on any margin.

    1. APGD from the clean point, whose first step is the optimum of a linear model.
    2. :class:`MinNorm` in the same norm: what is nearest may lie inside the ball.
    3. APGD from that nearest point pulled into the ball, then from random points.
    4. :class:`Square`, which needs no gradients and so is not misled by them. It goes on for rows whose margin its
       first queries lowered by three quarters of what gradients did: elsewhere these did not mislead.

    Rows that are broken leave. Losses for many classes that AutoAttack uses need three of them; the margin needs two.
    Of many classes each has a valley of its own, and steps from the clean point find the nearest: rows that stand are
    then led by APGD towards every other class in turn.

    Notes
    -----
    ``history``: ``broken_by`` counts the rows each of them broke, in this order.
    """

    name: ClassVar[str] = "auto"
    costly: ClassVar[bool] = True
    begins_at_clean: ClassVar[bool] = True
    _uses_anchors: ClassVar[bool] = True

    def run(self, problem: Problem) -> RunResult:
        lowest = Lowest(problem)
        broken_by = np.zeros(len(problem.X), dtype=np.int64)
        for number, stage in enumerate(self._stages(lowest)):
            before = lowest.standing
            stage()
            broken_by[np.setdiff1d(before, lowest.standing)] = number + 1
            problem.progress((number + 1) / len(STAGES), len(problem.X) - len(lowest.standing))
        return RunResult(lowest.points, {"broken_by": broken_by}, lowest.margins)

    def _stages(self, lowest: Lowest) -> list[Callable[[], None]]:
        """What is tried in turn, in the order of `STAGES`."""
        problem, apgd = lowest.problem, self._member(APGD)
        nearest = problem.X.copy()

        def find_nearest() -> None:
            search = MinNorm(**self._common(), norm=self.norm, gradients=NEAREST, starts=2)
            index, points = self._run(search.run, lowest)
            nearest[index] = points
            self._count(lowest, points, index)

        def search_at_random() -> None:
            bar = (0.25 * problem.margins + 0.75 * lowest.margins)[lowest.standing]
            index, points = self._run(lambda part: self._member(Square).search(part, bar), lowest)
            self._count(lowest, points, index)

        return [
            lambda: apgd.descend(lowest, None),
            find_nearest,
            lambda: apgd.descend(lowest, nearest),
            lambda: apgd.descend(lowest, random_starts(problem, self.norm, self.random_state, 1)),
            search_at_random,
        ]

    def _count(self, lowest: Lowest, points: np.ndarray, index: np.ndarray) -> None:
        """Take those of the points that lie in the ball."""
        inside = row_distances(points - lowest.problem.X[index], self.norm) <= lowest.problem.radius
        if inside.any():
            rows = index[inside]
            lowest.offer(points[inside], lowest.problem.margins_at(points[inside], rows), rows)

    def _common(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("box", "chunk_size", "dtype", "random_state")}

    def _member(self, kind: Any) -> Any:
        return kind(**self._common(), epsilon=self.epsilon, norm=self.norm)

    @staticmethod
    def _run(search: Callable[[Problem], RunResult], lowest: Lowest) -> tuple[np.ndarray, np.ndarray]:
        """Run another attack's search on the rows still standing; those rows and its points."""
        index = lowest.standing
        if len(index) == 0:
            return index, lowest.points[index]
        part = lowest.problem.take(index, progress=lambda fraction, broken: None)
        points = search(part).points
        lowest.problem.charge(index, part)
        return index, points

    def _by_class(self, target: ManyClasses, asked: Request) -> list[AttackResult]:
        results = super()._by_class(target, asked)
        if asked.targets is not None:
            return results
        smaller: AttackResult | None = None
        # As without classes: what is found in a ball lies in every larger one, and what it cost is carried on.
        for k in np.argsort([result.threat.epsilon for result in results], kind="stable"):
            result = results[k] if smaller is None else merged(results[k], smaller)
            smaller = self._towards_each(target, asked.X, asked.y, result)
            led = int(smaller.success.sum() - results[k].success.sum())
            by = smaller.history["broken_by"] | {TARGETED: led}
            smaller = replace(smaller, history=smaller.history | {"broken_by": by})
            spent = {name: getattr(smaller, name) - getattr(results[k], name) for name in COUNTS}
            results[k] = smaller
            smaller = replace(smaller, **spent)
        return results

    def _towards_each(self, target: ManyClasses, X: np.ndarray, y: np.ndarray, result: AttackResult) -> AttackResult:
        """The same result after APGD towards every class that a row standing does not have."""
        apgd = APGD(
            **self._common(), constraints=self.constraints, epsilon=result.threat.epsilon, norm=self.norm, restarts=1
        )
        codes = target.codes(y, "y")
        for code, label in enumerate(target.classes_):
            rows = np.flatnonzero(~result.success & (codes != code))
            if len(rows):
                aims = np.full(len(rows), label)
                (aimed,) = apgd._by_class(target, Request(X[rows], y[rows], targets=aims))
                scores = target.margins(aimed.examples, codes[rows])
                result = merged(result, replace(aimed, scores=scores, success=scores <= 0), rows)
        return result

    def _history(self, search: Records, already: np.ndarray) -> dict[str, Any]:
        by = search.trace["broken_by"]
        return {"broken_by": {name: int((by == number + 1).sum()) for number, name in enumerate(STAGES)}}
