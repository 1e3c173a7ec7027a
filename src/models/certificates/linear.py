"""Linear machines: the exact answer in every norm and box."""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from models.certificates.contest import Prove, Quick
from models.certificates.region import Region, lowest_linear
from models.certificates.scaling import Scaling
from models.rounding import UNIT32, UNIT64


@dataclass(frozen=True)
class LinearForm:
    """f(x) = w·x + b."""

    weights: np.ndarray  # (d,)
    intercept: float
    unit: float = UNIT64  # unit roundoff of the arithmetic the model itself scores in
    # Magnitudes that the model's own sum goes through where they are larger than |w| and |b|: of a difference of two
    # scores, or of a kernel sum; and the terms of that sum beyond the d of a dot product.
    mass: np.ndarray | None = None  # (d,)
    constant: float = 0.0
    terms: int = 0
    allowance: float = 0.0  # what else the model's own answer may be off by
    scaling: Scaling | None = None  # what the model does to x first; the weights are those of the scaled features

    stages: ClassVar[tuple[tuple[Prove, int], ...]] = ()

    def minus(self, other: Any) -> "LinearForm | None":
        """The difference as a form of its own; None if it is not one."""
        if not isinstance(other, LinearForm):
            return None
        mass = np.abs(self.weights) + np.abs(other.weights)
        constant, unit = abs(self.intercept) + abs(other.intercept), max(self.unit, other.unit)
        weights, intercept = self.weights - other.weights, self.intercept - other.intercept
        allowance = self.allowance + other.allowance
        return LinearForm(weights, intercept, unit, mass, constant, allowance=allowance, scaling=self.scaling)

    def in_float32(self) -> "LinearForm":
        """The same function, scored in float32."""
        return replace(self, unit=UNIT32)

    def behind(self, scaling: Scaling) -> "LinearForm":
        """The same machine, fed with scaled features."""
        return replace(self, scaling=scaling)

    def quick(self, X: np.ndarray, signs: np.ndarray) -> Quick:
        rows = X if self.scaling is None else self.scaling(X)
        return Quick(signs * (rows @ self.weights + self.intercept), lambda where: self.lower_bounds(where, signs) > 0)

    def lower_bounds(self, where: Region, signs: np.ndarray) -> np.ndarray:
        """Lower bound of sign·f over every region, shape (n,), less what rounding may hide."""
        mass = np.abs(self.weights) if self.mass is None else self.mass
        X, weights = where.X, self.weights
        moves = np.maximum(-where.lower, where.upper)
        drift: np.ndarray | float = 0.0
        if self.scaling is not None:
            X, weights, moves = self.scaling(X), weights * self.scaling.scale, moves * np.abs(self.scaling.scale)
            drift = self.scaling.drift(where) * np.linalg.norm(mass)
        # A dot product of length d is off by at most d units of Σ|x_j w_j|: once for the score computed here, once,
        # in the model's own arithmetic, for the attacked point's.
        reach = np.abs(X) @ mass + abs(self.intercept) + self.constant
        moved = reach + moves @ mass
        lost = (len(mass) + self.terms + 4) * 2 * (UNIT64 * reach + self.unit * moved) + 2 * drift + self.allowance
        slopes = signs[:, None] * weights
        return signs * (X @ self.weights + self.intercept) + lowest_linear(slopes, where) - lost - _TINY


_TINY = float(np.finfo(np.float64).tiny)
