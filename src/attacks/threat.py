"""What the attacker may do: a norm, a radius and a box."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from .validation import check_box, check_norm

SYMBOLS = {"linf": "L∞", "l2": "L2"}


@dataclass(frozen=True)
class Threat:
    """All points of a box within `epsilon` of the clean one: what an attacked and a certified accuracy share.

    Parameters
    ----------
    norm : {"linf", "l2"}
    epsilon : float
        Radius in `norm`, in the units of the features; ``inf`` for an attack that stops at no distance.
    box : (float, float) or a pair of tuples
        Smallest and largest value of the features, of all or one each.
    unit : str
        What the radius is measured in, where that must be said.
    """

    norm: str
    epsilon: float
    box: tuple[Any, Any] = (0.0, 1.0)
    unit: str = ""

    def __post_init__(self) -> None:
        check_norm(self.norm)
        if not self.epsilon >= 0:
            raise ValueError(f"epsilon must be a number >= 0, got {self.epsilon!r}")
        check_box(self.box)
        object.__setattr__(self, "box", tuple(plain(limit) for limit in self.box))

    @property
    def bounded(self) -> bool:
        """Whether there is a radius at all."""
        return math.isfinite(self.epsilon)

    def at(self, cap: float) -> Threat:
        """The threat a result is read at: this one if it is bounded, else L2 at `cap`."""
        return self if self.bounded else replace(self, norm="l2", epsilon=cap)

    def __str__(self) -> str:
        words = f"{SYMBOLS[self.norm]} {readable(self.epsilon) if self.bounded else 'unbounded'}"
        return f"{words} {self.unit}" if self.unit else words


def plain(limit: Any) -> Any:
    """A number, or a tuple of them: what can be compared and stored."""
    return tuple(np.asarray(limit, dtype=float).tolist()) if np.ndim(limit) else float(limit)


def readable(epsilon: float) -> str:
    """``8/255`` for the radii of 8-bit pixels, four digits for all others."""
    levels = epsilon * 255
    if float(f"{epsilon:.4g}") != epsilon and abs(levels - round(levels)) < 1e-9 and round(levels):
        return f"{round(levels)}/255"
    return f"{epsilon:.4g}"
