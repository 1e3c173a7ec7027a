"""Solving one `FreeRangeProblem`: a primal-dual interior-point method on the rows that matter.

The weighted L1 norm is held by t with t ± w ≥ 0 and the scalar θ = half·t, so that a Newton step costs one (d+2)×(d+2)
system diag + u uᵀ/κ + AᵀDA, whatever n is.

A row outside the margin has α = 0 and no effect. Which rows those are is guessed from a small random sample, then
corrected: after each solve the duality gap of the *whole* problem (α = 0 for the rows left out) decides whether to
stop, and otherwise the rows inside the new margin and more of those near it are taken. In the worst case that is all of
them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from threadpoolctl import threadpool_limits

from models.linear_problem import Candidate, DenseRows, FreeRangeProblem, SparsePlusLowRank


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
    callback: Callable[[int, Candidate], None] | None = None,
) -> Solution:
    """Minimise until (objective - lower bound) / objective ≤ `tol`, or `max_iter` Newton steps over all working sets.

    The first working set has `first` rows; ``callback(step, candidate)`` is called after every Newton step.
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
        guess = _from_sample(problem, size, max_iter, on_step)
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
    problem: FreeRangeProblem, size: int, max_iter: int, on_step: Callable[[Candidate], None]
) -> Candidate:
    n = len(problem.signs)
    sample = np.sort(np.random.default_rng(0).choice(n, size, replace=False))
    if len(np.unique(problem.signs[sample])) < 2:
        return Candidate(np.zeros(problem.X.shape[1]), 0.0, np.inf)
    small = replace(problem.restrict(sample), C=problem.C * n / size)
    return interior_point(small, 1e-2, max_iter, callback=on_step).candidate


