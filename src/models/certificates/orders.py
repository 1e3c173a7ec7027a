"""The Taylor certificate of order N for a sum of Gaussians: higher orders by powers of one Gram matrix.

About a point c, with v_i = z_i - c, c_i = w_i k(z_i, c), u = gamma‖δ‖² and h the kernel part,

    e^u h(c+δ) = Σ_n p_n(δ),     p_n(δ) = Σ_i c_i (2·gamma·v_i·δ)^n / n!.

p_n(δ) is the inner product, in order n of the orthogonal expansion of the RKHS about c, of h, which has
‖h‖_n² = Σ_ij c_i c_j (2·gamma·v_i·v_j)^n / n! there, with e^u k(c+δ,·), which has (2u)^n / n!. The orders are
orthogonal and exhaust ‖h‖². So, with Cauchy-Schwarz in every order above the second and in the rest,

    y·e^u h(c+δ) ≥ y·h(c) + y·∇h(c)·δ + ½ y·δᵀPδ - Σ_{n=3}^N ‖h‖_n sqrt((2u)^n/n!) - R_N sqrt(Σ_{n>N} (2u)^n/n!),

P = 4·gamma² Σ_i c_i v_i v_iᵀ and R_N² = ‖h‖² - Σ_{n≤N} ‖h‖_n². Splitting one more order off the rest never costs:
‖h‖_n s_n + R s ≤ sqrt(‖h‖_n² + R²) sqrt(s_n² + s²).
"""

from math import factorial

import numpy as np
from scipy.linalg import blas
from scipy.special import gammainc

from models.certificates.gaussian import GaussianSum
from models.certificates.places import Place, about_midpoint, is_cell, positive_on
from models.certificates.region import Region, lowest_linear
from models.rounding import UNIT64


def block_norms(coefficients: np.ndarray, gram: np.ndarray, order: int) -> tuple[np.ndarray, np.ndarray]:
    """‖h‖_n² for n = 0 … order, and error bounds, from the Gram matrix 2·gamma·v_i·v_j; two arrays (order + 1,).

    A dot product is off by d units of the lengths, a power by n times as many; the double sum by m units of
    Σ_ij |c_i c_j| (lengths)^n / n!, which factorises.
    """
    lengths = np.sqrt(np.maximum(np.diag(gram), 0.0))
    mass = np.abs(coefficients)
    power = np.ones_like(gram)
    norms, errors = np.zeros(order + 1), np.zeros(order + 1)
    for n in range(order + 1):
        if n:
            power *= gram
            power /= n
        norms[n] = coefficients @ (power @ coefficients)
        errors[n] = (mass @ lengths**n) ** 2 / factorial(n)
    return norms, errors


def remainder(squared_norm: float, norms: np.ndarray, errors: np.ndarray, u: float) -> float:
    """Upper bound of what all orders above the second may take from e^u h, at distance u = gamma‖δ‖²."""
    order = len(norms) - 1
    left = max(squared_norm - float(norms.sum()) + float(errors.sum()), 0.0)
    tail = float(np.exp(2 * u) * gammainc(order + 1, 2 * u))
    total = np.sqrt(left * tail)
    for n in range(3, order + 1):
        total += np.sqrt(max(norms[n] + errors[n], 0.0) * (2 * u) ** n / factorial(n))
    return float(total) * (1 + 1e-10)


def proves_by_orders(form: GaussianSum, where: Region, signs: np.ndarray, order: int = 8) -> np.ndarray:
    """The bound of this module over every region, proved by Cholesky."""
    demands, cells, seen = form.demands(where), is_cell(where), about_midpoint(where)
    proved = np.zeros(len(where), dtype=bool)
    for row in range(len(where)):
        place = Place.of(seen if cells[row] else where, row)
        proved[row] = _positive(form, place, bool(cells[row]), float(signs[row]), float(demands[row]), order)
    return proved


def _positive(form: GaussianSum, place: Place, cell: bool, sign: float, demand: float, order: int) -> bool:
    gamma, m = form.gamma, len(form.weights)
    V = form.centers - form.scaled(place.center)
    squared = np.einsum("ij,ij->i", V, V)
    a = sign * form.weights * np.exp(-gamma * squared)
    beta = sign * form.intercept - demand
    distance = float(form.distances(place.region())[0])
    farthest = gamma * distance**2 * (1 + 16 * UNIT64)
    if not farthest < 300:
        return False  # e^{2u} and all hope overflow
    # Values are off by (d + 8) units of their exponents, sums by as many units as terms; and so is every block.
    units = 32 * UNIT64 * (m + V.shape[1] + 32)
    relative = units * (1 + gamma * float(squared.max(initial=0.0)))
    if form.scaling is not None:
        off = float(form.scaling.error(place.center[None])[0])
        relative += 16 * gamma * off * (float(np.sqrt(squared.max(initial=0.0))) + distance)
    lengths = 2 * gamma * np.sqrt(squared) * distance
    slack = relative * float((np.abs(a) * (1 + lengths) ** 2).sum() + abs(beta))
    slack += float(np.abs(form.weights).sum()) * 4 * float(np.finfo(np.float64).tiny) * float(np.exp(farthest))
    scale = np.ones(V.shape[1]) if form.scaling is None else form.scaling.scale
    gradient = 2 * gamma * (a @ V) * scale
    constant = float(a.sum()) + beta - slack
    if not (np.isfinite(constant) and constant + float(lowest_linear(gradient[None], place.region())[0]) > 0):
        return False
    norms, errors = block_norms(a, 2 * gamma * (V @ V.T), order)
    errors = errors * relative * (order + 2) + 1e-300
    constant -= remainder(form.squared_norm, norms, errors, farthest)
    if not constant > 0:
        return False
    matrix = np.zeros((len(gradient), len(gradient)), order="F")
    for up in (1.0, -1.0):
        rows = np.flatnonzero(up * a > 0)
        if len(rows):
            rooted = V[rows] * (np.sqrt(2 * up * a[rows]) * gamma)[:, None] * scale
            matrix = blas.dsyrk(up, rooted.T, beta=1.0, c=matrix, lower=1, overwrite_c=1)
    # β e^u lies above β(1 + u) for a positive β, above its chord for a negative one.
    bend = 1.0 if beta > 0 else float(np.expm1(farthest) / farthest if farthest else 1.0) * (1 + 1e-12)
    matrix[np.diag_indices(len(gradient))] += beta * bend * gamma * scale**2
    return positive_on(place, cell, constant, gradient, matrix)
