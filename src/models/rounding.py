"""Bounds on what float64 arithmetic loses when a kernel machine is evaluated: rounding must count in a certificate."""

from typing import NamedTuple

import numpy as np

_UNIT = np.finfo(np.float64).eps / 2


class EvaluationErrors(NamedTuple):
    """Absolute error bounds of scores and gradient norms, shape (n,), and of the RKHS norm."""

    score: np.ndarray
    gradient: np.ndarray
    norm: float


def rbf_evaluation_errors(
    X: np.ndarray, points: np.ndarray, coefficients: np.ndarray, gamma: float, squared_norm: float, offset: float = 0.0
) -> EvaluationErrors:
    """Error bounds for h(x) = Σ_i a_i exp(-gamma ‖x - s_i‖²) + offset, evaluated in float64 in the usual way.

    The usual way: squared distances as ‖x‖² + ‖s‖² - 2 x·s clipped at 0, scores k·a, gradients 2·gamma·((k∘a) S - h x),
    and the squared norm aᵀKa. A dot product of length d is off by at most d units of ‖x‖‖s‖; exp(-gamma D) ≤ 1 passes
    on at most gamma times the error of D. All bounds are doubled to cover second-order terms.

    Parameters
    ----------
    X : array of shape (n, d)
    points : array of shape (n_points, d)
    coefficients : array of shape (n_points,)
    gamma : float
    squared_norm : float
        The computed aᵀKa, without the offset.
    offset : float
        Added to the scores.
    """
    n_points, d = points.shape
    reach = np.sqrt(np.einsum("ij,ij->i", points, points).max(initial=0.0))
    lengths = np.sqrt(np.einsum("ij,ij->i", X, X, dtype=np.float64))
    mass = float(np.abs(coefficients).sum())

    def kernel_error(length: np.ndarray) -> np.ndarray:
        return 2 * _UNIT * (gamma * (d + 4) * (length + reach) ** 2 + 4)

    summing = 2 * _UNIT * (n_points + 4)
    score = mass * (kernel_error(lengths) + summing) + 4 * _UNIT * abs(offset)
    spread = 2 * gamma * mass * (lengths + reach)
    gradient = spread * (kernel_error(lengths) + summing + 2 * _UNIT * (d + 4))
    largest = np.sqrt(max(squared_norm, 0.0) + mass**2 * (float(kernel_error(reach)) + 2 * summing))
    return EvaluationErrors(score, gradient, float(largest - np.sqrt(max(squared_norm, 0.0))))
