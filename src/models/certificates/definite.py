"""A rigorous bound on the curvature of a random-feature machine, for the second-order certificate."""

from collections.abc import Iterable

import numpy as np
from scipy.linalg import LinAlgError, cholesky
from scipy.sparse.linalg import ArpackError, eigsh

from models.rounding import UNIT64


def curvature_bound(omega: np.ndarray, weights: np.ndarray) -> float:
    """Upper bound of ‖∇²f(x)‖₂ over all x, for f(x) = Σ_k a_k cos(ω_k·x + b_k).

    The Hessian is -Σ_k a_k cos(·) ω_k ω_kᵀ, and |cos| ≤ 1, so ±∇²f ≼ Σ_k |a_k| ω_k ω_kᵀ, whose largest eigenvalue is
    bounded here.

    Parameters
    ----------
    omega : array of shape (n_features, d)
        One frequency per row.
    weights : array of shape (n_features,)
        Amplitudes a_k, with every factor such as sqrt(2/m) included. For a cos/sin pair a·cos + b·sin the amplitude is
        hypot(a, b).
    """
    return curvature_bound_of_blocks([(omega, weights)])


def curvature_bound_of_blocks(blocks: Iterable[tuple[np.ndarray, np.ndarray]]) -> float:
    """The same for features that come in blocks (omega, weights), so that no more than one block is in memory."""
    matrix: np.ndarray | None = None
    terms = 0
    for omega, weights in blocks:
        amplitude = np.sqrt(np.abs(np.asarray(weights, dtype=np.float64)))
        scaled = np.asarray(omega, dtype=np.float64) * amplitude[:, None]
        matrix = scaled.T @ scaled if matrix is None else matrix + scaled.T @ scaled
        terms += len(amplitude)
    if matrix is None:
        return 0.0
    # Entry ij is off by at most (terms + 4) units of Σ_k |a_k||ω_ki||ω_kj|, a matrix whose norm is at most the trace.
    summing_error = 2 * (terms + 4) * UNIT64 * float(np.trace(matrix))
    return largest_eigenvalue_bound(matrix) + summing_error


def largest_eigenvalue_bound(matrix: np.ndarray) -> float:
    """Rigorous upper bound of λ_max of a symmetric positive semidefinite matrix, within about 1e-6 relative of it.

    Lanczos guesses, Cholesky proves: if the floating-point factorisation of A = bound·I - matrix runs through, then
    λ_min(A) ≥ -2(d+2)u·trace(A) (Rump 2006).
    """
    matrix = np.asarray(matrix, dtype=np.float64)
    d = matrix.shape[0]
    if not np.isfinite(matrix).all():
        return float("inf")
    trace = float(np.trace(matrix))
    if trace == 0.0:
        return 0.0
    guess = _lanczos(matrix) if d > 2 else float(np.linalg.eigvalsh(matrix)[-1])
    for slack in (1e-6, 1e-4, 1e-2):
        bound = guess * (1 + slack)
        shifted = -matrix
        shifted[np.diag_indices(d)] += bound
        try:
            cholesky(shifted, lower=True, overwrite_a=True, check_finite=False)
        except LinAlgError:
            continue
        # The last two terms: what the factorisation and the subtraction on the diagonal may have rounded away.
        return bound + 2 * (d + 2) * UNIT64 * d * bound + 2 * UNIT64 * bound
    return trace


def _lanczos(matrix: np.ndarray) -> float:
    start = np.full(matrix.shape[0], 1.0)
    try:
        return float(eigsh(matrix, k=1, which="LA", v0=start, tol=1e-7, return_eigenvectors=False)[0])
    except ArpackError:
        # No convergence, or no start at all: the vector of ones can lie in the kernel of the matrix.
        return float(np.linalg.eigvalsh(matrix)[-1])
