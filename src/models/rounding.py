"""What floating-point arithmetic loses when a machine is evaluated: rounding must count in a certificate."""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

UNIT64 = float(np.finfo(np.float64).eps) / 2
UNIT32 = float(np.finfo(np.float32).eps) / 2


class NoCertificate(ValueError):
    """Nothing is proved about such a model: it is refused a radius, never given a wrong one."""


class EvaluationErrors(NamedTuple):
    """Absolute error bounds of scores and gradient norms, shape (n,), and of the RKHS norm."""

    score: np.ndarray
    gradient: np.ndarray
    norm: float


@dataclass(frozen=True)
class Sum:
    """What rounding depends on in Σ_i a_i k(·, s_i)."""

    coefficients: np.ndarray  # (m,), a_i
    lengths: np.ndarray  # (m,), ‖s_i‖₂
    dimension: int  # d
    used: int  # columns that are not 0 in all s_i: no other adds to a product x·s_i, nor to its rounding

    @cached_property
    def reach(self) -> float:
        """The longest s_i."""
        return float(self.lengths.max(initial=0.0))

    @cached_property
    def mass(self) -> float:
        """Σ|a_i|."""
        return float(np.abs(self.coefficients).sum())
