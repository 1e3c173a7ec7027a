"""Gradient steps on the margin in an L∞ or an L2 ball: FGSM takes one, PGD many, `NoAttack` none."""

from copy import copy
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from attacks.base import FixedEpsilonAttack
from attacks.geometry import linf_limits, lowest_in_ball, row_norms, rows_of
from attacks.problem import Problem, RunResult
from models.limits import POSITIVE, whole


@dataclass(frozen=True)
class FGSM(FixedEpsilonAttack):
    """One step of length epsilon against the gradient of the margin: its sign, or its direction (Goodfellow 2015)."""

    name: ClassVar[str] = "fgsm"
    begins_at_clean: ClassVar[bool] = True

    def run(self, problem: Problem) -> RunResult:
        descent = Descent(problem, self.norm, problem.radius, steps=1)
        descent.go(None, share=(0.0, 1.0))
        return descent.found()

    def _history(self, search: Any, already: np.ndarray) -> dict[str, Any]:
        return step_history(search.trace, already, steps=1)


@dataclass(frozen=True)
class NoAttack(FixedEpsilonAttack):
    """Leaves every point where it is: clean accuracy, in the form of a result."""

    epsilon: float = 0.0

    name: ClassVar[str] = "none"
    needs_gradients: ClassVar[bool] = False

    def run(self, problem: Problem) -> RunResult:
        return RunResult(problem.X, margins=problem.margins)


@dataclass(frozen=True)
class PGD(FixedEpsilonAttack):
    """Projected gradient descent on the margin y·f(x) (Madry et al. 2018; the paper's settings are the defaults).

    The margin itself is the loss: a hinge has no gradient once the margin exceeds 1 and would mask the attack.
    A row leaves as soon as it is misclassified, and the point of smallest margin is kept: the first K steps of a longer
    run are the K-step run, and more never help the defender.

    Parameters
    ----------
    steps : int
    step_size : float, optional
        Length of a step in `norm`; ``epsilon / 4`` when None.
    random_start : bool
        Begin at a random point of the ball instead of at x.
    restarts : int
        Runs from different starts; those after the first always start at random, and only for rows still standing.

    Notes
    -----
    ``history`` holds ``robust_accuracy_by_step`` (steps + 1 values, the first is clean accuracy; with restarts the
    step counts within a restart), ``last_step_gain`` (share of the fall in margin that came in the last step, over
    rows still standing: far from 0 means the attack had not converged) and ``zero_gradients`` (gradient evaluations
    that returned exactly 0: the sign of a masked or vanished gradient).
    """

    steps: Annotated[int, whole(1)] = 10
    step_size: Annotated[float | None, POSITIVE] = None
    random_start: bool = False
    restarts: Annotated[int, whole(1)] = 1

    name: ClassVar[str] = "pgd"

    @property
    def begins_at_clean(self) -> bool:
        return not self.random_start

    def run(self, problem: Problem) -> RunResult:
        step_size = problem.radius / 4 if self.step_size is None else self.step_size
        descent = Descent(problem, self.norm, step_size, self.steps)
        for restart in range(self.restarts):
            starts = (
                random_starts(problem, self.norm, self.random_state, restart) if restart or self.random_start else None
            )
            descent.go(starts, share=(restart / self.restarts, 1 / self.restarts))
        return descent.found()

    def _history(self, search: Any, already: np.ndarray) -> dict[str, Any]:
        return step_history(search.trace, already, self.steps)


def random_starts(problem: Problem, norm: str, seed: int, restart: int) -> np.ndarray:
    """Uniform points of the ball, (n, d), from a stream per example."""
    n, d = problem.X.shape
    noise = np.empty((n, d))
    radii = np.ones(n)
    for i, row in enumerate(problem.rows):
        rng = np.random.default_rng([seed, restart, int(row)])
        if norm == "linf":
            noise[i] = rng.uniform(-1.0, 1.0, d)
        else:
            noise[i] = rng.standard_normal(d)
            radii[i] = rng.uniform() ** (1.0 / d) / np.linalg.norm(noise[i])
    return problem.X + (problem.radius * radii[:, None] * noise).astype(problem.X.dtype)


class Lowest:
    """The smallest margin seen so far, per row of a problem, and where."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        self.points, self.margins = problem.X.copy(), problem.margins.copy()

    @property
    def standing(self) -> np.ndarray:
        """Rows not broken yet."""
        return np.flatnonzero(~self.problem.broken(self.margins, np.arange(len(self.margins))))

    def offer(self, points: np.ndarray, margins: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Keep those of `points` whose margin is smaller than the best; which ones were kept, (k,) bool."""
        better = margins < self.margins[index]
        self.margins[index[better]] = margins[better]
        self.points[index[better]] = points[better]
        return better


