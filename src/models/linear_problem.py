"""The free-range adversarial linear SVM (Zhou et al. 2012) as a small convex problem in w, b alone."""

from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor


class Candidate(NamedTuple):
    """A feasible point of the primal problem."""

    weights: np.ndarray
    intercept: float
    objective: float


@dataclass(frozen=True)
class FreeRangeProblem:
    """min ½‖w‖² + C Σ_i [1 - y_i (w·x_i + b) + t_i]_+ with t_i the most an attacker of row i can take from the margin.

    The attacker moves feature j of an attacked row by δ_j in [C_f (low_j - x_j), C_f (high_j - x_j)]. The best move is
    a corner, so with centre = (low + high)/2 and half = (high - low)/2

        y_i (w·x_i + b) - t_i = y_i (w·x̃_i + b) - c_i Σ_j half_j |w_j|,    x̃_i = (1 - c_i) x_i + c_i centre,

    c_i = C_f for attacked rows, else 0: attacked rows shrink towards the centre of the box and pay one weighted L1
    norm, the same for all of them. None of the 2·n·d auxiliary variables of the original formulation remains. With α_i
    in [0, C] (and Σ_i α_i y_i = 0 if there is an intercept), v = Σ_i α_i y_i x̃_i and s = Σ_i c_i α_i, the dual
    objective is Σ_i α_i - ½‖soft(v, s·half)‖², and soft(v, s·half) is w.
    """

    X: Any  # (n, d), an array or a CSR matrix
    signs: np.ndarray
    strength: np.ndarray
    low: np.ndarray
    high: np.ndarray
    C: float
    fit_intercept: bool = True

    @property
    def centre(self) -> np.ndarray:
        return (self.low + self.high) / 2

    @property
    def half(self) -> np.ndarray:
        return (self.high - self.low) / 2

    def project(self, weights: np.ndarray) -> np.ndarray:
        """y_i x̃_i·w, shape (n,)."""
        products = (self.X @ weights.astype(self.X.dtype)).astype(np.float64)
        return self.signs * ((1 - self.strength) * products + self.strength * (self.centre @ weights))

    def combine(self, coefficients: np.ndarray) -> np.ndarray:
        """Σ_i coefficient_i y_i x̃_i for each column, shape (d, k) for coefficients (n, k)."""
        signed = coefficients * self.signs[:, None]
        moved = (signed * (1 - self.strength)[:, None]).astype(self.X.dtype)
        return (self.X.T @ moved).astype(np.float64) + np.outer(self.centre, self.strength @ signed)

    def needed(self, weights: np.ndarray, projected: np.ndarray) -> np.ndarray:
        """What y_i b must reach for row i to be outside the margin after the attack, shape (n,)."""
        return 1 - projected + self.strength * (self.half @ np.abs(weights))

    def primal(self, weights: np.ndarray, projected: np.ndarray) -> Candidate:
        """The objective at w, with the best intercept for it; `projected` is `project(weights)`."""
        needed = self.needed(weights, projected)
        intercept = best_intercept(needed, self.signs) if self.fit_intercept else 0.0
        hinge = np.maximum(needed - self.signs * intercept, 0.0).sum()
        return Candidate(weights, intercept, float(0.5 * weights @ weights + self.C * hinge))

    def dual(self, alpha: np.ndarray) -> tuple[float, np.ndarray]:
        """A lower bound of the optimum and the weights it implies, from any α in [0, C]."""
        positive = self.signs > 0
        parts = np.stack([np.where(positive, alpha, 0.0), np.where(positive, 0.0, alpha)], axis=1)
        if self.fit_intercept:
            # Σ α_i y_i = 0 is met by shrinking one class, which keeps α in its box.
            totals = parts.sum(axis=0)
            parts *= totals.min() / np.maximum(totals, np.finfo(float).tiny)
        v = self.combine(parts).sum(axis=1)
        threshold = (self.strength @ parts.sum(axis=1)) * self.half
        weights = np.sign(v) * np.maximum(np.abs(v) - threshold, 0.0)
        return float(parts.sum() - 0.5 * weights @ weights), weights

    def restrict(self, rows: np.ndarray) -> "FreeRangeProblem":
        """The same problem for some of the rows, in float64."""
        X = self.X[rows].astype(np.float64)
        return replace(self, X=X, signs=self.signs[rows], strength=self.strength[rows])


def best_intercept(needed: np.ndarray, signs: np.ndarray) -> float:
    """The b that minimises Σ_i [needed_i - sign_i b]_+, which is convex and piecewise linear in b."""
    breaks = np.sort(signs * needed)
    # Left of all breaks every positive row is active (slope -1 each); each break passed adds one to the slope.
    flat = int((signs > 0).sum())
    if not 0 < flat < len(breaks):
        return float(breaks[-1] if flat > 0 else breaks[0])
    return float((breaks[flat - 1] + breaks[flat]) / 2)


@dataclass(frozen=True)
class DenseRows:
    """The rows that a solver multiplies by: a matrix of shape (n, d) as it is."""

    rows: Tensor

    @property
    def n_columns(self) -> int:
        return self.rows.shape[1]

    def times(self, W: Tensor) -> Tensor:
        """R W, shape (n, k)."""
        return self.rows @ W

    def transposed_times(self, M: Tensor) -> Tensor:
        """Rᵀ M, shape (d, k)."""
        return self.rows.T @ M

    def gram(self, weights: Tensor | None = None) -> Tensor:
        """Σ_i weight_i r_i r_iᵀ, shape (d, d)."""
        scaled = self.rows if weights is None else self.rows * weights.sqrt()[:, None]
        return scaled.T @ scaled


@dataclass(frozen=True)
class SparsePlusLowRank:
    """A + U Vᵀ: A a CSR matrix of shape (n, d), U of shape (n, r), V of shape (d, r), r small.

    Moving rows towards the centre of a box, centring them or appending columns fills every zero, but in few directions
    only: all products with the result cost what A costs, and sparse rows are never made dense.
    """

    A: Any
    U: np.ndarray
    V: np.ndarray

    @property
    def n_columns(self) -> int:
        return self.A.shape[1]

    def times(self, W: Tensor) -> Tensor:
        """R W, shape (n, k)."""
        return torch.from_numpy(self.A @ W.numpy() + self.U @ (self.V.T @ W.numpy()))

    def transposed_times(self, M: Tensor) -> Tensor:
        """Rᵀ M, shape (d, k)."""
        return torch.from_numpy(self.A.T @ M.numpy() + self.V @ (self.U.T @ M.numpy()))

    def gram(self, weights: Tensor | None = None) -> Tensor:
        """Σ_i weight_i r_i r_iᵀ, shape (d, d)."""
        factors = np.ones(len(self.U), dtype=self.U.dtype) if weights is None else weights.numpy()
        weighted = self.A.multiply(factors[:, None]).tocsr()
        cross = (weighted.T @ self.U) @ self.V.T
        total = (weighted.T @ self.A).toarray() + cross + cross.T
        total += self.V @ (self.U.T @ (factors[:, None] * self.U)) @ self.V.T
        return torch.from_numpy(total)
