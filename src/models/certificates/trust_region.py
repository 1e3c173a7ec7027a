"""Proofs that a quadratic stays positive on a cell or ball: weak duality proposes, a Cholesky factorisation proves."""

import numpy as np
from scipy.linalg import LinAlgError, blas, cholesky, solve_triangular

_UNIT = np.finfo(np.float64).eps / 2


def stays_positive(
    constant: float, gradient: np.ndarray, matrix: np.ndarray, bends: np.ndarray, cost: float, radius: float
) -> bool:
    """Whether constant + gradient·δ + δᵀMδ > 0 for all ‖δ‖₂ ≤ radius with Σ_j bends_j δ_j² ≤ cost.

    For every μ ≥ 0 with A = M + diag(bends) + μI ⪰ 0 and every vector p,

        gradient·δ + δᵀMδ ≥ (gradient + 2Ap)·δ - pᵀAp - cost - μ·radius²,

    from (δ-p)ᵀA(δ-p) ≥ 0. The best p solves 2Ap = -gradient, and a larger μ helps while ‖p‖ > radius: the dual of the
    trust-region problem. Nothing depends on how p and μ were found.

    Parameters
    ----------
    matrix : array of shape (d, d)
        M; only the lower triangle is read.
    bends : array of shape (d,), not negative
    """
    d, room = len(gradient), constant - cost
    square = radius * radius
    if not (room > 0 and np.isfinite(matrix).all() and np.isfinite(gradient).all()):
        return False
    if square == 0 or not matrix.any():
        return bool(room - float(np.linalg.norm(gradient)) * radius * (1 + d * _UNIT) > 0) if not bends.any() else False
    low, high = 0.0, room / square
    mu = 0.5 * high
    base = matrix + np.diag(bends) if bends.any() else matrix
    diagonal = np.diag_indices(d)
    for _ in range(12):
        shifted = base.copy(order="F")
        shifted[diagonal] += mu
        point = _minimiser(shifted, gradient)
        if point is None:
            low = mu
        else:
            if _proved(shifted, gradient, point, radius) + room - mu * square * (1 + 8 * _UNIT) > 0:
                return True
            length = float(np.linalg.norm(point))
            if length > radius:
                low = mu
            else:
                # A feasible point already too low: no multiplier will do.
                value = float(gradient @ point + point @ blas.dsymv(1.0, base, point, lower=1))
                if value + room <= 0:
                    return False
                high = mu
        if high - low < 0.02 * high:
            return False
        mu = 0.5 * (low + high)
    return False


def _minimiser(matrix: np.ndarray, gradient: np.ndarray) -> np.ndarray | None:
    """-½ A⁻¹ gradient; None if A is not positive definite."""
    try:
        factor = cholesky(matrix, lower=True, check_finite=False)
    except LinAlgError:
        return None
    half = solve_triangular(factor, -0.5 * gradient, lower=True, check_finite=False)
    return solve_triangular(factor, half, lower=True, trans=1, check_finite=False)


def _proved(matrix: np.ndarray, gradient: np.ndarray, point: np.ndarray, radius: float) -> float:
    """Lower bound of gradient·δ + δᵀAδ over ‖δ‖ ≤ radius for a matrix A whose Cholesky factorisation ran through.

    Then λ_min(A) ≥ -2(d+2)u·trace(A) (Rump 2006); the product Ap is off by at most (d+2) units of ‖A‖_F ‖p‖.
    """
    d = len(point)
    below = 2 * (d + 4) * _UNIT * float(np.trace(matrix))
    image = blas.dsymv(1.0, matrix, point, lower=1)
    length = float(np.linalg.norm(point)) * (1 + d * _UNIT)
    lost = 4 * (d + 4) * _UNIT * float(np.linalg.norm(matrix)) * length
    residual = float(np.linalg.norm(gradient + 2 * image)) * (1 + d * _UNIT)
    residual += 2 * lost + 4 * _UNIT * float(np.linalg.norm(gradient))
    bowl = float(point @ image) + lost * length
    return -(residual * radius + bowl + below * (radius + length) ** 2) * (1 + 64 * _UNIT)
