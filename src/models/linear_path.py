"""Solving `FreeRangeProblem` on many rows: only those inside the margin or near it enter the interior-point method.

A row outside the margin has α = 0 and no effect. Which rows those are is guessed from a small random sample, then
corrected: after each solve the duality gap of the *whole* problem (α = 0 for the rows left out) decides whether to
stop, and otherwise the rows inside the new margin and more of those near it are taken. In the worst case that is all of
them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from models.linear_problem import Candidate, FreeRangeProblem
from models.linear_solver import interior_point


class Solution(NamedTuple):
    """Weights and intercept, the objective there, a proven lower bound of the optimum, Newton steps taken."""

    weights: np.ndarray
    intercept: float
    objective: float
    bound: float
    n_iter: int

    @property
    def gap(self) -> float:
        """Relative duality gap: the objective is at most this fraction of itself above the optimum."""
        return (self.objective - self.bound) / max(abs(self.objective), np.finfo(float).tiny)


# The large products are torch's. Threads of numpy's BLAS, which spin for a while after each of its small ones, would
# take the cores from them: a fit on MNIST 1 vs 7 took 8 s instead of 2.
@threadpool_limits.wrap(limits=1, user_api="blas")
def solve(
    problem: FreeRangeProblem,
    tol: float = 1e-4,
    max_iter: int = 400,
    *,
    first: int = 1000,
    seed: int = 0,
    callback: Callable[[int, Candidate], None] | None = None,
) -> Solution:
    """Minimise to a relative duality gap of `tol`.

    Parameters
    ----------
    problem : FreeRangeProblem
    tol : float
        (objective - lower bound) / objective at which to stop.
    max_iter : int
        Newton steps in total, over all working sets.
    first : int
        Size of the first working set.
    seed : int
        Of the sample that makes the first guess; it affects the time, not the solution.
    callback : callable, optional
        ``callback(step, candidate)`` after every Newton step.
    """
    n = len(problem.signs)
    steps = 0

    def on_step(candidate: Candidate) -> None:
        nonlocal steps
        steps += 1
        if callback is not None:
            callback(steps, candidate)

    # With few rows per dimension a sample says nothing about the margin of the others.
    size = n if n <= max(2 * first, 4 * problem.X.shape[1]) else first
    if size < n:
        guess = _from_sample(problem, size, seed, max_iter, on_step)
    else:
        guess = Candidate(np.zeros(problem.X.shape[1]), 0.0, np.inf)
    # Early working sets only sort the rows: no need to solve them better than their rows are guessed.
    accuracy = 1e-2 if size < n else 0.5 * tol
    best, bound = guess._replace(objective=np.inf), -np.inf
    while True:
        needed = problem.needed(guess.weights, problem.project(guess.weights)) - problem.signs * guess.intercept
        rows = _inside_or_near(needed, size)
        if len(rows) > n // 2:
            rows, accuracy = np.arange(n), 0.5 * tol
        point = interior_point(problem.restrict(rows), accuracy, max_iter - steps, callback=on_step)
        alpha = np.zeros(n)
        alpha[rows] = point.alpha
        lower, _ = problem.dual(alpha)
        guess = problem.primal(point.candidate.weights, problem.project(point.candidate.weights))
        best = guess if guess.objective < best.objective else best
        bound = max(bound, lower)
        solution = Solution(best.weights, best.intercept, best.objective, bound, steps)
        if solution.gap <= tol or len(rows) == n or steps >= max_iter:
            return solution
        size = min(n, int(1.5 * size))
        accuracy = 0.5 * tol if solution.gap < 0.05 else accuracy


def _from_sample(
    problem: FreeRangeProblem, size: int, seed: int, max_iter: int, on_step: Callable[[Candidate], None]
) -> Candidate:
    n = len(problem.signs)
    sample = np.sort(np.random.default_rng(seed).choice(n, size, replace=False))
    if len(np.unique(problem.signs[sample])) < 2:
        return Candidate(np.zeros(problem.X.shape[1]), 0.0, np.inf)
    small = replace(problem.restrict(sample), C=problem.C * n / size)
    return interior_point(small, 1e-2, max_iter, callback=on_step).candidate


def _inside_or_near(needed: np.ndarray, size: int) -> np.ndarray:
    """All rows inside the margin and the `size` // 2 nearest outside it, in order."""
    outside = np.flatnonzero(needed <= 0)
    near = outside[np.argsort(-needed[outside], kind="stable")[: size // 2]]
    return np.sort(np.concatenate([np.flatnonzero(needed > 0), near]))
