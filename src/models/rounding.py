"""What floating-point arithmetic loses when a machine is evaluated: rounding must count in a certificate."""

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


class Sum(NamedTuple):
    """What rounding depends on in Σ_i a_i k(·, s_i): the coefficients (n,), the longest s_i and their dimension."""

    coefficients: np.ndarray
    reach: float
    dimension: int

    @property
    def mass(self) -> float:
        """Σ|a_i|."""
        return float(np.abs(self.coefficients).sum())
