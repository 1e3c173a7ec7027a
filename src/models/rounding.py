"""What floating-point arithmetic loses when a machine is evaluated: rounding must count in a certificate."""

from typing import NamedTuple

import numpy as np

_UNIT = np.finfo(np.float64).eps / 2
UNIT32 = float(np.finfo(np.float32).eps) / 2


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


def rbf_evaluation_errors(
    lengths: np.ndarray, terms: Sum, gamma: float, squared_norm: float, offset: float = 0.0
) -> EvaluationErrors:
    """Error bounds for h(x) = Σ_i a_i exp(-gamma ‖x - s_i‖²) + offset, evaluated in float64 in the usual way.

    The usual way: squared distances as ‖x‖² + ‖s‖² - 2 x·s clipped at 0, scores k·a, gradients 2·gamma·((k∘a) S - h x),
    and the squared norm aᵀKa. A dot product of length d is off by at most d units of ‖x‖‖s‖; exp(-gamma D) ≤ 1 passes
    on at most gamma times the error of D. All bounds are doubled to cover second-order terms.

    Parameters
    ----------
    lengths : array of shape (n,)
        ‖x‖ of the rows.
    terms : Sum
    gamma : float
    squared_norm : float
        The computed aᵀKa, without the offset.
    offset : float
        Added to the scores.
    """
    reach, d = terms.reach, terms.dimension
    mass = float(np.abs(terms.coefficients).sum())

    def kernel_error(length: np.ndarray | float) -> np.ndarray:
        return 2 * _UNIT * (gamma * (d + 4) * (np.asarray(length) + reach) ** 2 + 4)

    summing = 2 * _UNIT * (len(terms.coefficients) + 4)
    score = mass * (kernel_error(lengths) + summing) + 4 * _UNIT * abs(offset)
    spread = 2 * gamma * mass * (lengths + reach)
    gradient = spread * (kernel_error(lengths) + summing + 2 * _UNIT * (d + 4))
    largest = np.sqrt(max(squared_norm, 0.0) + mass**2 * (float(kernel_error(reach)) + 2 * summing))
    return EvaluationErrors(score, gradient, float(largest - np.sqrt(max(squared_norm, 0.0))))


def float32_kernel_allowance(terms: Sum, gamma: float, norm: float, *, laplacian: bool = False) -> float:
    """How far float32 scores of h(x) = Σ_i a_i k(x, s_i) may be from h, at any x whatever: an allowance, not a proof.

    Rounding errors are taken as independent with mean 0, so that a sum of d of them grows like √d (Higham & Mary 2019);
    the proven bounds, with d and Σ|a_i|, are over 10⁴ times what happens and cost up to a fifth of a typical margin.

    - A squared distance is off by (√d + 4) units of (‖x‖ + ‖s_i‖)². In exp(-gamma r²) that counts gamma times as much.
      With ρ = max‖s_i‖ it is 9·gamma·ρ² for ‖x‖ ≤ 2ρ, and beyond, where r ≥ (‖x‖ + ‖s_i‖) / 3, the kernel has faded:
      9u·e^{-u} < 3.4. In exp(-gamma r) the root passes it on divided by 2r, and pairs with r below 1e2·sqrt(2·unit) of
      their lengths are computed from differences (``kernels.squared_distances``).
    - The part from ‖x‖² is common to all terms and multiplies h, |h| ≤ ‖h‖; the others are independent: ‖a‖₂.
    - Summing n terms whose partial sums are at most Σ|a_i| adds √n units of that, and exp a few of each term.
    """
    coefficients, reach, d = terms
    sensitivity = 3 * gamma * reach / (100 * np.sqrt(UNIT32)) if laplacian else 9 * gamma * reach**2
    distances = (np.sqrt(d) + 4) * max(sensitivity, 3.4) * (float(np.linalg.norm(coefficients)) + norm)
    return UNIT32 * (distances + (np.sqrt(len(coefficients)) + 8) * float(np.abs(coefficients).sum()))
