"""How fast the iterates approach the optimum of the adversarial objective.

The batch step of Algorithm 1 subtracts γ_t times

    f + C Σ_{b in batch} v_b (ε' f/‖f‖ - y_b k(x_b, ·)),

and a batch of B of the n rows holds each row with chance B/n, so in expectation the sum is B/n times the sum over all
rows: the step is unbiased for the subgradient of

    ½‖f‖² + (C B / n) Σ_i [1 - y_i f(x_i) + ε'‖f‖]_+ .

Its minimiser f_* lies in the span of the k(x_i, ·). With K = L Lᵀ and β = Lᵀa it is a second-order cone program in
n + 1 variables and n slacks, solved here to about 1e-8.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
from omegaconf import DictConfig

from models.distances import pair_distances
from models.expansions import Expansion
from models.kernels import Kernel
from pipeline.data import Dataset
from pipeline.errors import UserError
from pipeline.stages.build import build

_MOST_ROWS = 400
_LADDER = (1 / 4, 1 / 16, 1 / 64, 1 / 256)
_POINTS = 200


@dataclass(frozen=True)
class Optimum:
    """f_* = Σ_i a_i k(x_i, ·), its RKHS norm and the objective at it."""

    points: np.ndarray
    coefficients: np.ndarray
    kernel: Kernel
    gamma: float
    norm: float
    objective: float

    def scores(self, X: np.ndarray) -> np.ndarray:
        """f_*(x), (n,)."""
        return kernel_matrix(self.kernel, X, self.points, self.gamma) @ self.coefficients


def kernel_matrix(kernel: Kernel, A: np.ndarray, B: np.ndarray, gamma: float) -> np.ndarray:
    """k(a, b) for all pairs, float64."""
    return kernel.from_squared_distance_(pair_distances(A, B, kernel.refine_distances), gamma).numpy()


def minimise(
    X: np.ndarray, signs: np.ndarray, kernel: Kernel, *, gamma: float, penalty: float, weight: float
) -> Optimum:
    """Minimise ½‖f‖² + weight Σ_i [1 - y_i f(x_i) + penalty ‖f‖]_+ over the RKHS of the kernel, of width ``gamma``.

    X has at most a few hundred rows, ``signs`` are their labels in {-1, +1}; ``penalty`` is ε', ``weight`` C B / n.
    """
    import cvxpy as cp

    n = len(X)
    values, vectors = np.linalg.eigh(kernel_matrix(kernel, X, X, gamma))
    kept = values > 1e-12 * values[-1]
    root = vectors[:, kept] * np.sqrt(values[kept])
    beta, length, slack = cp.Variable(root.shape[1]), cp.Variable(), cp.Variable(n)
    constraints = [cp.norm(beta) <= length, slack >= 0, slack >= 1 - cp.multiply(signs, root @ beta) + penalty * length]
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(beta) + weight * cp.sum(slack)), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-8, tol_gap_rel=1e-8, tol_feas=1e-8)
    found = np.asarray(beta.value)
    coefficients = vectors[:, kept] @ (found / np.sqrt(values[kept]))
    norm = float(np.linalg.norm(found))
    hinge = np.maximum(0.0, 1 - signs * (root @ found) + penalty * norm)
    return Optimum(X, coefficients, kernel, gamma, norm, 0.5 * norm**2 + weight * float(hinge.sum()))


def check(cfg: DictConfig, y: np.ndarray) -> None:
    """Raise :class:`UserError` unless the optimum for these training labels can be had."""
    if len(np.unique(y)) > 2:
        raise UserError("evaluation.convergence knows the optimum of two classes; choose them, dataset.classes=[A,B]")
    if len(y) > _MOST_ROWS:
        raise UserError(
            f"evaluation.convergence knows the optimum of at most {_MOST_ROWS} training rows, there are {len(y)}: "
            f"set dataset.max_train={_MOST_ROWS}"
        )
    if not Expansion.of(build(cfg.model).expansion).approaches_kernel:
        raise UserError(
            "evaluation.convergence: the iterates of this model.expansion do not approach the kernel's optimum; "
            "take another"
        )


def convergence_curves(
    cfg: DictConfig, data: Dataset, model: Any
) -> tuple[dict[str, list[tuple[int, float]]], dict[str, float]]:
    """Stepped metrics ``squared_error`` (mean over the test points of |f_t(x) - f_*(x)|²) of the run's own model.

    A constant step comes to rest at a distance that shrinks with the step: runs with a constant step add the curves of
    a ladder of smaller ones, ``squared_error_step_<step>``, whose lower envelope is what the theorem speaks of.
    """
    signs = np.where(data.y_train == model.classes_[1], 1.0, -1.0)
    n, batch = len(signs), min(model.batch_size, len(signs))
    kernel, weight = model.expansion_.space.kernel, model.C * batch / n
    penalty = kernel.penalty(model.epsilon, model.gamma_)
    optimum = minimise(data.X_train[:], signs, kernel, gamma=model.gamma_, penalty=penalty, weight=weight)
    goal = optimum.scores(data.X_test)
    curves = {"squared_error": _curve(model, data.X_test, goal)}
    if model.schedule == "constant":
        for factor in _LADDER:
            smaller = build(cfg.model, random_state=cfg.seed).set_params(step=factor * model.step, C=model.C)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                smaller.fit(data.X_train[:], data.y_train)
            curves[f"squared_error_step_{smaller.step:.4g}"] = _curve(smaller, data.X_test, goal)
    metrics = {
        "step": float(model.step),
        "optimum_norm": optimum.norm,
        "optimum_objective": optimum.objective,
        "optimum_mean_square": float(np.mean(goal**2)),
    }
    return curves, metrics


def _curve(model: Any, X: np.ndarray, goal: np.ndarray) -> list[tuple[int, float]]:
    errors = np.mean((np.asarray(model.staged_scores(X)) - goal) ** 2, axis=1)
    last = len(errors)
    # Evenly spaced in log t: what the figure shows, in a few hundred logged values.
    steps = np.unique(np.round(np.geomspace(1, last, min(_POINTS, last))).astype(int))
    return [(int(t), float(f"{errors[t - 1]:.6g}")) for t in steps]
