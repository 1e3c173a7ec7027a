"""The attacks inside a run: one, or the members of a suite."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import numpy as np


class NotApplicable(Exception):
    """Raised inside a check that cannot be evaluated; the message says why."""


@dataclass(frozen=True)
class Part:
    """One attack of a run and what it found."""

    name: str
    attack: Any
    result: Any

    @property
    def bounded(self) -> bool:
        """Whether it looks inside a ball; the others look for the nearest adversarial point, however far."""
        return hasattr(self.attack, "epsilon")

    @property
    def capped(self) -> bool:
        """Whether examples beyond an L2 cap were dropped from an unbounded attack's result (``attack.l2_cap``)."""
        return not self.bounded and self.result.epsilon is not None

    @property
    def white_box(self) -> bool:
        """Whether it uses gradients."""
        return bool(getattr(self.attack, "needs_gradients", True))

    @property
    def epsilon(self) -> float:
        """Radius of its ball."""
        return float(self.attack.epsilon)

    @property
    def norm(self) -> str:
        """``linf`` or ``l2``; unbounded attacks measure in L2."""
        return str(getattr(self.attack, "norm", "l2"))

    def changed(self, **settings: Any) -> Any:
        """The same attack with other settings."""
        if not dataclasses.is_dataclass(self.attack) or isinstance(self.attack, type):
            raise NotApplicable(f"{self.name} is no dataclass: it cannot be built again with {', '.join(settings)}")
        return dataclasses.replace(self.attack, **settings)

    def standing(self, cap: float) -> np.ndarray:
        """Positions of the points it did not break: in its ball, or for an unbounded attack within the L2 ``cap``."""
        broken = self.result.success
        if not self.bounded:
            broken = broken & (self.result.distortion_l2 <= cap)
        return np.flatnonzero(~broken)

    @property
    def found(self) -> np.ndarray:
        """Positions of the points it broke itself."""
        return np.flatnonzero(self.result.success & (self.result.distortion_l2 > 0))


def parts_of(attack: Any, result: Any) -> list[Part]:
    """Pair every attack with its result; one with radius 0 or none at all attacks nothing."""
    found = getattr(result, "results", None)
    if not found:
        pairs = [(str(result.attack), attack, result)]
    else:
        members = attack.members()
        pairs = [(name, members[name], found[name]) for name in found]
    return [Part(*pair) for pair in pairs if _attacks(pair[1])]


def _attacks(attack: Any) -> bool:
    return getattr(attack, "name", "") != "none" and float(getattr(attack, "epsilon", 1.0)) > 0
