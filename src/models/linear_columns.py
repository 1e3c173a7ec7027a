"""`FreeRangeProblem` for many values of C and many subsets of the rows at once, to the accuracy that tuning needs.

The alternating direction method of multipliers (Boyd et al. 2011) on

    min ½‖w‖² + C Σ_i [1 - z_i]_+    with    z_i = y_i (w·x̃_i + b) - c_i θ,    v = w,  t = θ ≥ Σ_j half_j |v_j|.

Every (C, subset) is a column. A column keeps the rows it is not trained on, without a loss: then all columns share the
matrix of the x̃_i, whose Gram matrix is decomposed once, and a step of all of them is two matrix products with the data,
whatever C is. A gradient method would need thousands of steps: the curvature is C·λ_max against the 1 of ½‖w‖².
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

from models.linear_problem import DenseRows, FreeRangeProblem, SparsePlusLowRank, best_intercept

# Steps between two looks at the duality gaps and the penalties, and after how many the penalties stay as they are
# (changing them for ever can keep the method from settling).
_LOOK = 10
_ADAPT = 250
_OVER_RELAXATION = 1.7


class ColumnSolutions(NamedTuple):
    """Weights (d, k), intercepts (k,), and the proven relative duality gaps (k,), all float64."""

    weights: np.ndarray
    intercepts: np.ndarray
    gaps: np.ndarray


def solve_columns(
    problem: FreeRangeProblem,
    Cs: np.ndarray,
    trained: np.ndarray,
    tol: float = 1e-3,
    max_iter: int = 400,
    callback: Callable[[int], None] | None = None,
) -> ColumnSolutions:
    """Minimise ½‖w‖² + C Σ_i [·]_+ over the `trained` rows, (n, k), of each of k columns; the problem's C is not used.

    A column is done at a relative duality gap of `tol`; after `max_iter` steps the best point found is returned, with
    its gap. ``callback(columns done)`` is called every ten steps.
    """
    shared = _Shared(problem)
    weights, intercepts = np.zeros((problem.X.shape[1], len(Cs))), np.zeros(len(Cs))
    best, bound = np.full(len(Cs), np.inf), np.full(len(Cs), -np.inf)
    gaps = np.full(len(Cs), np.inf)
    running = np.arange(len(Cs))
    state = _State(shared, torch.as_tensor(np.asarray(Cs, dtype=np.float64)), torch.as_tensor(trained))
    for step in range(1, max_iter + 1):
        state.advance()
        if step % _LOOK and step < max_iter:
            continue
        w, b, objective = state.primal()
        better = objective < best[running]
        kept = running[better]
        weights[:, kept], intercepts[kept], best[kept] = w[:, better], b[better], objective[better]
        bound[running] = np.maximum(bound[running], state.dual())
        gaps[running] = (best - bound)[running] / np.maximum(best[running], np.finfo(float).tiny)
        unfinished = gaps[running] > tol
        if callback is not None:
            callback(len(Cs) - int(unfinished.sum()))
        if not unfinished.any():
            break
        if not unfinished.all():
            running = running[unfinished]
            state.keep(torch.as_tensor(unfinished))
        if step <= _ADAPT:
            state.balance()
    # The rows were centred, which moved the intercept.
    return ColumnSolutions(weights, intercepts - shared.mean.double().numpy() @ weights, gaps)


class _Shared:
    """What all columns have in common: the moved and centred rows in float32, and their Gram matrix decomposed."""

    rows: DenseRows | SparsePlusLowRank

    def __init__(self, problem: FreeRangeProblem):
        self.fit_intercept = problem.fit_intercept
        self.signs = torch.as_tensor(problem.signs).float()[:, None]
        self.strength = torch.as_tensor(problem.strength).float()[:, None]
        self.half = torch.as_tensor(problem.half).double()[:, None]
        centre = torch.as_tensor(problem.centre).float()
        # Centring is free with an intercept, and takes the largest eigenvalue off.
        if sparse.issparse(problem.X):
            moved = problem.X.multiply(1 - self.strength.numpy()).tocsr().astype(np.float32)
            U = np.concatenate([self.strength.numpy(), np.ones_like(self.strength.numpy())], axis=1)
            mean = np.asarray(moved.mean(axis=0)).ravel() + float(self.strength.mean()) * centre.numpy()
            self.mean = torch.from_numpy(mean.astype(np.float32)) if self.fit_intercept else torch.zeros(len(mean))
            self.rows = SparsePlusLowRank(moved, U, torch.stack([centre, -self.mean], dim=1).numpy())
        else:
            rows = torch.tensor(problem.X, dtype=torch.float32).mul_(1 - self.strength)
            rows.addcmul_(self.strength, centre[None, :])
            self.mean = rows.mean(0) if self.fit_intercept else torch.zeros(rows.shape[1])
            self.rows = DenseRows(rows.sub_(self.mean))
        values, vectors = torch.linalg.eigh(self.rows.gram().double())
        self.values, self.vectors = values.clamp_(min=0.0)[:, None], vectors.float()
        # The column of θ against those of w (in the eigenbasis), of b and itself; b against w is 0 after centring.
        self.theta_w = (self.vectors.T @ self.rows.transposed_times(self.strength * self.signs)).double()
        self.theta_b = float((self.strength * self.signs).sum()) if self.fit_intercept else 0.0
        self.theta_theta = float(self.strength.square().sum())
        # θ is a sum over features; this brings its error to the scale of an error of w.
        self.theta_scale = 1.0 / max(float(self.half.norm()), 1e-6)


class _State:
    """The iterate of all running columns: z, u of shape (n, k) float32; w, v, p of shape (d, k) float64."""

    def __init__(self, shared: _Shared, C: Tensor, trained: Tensor):
        self.shared, self.C = shared, C
        self.trained = trained.float()
        n, k, d = len(trained), len(C), shared.rows.n_columns
        self.z, self.u = torch.zeros(n, k), torch.zeros(n, k)
        self.z_before = self.z
        self.v, self.p, self.w = (torch.zeros(d, k, dtype=torch.float64) for _ in range(3))
        self.t, self.q, self.theta, self.b = (torch.zeros(k, dtype=torch.float64) for _ in range(4))
        self.products = self.margins = self.z
        self.v_before, self.t_before = self.v, self.t
        # A guess between what separable and overlapping classes need; `balance` corrects it.
        self.row_penalty = 0.2 * C
        attacked = float(shared.strength.sum()) * float(shared.half.norm())
        self.cone_penalty = (0.05 * C * attacked).clamp(min=1e-2)

    def advance(self) -> None:
        """One step: the quadratic part exactly, then the hinge and the L1 cone by their projections."""
        self._minimise_quadratic()
        s = self.shared
        # The row part: z_i moves up to the margin, by no more than C / penalty.
        mixed = _OVER_RELAXATION * self.margins + (1 - _OVER_RELAXATION) * self.z + self.u
        lift = torch.minimum((1 - mixed).clamp_(min=0.0), (self.C / self.row_penalty).float()) * self.trained
        self.z_before, self.z, self.u = self.z, mixed + lift, -lift
        # The cone part.
        w = _OVER_RELAXATION * self.w + (1 - _OVER_RELAXATION) * self.v + self.p
        theta = _OVER_RELAXATION * self.theta + (1 - _OVER_RELAXATION) * self.t + self.q
        self.v_before, self.t_before = self.v, self.t
        self.v, self.t = _onto_cone(w, theta, s.half, s.theta_scale)
        self.p, self.q = w - self.v, theta - self.t

    def _minimise_quadratic(self) -> None:
        s, rho, sigma = self.shared, self.row_penalty, self.cone_penalty
        target = self.z - self.u
        signed = s.signs * target
        right = rho * s.rows.transposed_times(signed).double() + sigma * (self.v - self.p)
        right = (s.vectors.T @ right.float()).double()
        right_b = rho * signed.sum(0).double() if s.fit_intercept else torch.zeros_like(rho)
        right_theta = sigma * s.theta_scale * (self.t - self.q) - rho * (s.strength.T @ target)[0].double()
        diagonal = 1 + sigma + rho * s.values
        n = len(self.z)
        pivot = rho * s.theta_theta + sigma * s.theta_scale - rho * s.theta_b**2 / n
        pivot = pivot - rho**2 * (s.theta_w**2 / diagonal).sum(0)
        self.theta = (right_theta + rho * (s.theta_w * right / diagonal).sum(0) + s.theta_b * right_b / n) / pivot
        self.b = (right_b / rho + s.theta_b * self.theta) / n
        self.w = (s.vectors @ ((right + rho * s.theta_w * self.theta) / diagonal).float()).double()
        self.products = s.signs * s.rows.times(self.w.float())
        self.margins = self.products + s.signs * self.b.float() - s.strength * self.theta.float()

    def primal(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """w, the best b for it, and the objective there."""
        s = self.shared
        needed = (1 - self.products + s.strength * (s.half * self.w.abs()).sum(0).float()).double().numpy()
        signs, trained = s.signs[:, 0].double().numpy(), self.trained.numpy() > 0
        intercepts, hinges = np.zeros(len(self.C)), np.zeros(len(self.C))
        for column, rows in enumerate(trained.T):
            if s.fit_intercept:
                intercepts[column] = best_intercept(needed[rows, column], signs[rows])
            hinges[column] = np.maximum(needed[rows, column] - signs[rows] * intercepts[column], 0.0).sum()
        return self.w.numpy(), intercepts, (0.5 * (self.w**2).sum(0) + self.C * torch.as_tensor(hinges)).numpy()

    def dual(self) -> np.ndarray:
        """Lower bounds of the optima, from the multipliers; see `FreeRangeProblem.dual`."""
        s = self.shared
        alpha = -self.row_penalty.float() * self.u
        if s.fit_intercept:
            positive = s.signs > 0
            totals = torch.stack([(alpha * positive).sum(0), (alpha * ~positive).sum(0)])
            shares = totals.amin(0) / totals.clamp(min=torch.finfo(totals.dtype).tiny)
            alpha = alpha * torch.where(positive, shares[0], shares[1])
        v = s.rows.transposed_times(s.signs * alpha).double()
        implied = (v.abs() - s.half * (s.strength.T @ alpha)[0].double()).clamp_(min=0.0)
        return (alpha.double().sum(0) - 0.5 * (implied**2).sum(0)).numpy()

    def balance(self) -> None:
        """Move each penalty to where its constraint and its multiplier settle equally fast, relative to their size."""
        s = self.shared

        def size(w: Tensor, theta: Tensor) -> Tensor:
            return ((w**2).sum(0) + s.theta_scale * theta**2).sqrt()

        broken = (self.margins - self.z).norm(dim=0) / torch.maximum(self.margins.norm(dim=0), self.z.norm(dim=0))
        moving = (self.z - self.z_before).norm(dim=0) / self.u.norm(dim=0)
        factor = _damped(broken.double(), moving.double())
        self.row_penalty = self.row_penalty * factor
        self.u = self.u / factor.float()
        largest = torch.maximum(size(self.w, self.theta), size(self.v, self.t))
        broken = size(self.w - self.v, self.theta - self.t) / largest
        moving = size(self.v - self.v_before, self.t - self.t_before) / size(self.p, self.q)
        factor = _damped(broken, moving)
        self.cone_penalty = self.cone_penalty * factor
        self.p, self.q = self.p / factor, self.q / factor

    def keep(self, columns: Tensor) -> None:
        """Drop the other columns: they are done."""
        for name, value in vars(self).items():
            if isinstance(value, Tensor):
                setattr(self, name, value[..., columns])


def _damped(broken: Tensor, moving: Tensor) -> Tensor:
    """Factor for a penalty: the root of the ratio, at most 5; 1 where the ratio is near 1 or means nothing."""
    factor = (broken / moving).sqrt()
    useful = torch.isfinite(factor) & (factor > 0) & ((factor > 1.3) | (factor < 1 / 1.3))
    return torch.where(useful, factor, torch.ones_like(factor)).clamp_(0.2, 5.0)


def _onto_cone(w: Tensor, theta: Tensor, half: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Nearest (v, t) with t ≥ Σ_j half_j |v_j|, the error of t weighted by `scale`, for each column.

    It is v = soft(w, s·half), t = theta + s / scale for the root s of a convex, decreasing, piecewise linear function,
    or s = 0: Newton's method from 0 never oversteps and ends after as many steps as it meets pieces.
    """
    sizes = w.abs()
    s = torch.zeros_like(theta)
    for _ in range(50):
        left = (sizes - s * half).clamp_(min=0.0)
        excess = (half * left).sum(0) - theta - s / scale
        change = excess.clamp_(min=0.0) / ((half**2 * (left > 0)).sum(0) + 1 / scale)
        s = s + change
        if (change <= 1e-9 * s).all():
            break
    return w.sign() * (sizes - s * half).clamp_(min=0.0), theta + s / scale
