"""The form of a sum of Gaussians: the cheapest proof here, the dearer ones from ``minorant``."""

from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import torch

from models.certificates.contest import Prove, Quick
from models.certificates.gaussian_function import Gaussians, Local
from models.certificates.minorant import proves_by_orders, proves_by_parabolas
from models.certificates.places import about_midpoint, is_cell
from models.certificates.region import Region, lowest_linear
from models.certificates.scaling import Scaling
from models.rounding import UNIT32, UNIT64

_ROUND = 64 * UNIT64
# Terms whose Gram matrix is worth forming anew for every point: 128 MiB.
_GRAM_TERMS = 4096


@dataclass(frozen=True)
class GaussianSum(Gaussians):
    """A sum of Gaussians of which it can be proved where it is positive."""

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

    # -- first order ---------------------------------------------------------------------------------------------------
    def first_order(self, local: Local, where: Region, signs: np.ndarray, pieces: int = 12) -> np.ndarray:
        """Lower bound of e^u (sign·f - required_margin) over every region, u = gamma ‖δ‖², shape (n,).

        With R² = ‖h‖² - h(x)² - ‖∇h(x)‖²/(2·gamma) (the remainder of ``radii.sharp_radius``),

            e^u y·f(x+δ) ≥ y·b·e^u + y·h(x) + y·∇h(x)·δ - R sqrt(e^{2u} - 1 - 2u),

        where the linear term is bounded over cell and ball. The range of u is cut into pieces, each term at its worse
        end of a piece, since a positive intercept grows while the others fall.
        """
        offsets = signs * self.intercept - self.required_margins(where, local.distances)
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
