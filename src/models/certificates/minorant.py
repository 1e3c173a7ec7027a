"""Quadratics below a sum of Gaussians, by parabolas and by the orders of its Taylor series; proved by Cholesky.

**Parabolas** ("DC"): every exponential bounded by one of its own. About a point c, with δ = x' - c, v_i = z_i - c,
a_i = y·w_i k(z_i, c) and any shift s, the factor e^{gamma‖δ‖² - 2·gamma·s·δ} > 0 changes no sign, and

    y·f(c+δ) e^{gamma‖δ‖² - 2·gamma·s·δ} = Σ_i a_i e^{t_i} + β e^{t_0 + gamma‖δ‖²},  t_i = 2·gamma·E_i·δ,

where E_i = v_i - s, and β is the intercept less what rounding may hide, with E_0 = -s. The shift is free: between the
centroids of the positive and of the negative terms the exponents are small. With φ(t) = (e^t - 1 - t)/t², increasing,

    e^t ≥ 1 + t + φ(-τ) t²  for t ≥ -τ   (a_i > 0),        e^t ≤ 1 + t + φ(τ) t²  for t ≤ τ   (a_i < 0),

τ_i the largest |t_i| in the region. So the sum is at least constant + gradient·δ + δᵀMδ,
M = 4·gamma² Σ_i a_i φ(∓τ_i) E_i E_iᵀ. The intercept's own growth, u = gamma‖δ‖² ≤ ū, is a multiple of the identity:
e^{t+u} ≤ e^t + e^τ u (e^ū - 1)/ū, and e^{t+u} ≥ e^t + e^{-τ} u.

**Orders**: higher ones by powers of one Gram matrix. With c_i = w_i k(z_i, c), u = gamma‖δ‖² and h the kernel part,

    e^u h(c+δ) = Σ_n p_n(δ),     p_n(δ) = Σ_i c_i (2·gamma·v_i·δ)^n / n!.

p_n(δ) is the inner product, in order n of the orthogonal expansion of the RKHS about c, of h, which has
‖h‖_n² = Σ_ij c_i c_j (2·gamma·v_i·v_j)^n / n! there, with e^u k(c+δ,·), which has (2u)^n / n!. The orders are
orthogonal and exhaust ‖h‖². So, with Cauchy-Schwarz in every order above the second and in the rest,

    y·e^u h(c+δ) ≥ y·h(c) + y·∇h(c)·δ + ½ y·δᵀPδ - Σ_{n=3}^N ‖h‖_n sqrt((2u)^n/n!) - R_N sqrt(Σ_{n>N} (2u)^n/n!),

P = 4·gamma² Σ_i c_i v_i v_iᵀ and R_N² = ‖h‖² - Σ_{n≤N} ‖h‖_n². Splitting one more order off the rest never costs:
‖h‖_n s_n + R s ≤ sqrt(‖h‖_n² + R²) sqrt(s_n² + s²).
"""

from dataclasses import dataclass
from functools import partial
from math import factorial

import numpy as np
from scipy.special import gammainc

from models.certificates.gaussian_function import Gaussians
from models.certificates.places import Place, positive_on, proved_one_by_one, signed_gram
from models.certificates.region import Region, lowest_linear
from models.rounding import UNIT64

_TINY = float(np.finfo(np.float64).tiny)
_ORDER = 8


def phi(t: np.ndarray) -> np.ndarray:
    """(e^t - 1 - t) / t², to 1e-11 relative."""
    t = np.asarray(t, dtype=np.float64)
    small = np.abs(t) < 1e-2
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        direct = (np.expm1(t) - t) / (t * t)
    return np.where(small, 0.5 + t * (1 / 6 + t * (1 / 24 + t * (1 / 120 + t * (1 / 720 + t / 5040)))), direct)


@dataclass(frozen=True)
class Minorant:
    """constant + gradient·δ + δᵀMδ, M = Aᵀ diag(curvatures) A + diag(ridge): below sign·f times something positive."""

    constant: float
    gradient: np.ndarray  # (d,)
    directions: np.ndarray  # (m, d), the rows E_i of A
    curvatures: np.ndarray  # (m,)
    squares: np.ndarray  # (m,), upper bounds of (E_i·δ)² over the place
    ridge: np.ndarray  # (d,)
    ridge_below: float  # lower bound of Σ_j ridge_j δ_j² over the place
    slack: float  # what rounding may have added, all told

    def crude(self, linear: float) -> float:
        """Lower bound with every negative term at its own worst; `linear` is that of the gradient."""
        falls = np.minimum(self.curvatures, 0.0) @ self.squares + self.ridge_below
        return self.constant + linear + falls - self.slack

    def matrix(self, spare: float) -> tuple[np.ndarray, float]:
        """M with only its lower triangle set, and what the terms left out of it cost at most, about `spare`.

        Positive terms that are left out cost nothing, small negative ones their worst.
        """
        worst = np.abs(self.curvatures) * self.squares
        order = np.argsort(worst)
        dropped = order[: int(np.searchsorted(np.cumsum(worst[order]), spare))]
        kept = np.ones(len(worst), dtype=bool)
        kept[dropped] = False
        cost = float(worst[dropped][self.curvatures[dropped] < 0].sum()) * (1 + len(worst) * 4 * UNIT64)
        total = signed_gram(self.directions, np.where(kept, self.curvatures, 0.0))
        total[np.diag_indices(len(total))] += self.ridge
        return total, cost