class Descent:
    """Signed or normalised gradient steps for the rows still standing; keeps the smallest margin of each."""

    def __init__(self, problem: Problem, norm: str, step_size: float, steps: int) -> None:
        self.problem, self.norm, self.step_size, self.steps = problem, norm, step_size, steps
        n = len(problem.X)
        self.lowest = Lowest(problem)
        self.broken_at = np.full(n, steps + 1)
        self.zero_gradients = np.zeros(n, dtype=np.int64)
        self.last_gain = np.zeros(n)

    def go(self, starts: np.ndarray | None, share: tuple[float, float]) -> None:
        """Descend from `starts`, or from the clean points, for every row still standing."""
        problem = self.problem
        index = np.flatnonzero(self.broken_at > self.steps)
        if len(index) == 0:
            return
        ball = Feasible(problem, self.norm, index)
        points = problem.X[index] if starts is None else ball.project(starts[index])
        for step in range(self.steps + 1):
            if step == 0 and starts is None:
                margins, gradients = problem.clean_margins_and_gradients(index)
            elif step < self.steps:
                margins, gradients = problem.margins_and_gradients(points, index)
            else:
                margins = problem.margins_at(points, index)
            self.last_gain[index] = np.maximum(self.lowest.margins[index] - margins, 0.0)
            self.lowest.offer(points, margins, index)
            broken = problem.broken(margins, index)
            self.broken_at[index[broken]] = step
            problem.progress(share[0] + share[1] * step / self.steps, int((self.broken_at <= self.steps).sum()))
            if step == self.steps or broken.all():
                break
            if broken.any():
                stay = ~broken
                index, points, gradients, ball = index[stay], points[stay], gradients[stay], ball.keep(stay)
            points = ball.project(points - self._direction(gradients, index))

    def _direction(self, gradients: np.ndarray, index: np.ndarray) -> np.ndarray:
        """A step of the step size along the gradients: their sign, or the gradients at length 1; 0 where they are."""
        if self.norm == "linf":
            signs = torch.from_numpy(gradients).sign()  # numpy's own takes 30 times as long
            self.zero_gradients[index] += (torch.linalg.vector_norm(signs, dim=1) == 0.0).numpy()
            return signs.mul_(self.step_size).numpy()
        norms = row_norms(gradients)
        self.zero_gradients[index] += norms == 0.0
        # Where scores vanish a norm can be so small that float32 does not hold its inverse.
        lengths = np.where(norms == 0.0, 1.0, np.maximum(norms, 1e-36 * self.step_size))
        return gradients * (self.step_size / lengths)[:, None].astype(gradients.dtype)

    def found(self) -> RunResult:
        trace = {
            "broken_at": self.broken_at,
            "zero_gradients": self.zero_gradients,
            "last_gain": np.where(self.broken_at > self.steps, self.last_gain, 0.0),
            "total_gain": np.where(self.broken_at > self.steps, self.problem.margins - self.lowest.margins, 0.0),
        }
        return RunResult(self.lowest.points, trace, self.lowest.margins)


class Feasible:
    """Ball and box around some rows of a problem."""

    def __init__(self, problem: Problem, norm: str, index: np.ndarray) -> None:
        self.X, self.radius, self.box = problem.X[index], problem.radius, problem.limits(index)
        self.limits = linf_limits(self.X, self.radius, self.box) if norm == "linf" else None

    def keep(self, rows: np.ndarray) -> "Feasible":
        """The same ball around some of the rows."""
        kept = copy(self)
        kept.X, kept.box = self.X[rows], (rows_of(self.box[0], rows), rows_of(self.box[1], rows))
        kept.limits = None if self.limits is None else (self.limits[0][rows], self.limits[1][rows])
        return kept

    def lowest(self, gradients: np.ndarray) -> np.ndarray:
        """The points of ball and box where a function with these gradients would be lowest if it were linear."""
        if self.limits is not None:
            return np.where(gradients > 0, self.limits[0], np.where(gradients < 0, self.limits[1], self.X))
        return lowest_in_ball(self.X, gradients, self.radius, self.box)

    def project(self, points: np.ndarray) -> np.ndarray:
        """The points brought back into ball and box."""
        if self.limits is not None:
            lower, upper = (torch.from_numpy(limit) for limit in self.limits)
            return torch.clamp(torch.from_numpy(points), lower, upper).numpy()
        delta = np.clip(points, *self.box) - self.X
        # A hair inside the ball, so that rounding leaves nothing to correct afterwards.
        scale = np.minimum(1.0, self.radius * (1.0 - 1e-6) / np.maximum(row_norms(delta), 1e-30))
        return np.clip(self.X + delta * scale[:, None].astype(self.X.dtype), *self.box)


def step_history(trace: dict[str, np.ndarray], already: np.ndarray, steps: int) -> dict[str, Any]:
    """Accuracy after every step, and the numbers that tell whether the descent worked."""
    broken_at = np.where(already, 0, trace["broken_at"])
    total = float(trace["total_gain"].sum())
    last = float(trace["last_gain"].sum())
    return {
        "robust_accuracy_by_step": np.array([np.mean(broken_at > step) for step in range(steps + 1)]),
        "last_step_gain": last / total if total > 0 else 0.0,
        "zero_gradients": int(trace["zero_gradients"].sum()),
    }