def _inside_or_near(needed: np.ndarray, size: int) -> np.ndarray:
    """All rows inside the margin and the `size` // 2 nearest outside it, in order."""
    outside = np.flatnonzero(needed <= 0)
    near = outside[np.argsort(-needed[outside], kind="stable")[: size // 2]]
    return np.sort(np.concatenate([np.flatnonzero(needed > 0), near]))


class InteriorPoint(NamedTuple):
    """The best primal point found, the multipliers α of the rows, and a proven lower bound of the optimum."""

    candidate: Candidate
    alpha: np.ndarray
    bound: float


def interior_point(
    problem: FreeRangeProblem, tol: float, max_iter: int, callback: Callable[[Candidate], None] | None = None
) -> InteriorPoint:
    """Newton steps until objective - bound ≤ tol·objective (12 to 25 of them, hardly dependent on the data)."""
    state = _State(problem)
    best, bound = state.measure()
    for _ in range(max_iter):
        if best.objective - bound <= tol * abs(best.objective) or not state.advance():
            break
        candidate, lower = state.measure()
        best = candidate if candidate.objective < best.objective else best
        bound = max(bound, lower)
        if callback is not None:
            callback(best)
    return InteriorPoint(best, state.alpha, bound)


class _State:
    """The iterate: primal (w, b, t, slacks) strictly feasible, multipliers strictly positive."""

    def __init__(self, problem: FreeRangeProblem):
        self.problem = problem
        n, d = problem.X.shape
        half = problem.half
        self.attacked = bool(problem.strength.any() and half.any())
        # A feature whose box has no width leaves t_j without a role and its multipliers at 0; a hint of width keeps the
        # interior open.
        self.half = np.maximum(half, 1e-8 * half.max(initial=0.0))
        self.w, self.b = np.zeros(d), 0.0
        self.projected = np.zeros(n)
        # θ = half·t starts where the attacker's share c·θ is about 1, the scale of the margins.
        scale = max(problem.strength.max(initial=0.0) * self.half.sum(), 1e-3)
        self.t = np.full(d, 1.0 / scale) if self.attacked else np.zeros(d)
        self.alpha = np.full(n, problem.C / 2)
        margins = self._margins()
        self.loss = np.maximum(1 - margins, 0.0) + 1.0
        self.slack = margins + self.loss - 1
        self.upper = self.lower = (problem.strength @ self.alpha) * self.half / 2
        self.block = self._margin_rows()

    def _margin_rows(self) -> DenseRows | SparsePlusLowRank:
        """y_i times the gradient of margin i in (w, b, θ), shape (n, d + 2): the same for every Newton step."""
        p, d = self.problem, len(self.w)
        if sparse.issparse(p.X):
            A = sparse.hstack([p.X.multiply((1 - p.strength)[:, None]), sparse.csr_matrix((len(p.signs), 2))], "csr")
            U = np.stack([p.strength, np.ones(len(p.signs)), -p.signs * p.strength], axis=1)
            V = np.zeros((d + 2, 3))
            V[:d, 0], V[d, 1], V[d + 1, 2] = p.centre, 1.0, 1.0
            return SparsePlusLowRank(A, U, V)
        rows = np.empty((len(p.signs), d + 2))
        np.multiply(p.X, (1 - p.strength)[:, None], out=rows[:, :d])
        rows[:, :d] += np.outer(p.strength, p.centre)
        rows[:, d] = 1.0
        rows[:, d + 1] = -p.signs * p.strength
        return DenseRows(torch.from_numpy(rows))

    def measure(self) -> tuple[Candidate, float]:
        """The better of the primal iterate and of the weights the dual implies, and the dual bound."""
        bound, implied = self.problem.dual(self.alpha)
        here = self.problem.primal(self.w, self.projected)
        there = self.problem.primal(implied, self.problem.project(implied))
        return (there if there.objective < here.objective else here), bound

    def advance(self) -> bool:
        """One predictor-corrector step (Mehrotra 1992); False when rounding stops progress."""
        p = self.problem
        beta = p.C - self.alpha
        down, up = self.t - self.w, self.t + self.w
        complementarity = self.alpha @ self.slack + beta @ self.loss
        count = 2 * len(self.alpha)
        if self.attacked:
            complementarity += self.upper @ down + self.lower @ up
            count += 2 * len(self.t)
        mu = complementarity / count
        system = _NewtonSystem(self, beta, down, up)
        if system.failed:
            return False

        affine = system.direction(0.0, None)
        size = self._largest_step(affine, beta, down, up)
        left = (self.alpha + size * affine.alpha) @ (self.slack + size * affine.slack)
        left += (beta - size * affine.alpha) @ (self.loss + size * affine.loss)
        if self.attacked:
            left += (self.upper + size * affine.upper) @ (down + size * (affine.t - affine.w))
            left += (self.lower + size * affine.lower) @ (up + size * (affine.t + affine.w))
        target = mu * (left / complementarity) ** 3
        step = system.direction(target, affine)
        size = min(1.0, 0.99 * self._largest_step(step, beta, down, up))
        if not np.isfinite(size) or size < 1e-10:
            return False

        for name, change in step._asdict().items():
            setattr(self, name, getattr(self, name) + size * change)
        return True

    def _margins(self) -> np.ndarray:
        return self.projected + self.problem.signs * self.b - self.problem.strength * (self.half @ self.t)

    def _largest_step(self, step: "_Direction", beta: np.ndarray, down: np.ndarray, up: np.ndarray) -> float:
        pairs = [(self.alpha, step.alpha), (beta, -step.alpha), (self.slack, step.slack), (self.loss, step.loss)]
        if self.attacked:
            pairs += [(self.upper, step.upper), (self.lower, step.lower)]
            pairs += [(down, step.t - step.w), (up, step.t + step.w)]
        return min(_distance_to_boundary(value, change) for value, change in pairs)


class _Direction(NamedTuple):
    """A change of what `_State` holds by the same names."""

    w: np.ndarray
    b: float
    t: np.ndarray
    projected: np.ndarray
    alpha: np.ndarray
    slack: np.ndarray
    loss: np.ndarray
    upper: np.ndarray
    lower: np.ndarray


class _NewtonSystem:
    """The linearised optimality conditions at one iterate, reduced to (w, b, θ)."""

    def __init__(self, state: _State, beta: np.ndarray, down: np.ndarray, up: np.ndarray):
        self.state, self.beta, self.down, self.up = state, beta, down, up
        p = state.problem
        self.row_weights = 1 / (state.slack / state.alpha + state.loss / beta)
        d = len(state.w)
        if state.attacked:
            by_down, by_up = state.upper / down, state.lower / up
            self.total, self.tilt = by_down + by_up, by_up - by_down
            self.diagonal = 1 + 4 * by_down * by_up / self.total
            self.kappa = float((state.half**2 / self.total).sum())
            self.u = state.half * self.tilt / self.total
        else:
            self.total, self.tilt, self.diagonal = np.ones(d), np.zeros(d), np.ones(d)
            self.kappa, self.u = 1.0, np.zeros(d)
        v = p.combine(state.alpha[:, None])[:, 0]
        s = p.strength @ state.alpha
        self.residual_w = state.w - v + state.upper - state.lower
        self.residual_b = -float(state.alpha @ p.signs)
        self.residual_t = s * state.half - state.upper - state.lower
        self.failed = not self._factorise()

    def direction(self, target: float, affine: _Direction | None) -> _Direction:
        """Newton direction towards complementarity `target`, with the second-order term of `affine`."""
        state, p = self.state, self.state.problem
        rc_slack = target - state.alpha * state.slack
        rc_loss = target - self.beta * state.loss
        rc_down = target - state.upper * self.down
        rc_up = target - state.lower * self.up
        if affine is not None:
            rc_slack = rc_slack - affine.alpha * affine.slack
            rc_loss = rc_loss + affine.alpha * affine.loss
            rc_down = rc_down - affine.upper * (affine.t - affine.w)
            rc_up = rc_up - affine.lower * (affine.t + affine.w)

        rho = rc_slack / state.alpha - rc_loss / self.beta
        weighted = self.row_weights * rho
        rhs_w = -self.residual_w + p.combine(weighted[:, None])[:, 0]
        rhs_b = -self.residual_b + p.signs @ weighted
        rhs_theta = -(p.strength @ weighted)
        rhs_t = np.zeros_like(state.t)
        if state.attacked:
            rhs_w = rhs_w - rc_down / self.down + rc_up / self.up
            rhs_t = -self.residual_t + rc_down / self.down + rc_up / self.up
            share = state.half @ (rhs_t / self.total)
            rhs_w = rhs_w - self.tilt * rhs_t / self.total + self.u * share / self.kappa
            rhs_theta += share / self.kappa
        rhs = np.concatenate([rhs_w, self.used * [rhs_b, rhs_theta]])
        z = torch.cholesky_solve(torch.from_numpy(rhs)[:, None], self.factor)[:, 0].numpy()
        dw, db, dtheta = z[:-2], float(z[-2]), float(z[-1])

        d_projected = p.project(dw)
        d_margin = d_projected + p.signs * db - p.strength * dtheta
        d_alpha = self.row_weights * (rho - d_margin)
        d_loss = (rc_loss + state.loss * d_alpha) / self.beta
        dt = d_upper = d_lower = np.zeros_like(state.t)
        if state.attacked:
            ds = (share - self.u @ dw - dtheta) / self.kappa
            dt = (rhs_t - self.tilt * dw - state.half * ds) / self.total
            d_upper = (rc_down - state.upper * (dt - dw)) / self.down
            d_lower = (rc_up - state.lower * (dt + dw)) / self.up
        return _Direction(dw, db, dt, d_projected, d_alpha, d_margin + d_loss, d_loss, d_upper, d_lower)

    def _factorise(self) -> bool:
        p, d = self.state.problem, len(self.state.w)
        # torch's products and factorisation take a third of the time of numpy's and scipy's here.
        matrix = self.state.block.gram(torch.from_numpy(self.row_weights)).numpy()
        matrix[np.arange(d), np.arange(d)] += self.diagonal
        if self.state.attacked:
            border = np.concatenate([self.u, [0.0, 1.0]])
            matrix += np.outer(border, border / self.kappa)
        used = np.array([p.fit_intercept, self.state.attacked])
        for index in d + np.flatnonzero(~used):
            # A variable that is not there gets a unit pivot and stays at 0.
            matrix[index] = matrix[:, index] = 0.0
            matrix[index, index] = 1.0
        self.used = used
        matrix[d, d] *= 1 + 1e-13
        matrix[d + 1, d + 1] *= 1 + 1e-13
        self.factor, info = torch.linalg.cholesky_ex(torch.from_numpy(matrix))
        return int(info) == 0


def _distance_to_boundary(value: np.ndarray, change: np.ndarray) -> float:
    shrinking = change < 0
    return float(np.min(value[shrinking] / -change[shrinking], initial=1.0 / 0.99))
