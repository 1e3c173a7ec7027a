"""Sums of Gaussians, f(x) = Σ_i w_i exp(-gamma ‖x - z_i‖²) + b, and what rounding takes from them."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from models.certificates.region import Region
from models.certificates.scaling import Scaling
from models.kernels import RBF
from models.rounding import UNIT64, Sum

_ROUND = 64 * UNIT64


class Local(NamedTuple):
    """What is known of f at some points: y·h(x) and y·∇h(x) of the kernel part h, and the errors of both."""

    values: np.ndarray  # (n,)
    gradients: np.ndarray  # (n, d), with respect to the raw features
    slopes: np.ndarray  # (n,), length of the gradient with respect to the scaled features
    value_errors: np.ndarray  # (n,)
    slope_errors: np.ndarray  # (n,)
    distances: np.ndarray | None  # (n, m), lower bounds of ‖x - z_i‖, where float32 errors depend on them


@dataclass(frozen=True)
class Gaussians:
    """f(x) = Σ_i w_i exp(-gamma ‖x - z_i‖²) + b."""

    centers: np.ndarray  # (m, d), float64
    weights: np.ndarray  # (m,), float64
    gamma: float
    intercept: float = 0.0
    # How far the model's own scores may be from f at any point, beyond rounding: what a budget of support vectors has
    # changed, or intercepts that cancel.
    allowance: float = 0.0
    scaling: Scaling | None = None
    single: bool = False  # whether the model scores in float32

    # -- the function --------------------------------------------------------------------------------------------------
    @cached_property
    def squared_lengths(self) -> np.ndarray:
        """‖z_i‖², shape (m,)."""
        return np.einsum("ij,ij->i", self.centers, self.centers)

    @cached_property
    def _terms(self) -> Sum:
        used = int((self.centers != 0).any(0).sum())
        return Sum(self.weights, np.sqrt(self.squared_lengths), self.centers.shape[1], used)

    @cached_property
    def squared_norm(self) -> float:
        """‖h‖² = wᵀKw, from the Gram matrix, at least its true value."""
        total = 0.0
        for start in range(0, len(self.weights), 1024):
            rows = slice(start, start + 1024)
            total += float(self.weights[rows] @ (self.kernel(self.centers[rows]) @ self.weights))
        total = max(total, 0.0)
        norm = np.sqrt(total) + RBF().evaluation_errors(np.zeros(1), self._terms, self.gamma, total).norm
        return float(norm**2 * (1 + _ROUND))

    def kernel(self, X: np.ndarray) -> np.ndarray:
        """exp(-gamma ‖x - z_i‖²), shape (n, m)."""
        squared = self.squared_distances(X)
        squared *= -self.gamma
        return np.exp(squared, out=squared)

    def squared_distances(self, X: np.ndarray) -> np.ndarray:
        """‖x - z_i‖², shape (n, m)."""
        squared = X @ (-2.0 * self.centers.T)
        squared += self.squared_lengths
        squared += np.einsum("ij,ij->i", X, X)[:, None]
        return np.maximum(squared, 0.0, out=squared)

    def at(self, X: np.ndarray, signs: np.ndarray) -> Local:
        """Value and gradient of the kernel part at every row."""
        rows = self.scaled(X)
        weighted = self.kernel(rows) * (signs[:, None] * self.weights)
        values = weighted.sum(1)
        gradients = 2 * self.gamma * (weighted @ self.centers - values[:, None] * rows)
        slopes = np.linalg.norm(gradients, axis=1)
        errors = RBF().evaluation_errors(np.linalg.norm(rows, axis=1), self._terms, self.gamma, 0.0)
        value_errors, slope_errors = errors.score, errors.gradient + _ROUND * slopes
        if self.scaling is not None:
            gradients *= self.scaling.scale
            # First and second derivatives are at most ‖h‖ sqrt(2·gamma) and ‖h‖·2·gamma·sqrt(3).
            off = 2 * np.sqrt(self.squared_norm) * self.scaling.error(X)
            value_errors = value_errors + off * np.sqrt(2 * self.gamma)
            slope_errors = slope_errors + 4 * off * self.gamma
        distances = self._least_distances(X) if self.single else None
        return Local(values, gradients, slopes, value_errors, slope_errors, distances)

    def scaled(self, X: np.ndarray) -> np.ndarray:
        """The features the kernel sees."""
        return X if self.scaling is None else self.scaling(X)

    @property
    def _stretch(self) -> float:
        return 1.0 if self.scaling is None else float(np.abs(self.scaling.scale).max())

    def distances(self, where: Region) -> np.ndarray:
        """How far from each row a point of its region may be for the kernel, shape (n,)."""
        if self.scaling is None:
            return where.radius
        corners = np.linalg.norm(np.maximum(-where.lower, where.upper) * self.scaling.scale, axis=1)
        return np.minimum(self._stretch * where.radius, corners) * (1 + where.X.shape[1] * UNIT64)

    def _least_distances(self, X: np.ndarray) -> np.ndarray:
        """Lower bounds of ‖x - z_i‖, shape (n, m), for the features the kernel sees."""
        rows = self.scaled(X)
        spans = np.square(np.linalg.norm(rows, axis=1) + self._terms.reach)
        lost = 2 * UNIT64 * (rows.shape[1] + 4) * spans[:, None]
        found = np.sqrt(np.maximum(self.squared_distances(rows) - lost, 0.0)) * (1 - _ROUND)
        return found if self.scaling is None else found - self.scaling.error(X)[:, None]

    def required_margins(self, where: Region, distances: np.ndarray | None = None) -> np.ndarray:
        """What sign·f must exceed at the attacked point for its computed score to have that sign, shape (n,).

        `distances` are those of the rows from the centres, where they are known.
        """
        moves = self.distances(where)
        reach = np.linalg.norm(self.scaled(where.X), axis=1) + moves
        errors = RBF().evaluation_errors(reach, self._terms, self.gamma, 0.0, self.intercept)
        # Where all exponentials underflow the computed score is exactly b, whatever the sign of the true sum.
        required_margins = errors.score + self.allowance + np.abs(self.weights).sum() * np.finfo(np.float64).tiny
        if self.scaling is not None:
            # Features that scaling rounded move a score by no more than ‖h‖·sqrt(2·gamma), its Lipschitz constant.
            steepest = np.sqrt(2 * self.gamma * self.squared_norm) * (1 + _ROUND)
            drift = self.scaling.drift(where)
            required_margins, moves = required_margins + 2 * steepest * drift, moves + drift
        if self.single:
            distances = self._least_distances(where.X) if distances is None else distances
            nearest = np.maximum(distances - moves[:, None], 0.0)
            required_margins = required_margins + RBF().float32_errors(nearest, reach, self._terms, self.gamma)
        return required_margins
