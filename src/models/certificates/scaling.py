"""Per-feature scaling in front of a machine, so that it can be certified in the units of the raw data."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from models.certificates.region import Region
from models.rounding import UNIT64


@dataclass(frozen=True)
class Scaling:
    """x ↦ scale ∘ x + shift, once or several times in a row, in arithmetic of unit roundoff `unit`."""

    steps: Sequence[tuple[np.ndarray, np.ndarray]]  # (scale, shift), both of shape (d,)
    unit: float

    @cached_property
    def scale(self) -> np.ndarray:
        """All steps' scales together, shape (d,)."""
        return np.prod([scale for scale, _ in self.steps], axis=0)

    def __call__(self, X: np.ndarray) -> np.ndarray:
        for scale, shift in self.steps:
            X = X * scale + shift
        return X

    def then(self, other: "Scaling") -> "Scaling":
        """This scaling, and the other one on what comes out of it."""
        return Scaling([*self.steps, *other.steps], max(self.unit, other.unit))

    def drift(self, where: Region) -> np.ndarray:
        """Bound of how far the model's scaled features are from exact ones, anywhere in the regions, shape (n,), L2."""
        return self._rounding(np.abs(where.X) + np.maximum(-where.lower, where.upper), self.unit)

    def error(self, X: np.ndarray) -> np.ndarray:
        """Bound of how far this object's own scaled features are from exact ones, shape (n,), L2."""
        return self._rounding(np.abs(X), UNIT64)

    def _rounding(self, reach: np.ndarray, unit: float) -> np.ndarray:
        error = np.zeros_like(reach)
        for scale, shift in self.steps:
            # A step subtracts and divides, or multiplies and adds: a few units of what enters, on top of what came in.
            reach = reach * np.abs(scale) + np.abs(shift)
            error = error * np.abs(scale) + 8 * unit * reach
        return np.linalg.norm(error, axis=1)


def same_scaling(one: Scaling | None, other: Scaling | None) -> bool:
    """Whether two machines are fed with the same features."""
    if one is None or other is None:
        return one is other
    pairs = zip(one.steps, other.steps)
    return len(one.steps) == len(other.steps) and all(
        np.array_equal(mine, yours) for a, b in pairs for mine, yours in zip(a, b)
    )