def minorant(form: Gaussians, sign: float, place: Place, required_margin: float, mix: float = 0.5) -> Minorant | None:
    """The quadratic below sign·f - required_margin on a place; None where it is not positive at the centre.

    `mix` says where the shift is between the centroids of the negative (0) and of the positive terms (1).
    """
    gamma = form.gamma
    m, d = form.centers.shape
    # The intercept is a term at the centre itself, whose exponent has u = gamma‖δ‖² on top.
    E = np.zeros((m + 1, d))
    V = np.subtract(form.centers, form.scaled(place.center), out=E[:m])
    squared = np.einsum("ij,ij->i", V, V)
    a = sign * form.weights * np.exp(-gamma * squared)
    beta = sign * form.intercept - required_margin
    if not a.sum() + beta > 0:
        return None
    a = np.append(a, beta)
    positive, negative = np.maximum(a, 0.0), np.maximum(-a, 0.0)
    shift = (mix / positive.sum() * positive + (1 - mix) / max(negative.sum(), _TINY) * negative) @ E
    E -= shift
    scale = np.ones(d) if form.scaling is None else form.scaling.scale
    if form.scaling is not None:
        E *= scale
    distance = float(form.distances(place.region())[0])
    below, above = place.reaches_of(E)
    below, above = 2 * gamma * below, 2 * gamma * above
    with np.errstate(over="ignore", invalid="ignore"):
        bent = np.where(a > 0, phi(-below) * (1 - 1e-10), phi(above) * (1 + 1e-10))
        farthest = gamma * distance**2 * (1 + 16 * UNIT64)
        chord = np.expm1(farthest) / farthest if farthest else 1.0
        growth = np.exp(-below[-1]) if beta > 0 else np.exp(above[-1]) * chord
        ridge = float(beta * growth * gamma * (1 - 1e-12 if beta > 0 else 1 + 1e-12))
        # a_i is off by (d + 8) units of its exponent, E_i by units of |v_i| + |s|, sums by as many units as terms.
        lengths = 2 * gamma * (np.append(np.sqrt(squared), 0.0) + np.linalg.norm(shift)) * distance
        share = np.abs(a) * (1 + gamma * np.append(squared, 0.0)) * (1 + lengths) ** 2 * np.exp(np.maximum(above, 0.0))
        slack = 32 * UNIT64 * (len(a) + d + 32) * float(share.sum())
        slack += float(np.abs(form.weights).sum()) * float(np.exp(above.max())) * 4 * _TINY
        if form.scaling is not None:
            # The scaled centre is off by its own rounding, which moves every v_i alike.
            off = float(form.scaling.error(place.center[None])[0])
            slack += 16 * gamma * off * float((share * (np.append(np.sqrt(squared), 0.0) + distance)).sum())
    reach = np.maximum(below, above) / (2 * gamma)
    curvatures = 4 * gamma * gamma * a * bent
    ridge_below = min(ridge, 0.0) * distance**2 * (1 + 16 * UNIT64)
    gradient = 2 * gamma * (a @ E)
    return Minorant(float(a.sum()), gradient, E, curvatures, reach**2, ridge * scale**2, ridge_below, slack)


def proves_by_parabolas(form: Gaussians, where: Region, signs: np.ndarray) -> np.ndarray:
    """Whether the minorant is positive over every region: crudely first, then by its matrix."""
    return proved_one_by_one(partial(_positive_by_parabolas, form), where, signs, form.required_margins(where))


def _positive_by_parabolas(form: Gaussians, place: Place, cell: bool, sign: float, required_margin: float) -> bool:
    below = minorant(form, sign, place, required_margin)
    if below is None:
        return False
    linear = float(lowest_linear(below.gradient[None], place.region())[0])
    if below.crude(linear) > 0:
        return True
    constant = below.constant - below.slack
    if not constant + linear > 0 or not np.isfinite(below.curvatures).all():
        return False
    matrix, left_out = below.matrix(1e-3 * constant)
    constant -= left_out
    return positive_on(place, cell, constant, below.gradient, matrix)


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


def proves_by_orders(form: Gaussians, where: Region, signs: np.ndarray) -> np.ndarray:
    """Whether the bound by orders is positive over every region."""
    return proved_one_by_one(partial(_positive_by_orders, form), where, signs, form.required_margins(where))


def _positive_by_orders(form: Gaussians, place: Place, cell: bool, sign: float, required_margin: float) -> bool:
    gamma, m = form.gamma, len(form.weights)
    V = form.centers - form.scaled(place.center)
    squared = np.einsum("ij,ij->i", V, V)
    a = sign * form.weights * np.exp(-gamma * squared)
    beta = sign * form.intercept - required_margin
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
    slack += float(np.abs(form.weights).sum()) * 4 * _TINY * float(np.exp(farthest))
    scale = np.ones(V.shape[1]) if form.scaling is None else form.scaling.scale
    gradient = 2 * gamma * (a @ V) * scale
    constant = float(a.sum()) + beta - slack
    if not (np.isfinite(constant) and constant + float(lowest_linear(gradient[None], place.region())[0]) > 0):
        return False
    norms, errors = block_norms(a, 2 * gamma * (V @ V.T), _ORDER)
    errors = errors * relative * (_ORDER + 2) + 1e-300
    constant -= remainder(form.squared_norm, norms, errors, farthest)
    if not constant > 0:
        return False
    matrix = signed_gram(V * scale, 2 * gamma * gamma * a)
    # β e^u lies above β(1 + u) for a positive β, above its chord for a negative one.
    bend = 1.0 if beta > 0 else float(np.expm1(farthest) / farthest if farthest else 1.0) * (1 + 1e-12)
    matrix[np.diag_indices(len(gradient))] += beta * bend * gamma * scale**2
    return positive_on(place, cell, constant, gradient, matrix)
