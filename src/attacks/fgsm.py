"""The fast gradient sign method: one full step of projected gradient descent."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from .base import FixedEpsilonAttack
from .pgd import Descent, step_history
from .problem import Found, Problem


@dataclass(frozen=True)
class FGSM(FixedEpsilonAttack):
    """One step of length epsilon against the gradient of the margin (Goodfellow et al. 2015).

    Parameters
    ----------
    epsilon : float
        Radius in `norm`, in pixel units.
    norm : {"linf", "l2"}
        The sign of the gradient, or its direction.
    """

    epsilon: float = 8 / 255
    norm: str = "linf"

    name: ClassVar[str] = "fgsm"

    @property
    def begins_at_clean(self) -> bool:
        return True

    def run(self, problem: Problem) -> Found:
        descent = Descent(problem, self.norm, problem.radius, steps=1)
        descent.go(None, share=(0.0, 1.0))
        return descent.found()

    def _history(self, search: Any, already: np.ndarray) -> dict[str, Any]:
        return step_history(search.trace, already, steps=1)


@dataclass(frozen=True)
class NoAttack(FixedEpsilonAttack):
    """Leaves every point where it is: clean accuracy, in the form of a result."""

    epsilon: float = 0.0
    norm: str = "linf"

    name: ClassVar[str] = "none"
    needs_gradients: ClassVar[bool] = False

    def run(self, problem: Problem) -> Found:
        return Found(problem.X, margins=problem.margins)
