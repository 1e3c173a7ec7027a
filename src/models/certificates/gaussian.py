"""Sums of Gaussians, f(x) = Σ_i w_i exp(-gamma ‖x - z_i‖²) + b: what all their certificates share, and the cheapest."""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import torch

from models.certificates.api import Prove, Quick
from models.certificates.places import about_midpoint, is_cell
from models.certificates.region import Region, lowest_linear
from models.certificates.scaling import Scaling
from models.kernels import RBF
from models.rounding import UNIT32, UNIT64, Sum

_ROUND = 64 * UNIT64
# Terms whose Gram matrix is worth forming anew for every point: 128 MiB.
_GRAM_TERMS = 4096


class Local(NamedTuple):
    """What is known of f at some points: y·h(x) and y·∇h(x) of the kernel part h, and the errors of both."""

    values: np.ndarray  # (n,)
    gradients: np.ndarray  # (n, d), with respect to the raw features
    slopes: np.ndarray  # (n,), length of the gradient with respect to the scaled features
    value_errors: np.ndarray  # (n,)
    slope_errors: np.ndarray  # (n,)
    distances: np.ndarray | None  # (n, m), lower bounds of ‖x - z_i‖, where float32 errors depend on them


@dataclass(frozen=True)
class GaussianSum:
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

    @classmethod
    def of(cls, expansion: Any, offset: float, squared_norm: float) -> "GaussianSum":
        """An exact expansion of one column, plus a number."""
        vectors, coefficients = expansion.live()
        gamma, single = expansion.space.gammas[0], expansion.space.dtype != torch.float64
        form = cls(vectors.double().numpy(), coefficients[:, 0].numpy(), gamma, offset, single=single)
        return replace(form, allowance=expansion.projection_error)

    def in_float32(self) -> "GaussianSum":
        """The same function, scored in float32."""
        return replace(self, single=True, allowance=self.allowance + 2 * UNIT32 * abs(self.intercept))

    def minus(self, other: Any) -> "GaussianSum | None":
        """The difference as a form of its own; None if it is not one."""
        if not isinstance(other, GaussianSum) or self.gamma != other.gamma:
            return None
        centers = np.concatenate([self.centers, other.centers])
        weights = np.concatenate([self.weights, -other.weights])
        # Two intercepts that cancel leave the rounding of the larger.
        cancelled = 8 * UNIT64 * (abs(self.intercept) + abs(other.intercept))
        allowance = self.allowance + other.allowance + cancelled
        intercept, single = self.intercept - other.intercept, self.single or other.single
        return GaussianSum(centers, weights, self.gamma, intercept, allowance, self.scaling, single)

    def behind(self, scaling: Scaling) -> "GaussianSum":
        """The same machine, fed with scaled features."""
        return replace(self, scaling=scaling)

    @property
    def stages(self) -> tuple[tuple[Prove, int], ...]:
        # Imported here: the dearer proofs are written in terms of this class.
        from models.certificates.minorant import proves_by_orders, proves_by_parabolas

        found: list[tuple[Prove, int]] = [(self.proves_about_midpoint, 1024), (partial(proves_by_parabolas, self), 1)]
        if len(self.weights) <= _GRAM_TERMS:
            found.append((partial(proves_by_orders, self), 1))
        return tuple(found)

    def quick(self, X: np.ndarray, signs: np.ndarray) -> Quick:
        """The first-order proof."""
        local = self.at(X, signs)
        return Quick(local.values + signs * self.intercept, lambda where: self.first_order(local, where, signs) > 0)

    def proves_about_midpoint(self, where: Region, signs: np.ndarray) -> np.ndarray:
        """The first-order proof about the midpoints of cells; a midpoint of its own is nothing new."""
        asked = is_cell(where) & (where.lower != -where.upper).any(1)
        proved = np.zeros(len(where), dtype=bool)
        if asked.any():
            moved = about_midpoint(where.take(asked))
            proved[asked] = self.first_order(self.at(moved.X, signs[asked]), moved, signs[asked]) > 0
        return proved

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

    def demands(self, where: Region, distances: np.ndarray | None = None) -> np.ndarray:
        """What sign·f must exceed at the attacked point for its computed score to have that sign, shape (n,).

        `distances` are those of the rows from the centres, where they are known.
        """
        moves = self.distances(where)
        reach = np.linalg.norm(self.scaled(where.X), axis=1) + moves
        errors = RBF().evaluation_errors(reach, self._terms, self.gamma, 0.0, self.intercept)
        # Where all exponentials underflow the computed score is exactly b, whatever the sign of the true sum.
        demands = errors.score + self.allowance + np.abs(self.weights).sum() * np.finfo(np.float64).tiny
        if self.scaling is not None:
            # Features that scaling rounded move a score by no more than ‖h‖·sqrt(2·gamma), its Lipschitz constant.
            steepest = np.sqrt(2 * self.gamma * self.squared_norm) * (1 + _ROUND)
            drift = self.scaling.drift(where)
            demands, moves = demands + 2 * steepest * drift, moves + drift
        if self.single:
            distances = self._least_distances(where.X) if distances is None else distances
            nearest = np.maximum(distances - moves[:, None], 0.0)
            demands = demands + RBF().float32_errors(nearest, reach, self._terms, self.gamma)
        return demands

    # -- first order ---------------------------------------------------------------------------------------------------
    def first_order(self, local: Local, where: Region, signs: np.ndarray, pieces: int = 12) -> np.ndarray:
        """Lower bound of e^u (sign·f - demand) over every region, u = gamma ‖δ‖², shape (n,).

        With R² = ‖h‖² - h(x)² - ‖∇h(x)‖²/(2·gamma) (the remainder of ``radii.sharp_radius``),

            e^u y·f(x+δ) ≥ y·b·e^u + y·h(x) + y·∇h(x)·δ - R sqrt(e^{2u} - 1 - 2u),

        where the linear term is bounded over cell and ball. The range of u is cut into pieces, each term at its worse
        end of a piece, since a positive intercept grows while the others fall.
        """
        offsets = signs * self.intercept - self.demands(where, local.distances)
        largest = self.gamma * self.distances(where) ** 2 * (1 + _ROUND)
        slopes = np.maximum(local.slopes - local.slope_errors, 0.0)
        value = np.maximum(np.abs(local.values) - local.value_errors, 0.0)
        rest = np.sqrt(np.maximum(self.squared_norm - (value**2 + slopes**2 / (2 * self.gamma)) * (1 - _ROUND), 0.0))
        linear = lowest_linear(local.gradients, where) - self._stretch * local.slope_errors * where.radius
        steepest = local.slopes + local.slope_errors
        lowest = np.full(len(where), np.inf)
        with np.errstate(over="ignore", invalid="ignore"):
            for piece in range(pieces):
                begin, end = largest * (piece / pieces) ** 2, largest * ((piece + 1) / pieces) ** 2
                offset = np.where(offsets > 0, offsets * np.exp(begin), offsets * np.exp(end))
                sloped = np.maximum(linear, -steepest * np.sqrt(end / self.gamma) * (1 + _ROUND))
                # e^{2u} - 1 - 2u = e^{2u} P(2, 2u), as in ``radii``; the series where subtraction would cancel.
                unknown = rest * np.sqrt(_beyond_linear(2 * end))
                total = offset + local.values - local.value_errors + sloped - unknown
                lowest = np.minimum(lowest, total - _ROUND * (np.abs(offset) + np.abs(local.values) - sloped + unknown))
        # A NaN (an infinite norm or weight) compares as not positive.
        return np.where(np.isfinite(rest), lowest, -np.inf)


def _beyond_linear(v: np.ndarray) -> np.ndarray:
    """e^v - 1 - v for v ≥ 0, rounded up."""
    series = v * v * (0.5 + v * (1 / 6 + v * (1 / 24 + v * (1 / 120 + v / 720))))
    return np.where(v < 1e-2, series * (1 + 1e-12), (np.expm1(v) - v) * (1 + 1e-11))
