"""Sums of random features to the fourth order, where there are few coordinates: gradient, Hessian and cubic with signs.

With t_k = ω_k·δ, and the fourth order of every cosine at its worst,

    f(c+δ) ≥ p(δ) = f(c) + g·δ + ½ δᵀHδ + Σ_k c_k t_k³ - Σ_k |w_k| t_k⁴ / 24,     c_k = w_k sin θ_k / 6.

In the vector u of the products δ_i δ_j (off the diagonal times sqrt 2, so that ‖u‖ = ‖δ‖²) cubic and quartic are
quadratic: δᵀTu and uᵀQu. On the ball ‖δ‖ ≤ r, with e·u the trace ‖δ‖², for every symmetric S, every α and ν ≥ 0,

    ‖u‖² - (e·u)² = 0,     S·u - δᵀSδ = 0,     ‖u‖² - r² ‖δ‖² ≤ 0

may be added to p with the factors α, 1, ν. If then N = (α+ν)I - α·eeᵀ - Q ⪰ 0, the sum is convex in u, and from
(u-u')ᵀN(u-u') ≥ 0 at u' = -(Yδ + z), for any Y and z,

    p(δ) ≥ f(c) - zᵀNz + (g - 2YᵀNz)·δ + δᵀ(½H - S - νr² I - YᵀNY)δ - r² ‖(T - 2NY)ᵀδ + S - 2Nz‖:

a quadratic again. The best Y is ½N⁻¹Tᵀ; S and z make u' the products of the point where p is about lowest, which costs
nothing there. N is the same for all points.
"""

import hashlib
from functools import cache, cached_property

import numpy as np
from scipy.linalg import LinAlgError, cho_solve, cholesky
from scipy.optimize import minimize_scalar
from scipy.sparse.linalg import ArpackError, LinearOperator, eigsh

from models.certificates.places import Place, lowest_point
from models.rounding import UNIT32, UNIT64

# Coordinates up to which N is formed: at 64 it has 2,080 rows and takes seconds.
MANY = 64
# Terms that float32 sums at once, and what that loses of the sum of their magnitudes. All is scaled to at most 1, so
# that what underflows is lost in the largest term's rounding.
_TERMS, _TOGETHER = 512, 8
_SINGLE = (_TERMS + 32) * UNIT32
_TINY = float(np.finfo(np.float64).tiny)


class Products:
    """The products δ_i δ_j, i ≤ j, of d coordinates, by rows of the upper triangle."""

    def __init__(self, d: int):
        self.d = d
        self.rows, self.columns = np.triu_indices(d)
        self.scales = np.where(self.rows == self.columns, 1.0, np.sqrt(2.0))
        self.trace = (self.rows == self.columns).astype(np.float64)
        place = np.zeros((d, d), dtype=np.intp)
        place[self.rows, self.columns] = np.arange(len(self.rows))
        self.starts = np.diag(place)
        # Where δ_i · (δ_j δ_k) stands in an array (d, products) of which only i ≤ j ≤ k is filled.
        self._place = place
        triples = np.sort(np.stack(np.broadcast_arrays(np.arange(d)[:, None], self.rows, self.columns)), axis=0)
        self._sorted = triples[0] * len(self.rows) + place[triples[1], triples[2]]

    @classmethod
    @cache
    def of_dimension(cls, d: int) -> "Products":
        """The one of this dimension: where things stand in it takes longer to find than to use."""
        return cls(d)

    def __len__(self) -> int:
        return len(self.rows)

    def of(self, points: np.ndarray) -> np.ndarray:
        """The products of every row, shape (n, products)."""
        found = self._unscaled(points)
        found *= self.scales.astype(points.dtype)
        return found

    def _unscaled(self, points: np.ndarray) -> np.ndarray:
        found = np.empty((len(points), len(self)), dtype=points.dtype)
        for i, first in enumerate(self.starts):  # slices: three times as fast as picking rows and columns
            np.multiply(points[:, i:], points[:, i : i + 1], out=found[:, first : first + self.d - i])
        return found

    def matrix(self, products: np.ndarray) -> np.ndarray:
        """The symmetric matrix S, shape (d, d), with δᵀSδ = products·u."""
        full = np.zeros((self.d, self.d))
        full[self.rows, self.columns] = products / self.scales
        return full + np.triu(full, 1).T

    def cubics(self, frequencies: np.ndarray, coefficients: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """T = Σ_k c_k ω_k u_kᵀ for every row c of the coefficients (n, m), shape (n, d, products), and its errors (n,).

        The errors are bounds of Frobenius norms. Float32 is accurate enough, a few hundred terms at a time.
        """
        n = len(coefficients)
        long, large = _largest_length(frequencies), np.abs(coefficients).max(initial=0.0) + _TINY
        found = np.zeros((n, self.d, len(self)))
        for start in range(0, len(frequencies), _TERMS):
            terms = slice(start, start + _TERMS)
            omegas = (frequencies[terms] / long).astype(np.float32)
            squares, weights = self._unscaled(omegas), (coefficients[:, terms] / large).astype(np.float32)
            # Symmetric in its three indices: about a third of the entries is enough.
            for i in range(0, self.d, _TOGETHER):
                some, first = omegas[:, i : i + _TOGETHER], self.starts[i]
                scaled = (weights[:, None, :] * some.T).reshape(-1, len(omegas))
                found[:, i : i + _TOGETHER, first:] += (scaled @ squares[:, first:]).reshape(n, some.shape[1], -1)
        found = found.reshape(n, -1)[:, self._sorted] * (self.scales * (long**3 * large))
        size = np.abs(coefficients) @ (np.linalg.norm(frequencies, axis=1) ** 3)
        return found, _SINGLE * (size + large * long**3)

    def quartic(self, frequencies: np.ndarray, mass: np.ndarray) -> np.ndarray:
        """Σ_k m_k u_k u_kᵀ for m_k ≥ 0, shape (products, products), both arguments at most about 1.

        Symmetric in its four indices, so that a ≤ b ≤ c ≤ e is enough, a sixth of all entries: for every b the products
        ω_a ω_b, a ≤ b, with those ω_c ω_e that begin at b or later.
        """
        found = np.zeros((self.d, self.d, len(self)))  # [b, a, (c, e)]
        # With one thread, as OpenBLAS is held to: these products are small, a second one would wait and spin.
        for start in range(0, len(mass), _TERMS):
            omegas = frequencies[start : start + _TERMS].astype(np.float32)
            pairs, turned = self._unscaled(omegas), np.ascontiguousarray(omegas.T)
            weighted = turned * mass[start : start + _TERMS].astype(np.float32)
            for b in range(self.d):
                found[b, : b + 1, self.starts[b] :] += (weighted[: b + 1] * turned[b]) @ pairs[:, self.starts[b] :]
        full = found.reshape(-1)[self._quadruples]
        full *= self.scales
        full *= self.scales[:, None]
        return full

    @cached_property
    def _quadruples(self) -> np.ndarray:
        """Where the entry of (i, j) and (k, l) stands in the array of :meth:`quartic`, (products, products)."""
        i, j = self.rows.astype(np.int32), self.columns.astype(np.int32)
        # Merged and not sorted: i ≤ j and k ≤ l.
        later, earlier = np.maximum.outer(i, i), np.minimum.outer(j, j)
        a, e = np.minimum.outer(i, i), np.maximum.outer(j, j)
        b, c = np.minimum(later, earlier), np.maximum(later, earlier)
        return ((b * self.d + a) * len(self) + self._place.astype(np.int32)[c, e]).astype(np.int32)


class Quartic:
    """N of this module with the smallest ν that makes it positive definite, a little more, and its factorisation.

    Of frequencies (m, d) and mass (m,), which is |w_k|.
    """

    def __init__(self, frequencies: np.ndarray, mass: np.ndarray):
        self.products = Products.of_dimension(frequencies.shape[1])
        n, trace = len(self.products), self.products.trace
        long, large = _largest_length(frequencies), mass.max(initial=0.0) + _TINY
        quartic = self.products.quartic(frequencies / long, mass / large)
        alpha, least = (large * long**4 / 24 * number for number in _least_shift(quartic, trace))
        quartic *= large * long**4 / 24
        size = float(mass @ np.linalg.norm(frequencies, axis=1) ** 4) + large * long**4

        self.nu = 1.1 * least + 1e-300
        self.matrix = -quartic
        self.matrix[np.ix_(self.products.starts, self.products.starts)] -= alpha
        self.matrix[np.diag_indices(n)] += alpha + self.nu
        # What float32 and the subtraction have rounded away, times ‖u‖².
        self.rounding = _SINGLE * size / 24 + 4 * UNIT64 * float(
            np.linalg.norm(quartic) + abs(alpha) * (n + trace.sum()) + self.nu * n
        )
        self.size = float(np.linalg.norm(self.matrix))
        try:
            self.factor = cholesky(self.matrix, lower=True, check_finite=False)
            # λ_min ≥ -this, since the factorisation ran through (Rump 2006).
            self.below = 2 * (n + 4) * UNIT64 * float(np.trace(self.matrix))
        except LinAlgError:
            self.below = np.inf

    def minorant(
        self, place: Place, value: float, gradient: np.ndarray, hessian: np.ndarray, cubic: np.ndarray, off: float
    ) -> tuple[float, np.ndarray, np.ndarray]:
        """(constant, gradient, matrix) of a quadratic below p on a place, rounding allowed for.

        f has `value`, `gradient` and `hessian` at the centre; `cubic` is T, `off` its error in the Frobenius norm.
        """
        if not np.isfinite(self.below):
            return -np.inf, gradient, hessian
        N, products, r = self.matrix, self.products, place.radius
        lowest = _lowest_of_cubic(place, gradient, hessian, cubic, products)
        Y = 0.5 * cho_solve((self.factor, True), cubic.T, check_finite=False)
        z = -(Y @ lowest) - products.of(lowest[None])[0]
        image, image_z = N @ Y, N @ z
        S = 2 * image_z
        # S is what it is: only T - 2NY is left of the residual.
        extent = (float(np.linalg.norm(Y)) * r + float(np.linalg.norm(z))) * (1 + 1e-9)
        units = 8 * (len(products) + 16) * UNIT64
        residual = float(np.linalg.norm(cubic.T - 2 * image)) * r + off * r + units * self.size * extent
        residual += units * float(np.linalg.norm(cubic)) * r
        lost = r * r * residual + units * self.size * extent**2 + self.below * (r * r + extent) ** 2
        lost += self.rounding * r**4 + 16 * UNIT64 * float(np.linalg.norm(S)) * r * r
        matrix = 0.5 * hessian - products.matrix(S) - Y.T @ image
        matrix[np.diag_indices(products.d)] -= self.nu * r * r * (1 + 4 * UNIT64)
        constant = value - float(z @ image_z) - lost * (1 + 1e-9)
        return constant, gradient - 2 * (image.T @ z), np.asfortranarray(0.5 * (matrix + matrix.T))


_last: dict[bytes, Quartic] = {}


def quartic_of(frequencies: np.ndarray, mass: np.ndarray) -> Quartic:
    """The :class:`Quartic` of these features; the last two are kept, for the next attacks on the same models."""
    key = hashlib.sha256(frequencies.tobytes() + mass.tobytes()).digest()
    if key not in _last:
        while len(_last) > 1:  # tens of megabytes each
            _last.pop(next(iter(_last)))
        _last[key] = Quartic(frequencies, mass)
    return _last[key]


def usual_price(frequencies: np.ndarray, mass: np.ndarray) -> float:
    """About what the fourth order costs, per r⁴, where the frequencies are as good as random and the proof succeeds.

    ν comes out at 5 times its mean over directions, times `spread`, and a proof loses 0.55 · `spread` of it (measured
    with equal and with very unequal weights). Tells beforehand where N is not worth its price; nothing rests on it.
    """
    d, total = frequencies.shape[1], float(mass.sum())
    effective = total**2 / max(float(mass @ mass), _TINY)
    spread = (1 + np.sqrt(d * (d + 1) / 2 / max(effective, _TINY))) ** 2
    mean = float(mass @ np.linalg.norm(frequencies, axis=1) ** 4) / (24 * d * (d + 2))
    return 5 * 0.55 * mean * spread**2


def _largest_length(rows: np.ndarray) -> float:
    return float(np.linalg.norm(rows, axis=1).max(initial=0.0)) + _TINY


def _least_shift(quartic: np.ndarray, trace: np.ndarray, rounds: int = 4) -> tuple[float, float]:
    """(α, λ) with λ = λ_max(Q + α(eeᵀ - I)) about as small as α ≤ 0 makes it: a guess that Cholesky has to confirm.

    λ is convex in α. In the span of e and the eigenvectors found so far it is cheap, below the true one everywhere and
    equal to it where these were found; its minimum is where the next one is asked for.
    """
    single, alpha, found = quartic.astype(np.float32), 0.0, [trace]
    values: dict[float, float] = {}
    for _ in range(rounds):
        value, vector = _top(single, alpha, trace.astype(np.float32), found[-1])
        values[alpha] = value
        found.append(vector)
        span = np.linalg.qr(np.stack(found, axis=1))[0]
        inside, e = span.T @ (quartic @ span), trace @ span

        def below(alpha: float, inside: np.ndarray = inside, e: np.ndarray = e) -> float:
            return float(np.linalg.eigvalsh(inside + alpha * np.outer(e, e))[-1]) - alpha

        alpha = float(minimize_scalar(below, bounds=(min(-values[0.0], 0.0), 0.0), method="bounded").x)
    return min(values.items(), key=lambda pair: pair[1])


def _top(quartic: np.ndarray, alpha: float, trace: np.ndarray, start: np.ndarray) -> tuple[float, np.ndarray]:
    """λ_max(Q + α(eeᵀ - I)) to three digits and its eigenvector, in float32: Q is at most about 1."""
    n, shift = len(trace), np.float32(alpha)
    if n > 8:
        shifted = LinearOperator((n, n), lambda v: quartic @ v + shift * (trace @ v) * trace, dtype=np.float32)
        try:
            first = (start + np.linspace(0.0, 1e-3, n) * np.abs(start).max()).astype(np.float32)
            (value,), vectors = eigsh(shifted, k=1, which="LA", v0=first, tol=1e-3)
            return float(value) - alpha, vectors[:, 0].astype(np.float64)
        except ArpackError:
            pass
    values, vectors = np.linalg.eigh(quartic + shift * np.outer(trace, trace))
    return float(values[-1]) - alpha, vectors[:, -1].astype(np.float64)


def _lowest_of_cubic(
    place: Place, gradient: np.ndarray, hessian: np.ndarray, cubic: np.ndarray, products: Products, rounds: int = 12
) -> np.ndarray:
    """Where the terms up to the third order are about lowest."""
    best, best_value = np.zeros(len(gradient)), 0.0
    point = lowest_point(gradient, place)[0]
    for _ in range(rounds):
        bent, cubed = hessian @ point, cubic @ products.of(point[None])[0]
        value = float(point @ (gradient + 0.5 * bent + cubed))
        if value >= best_value:
            break
        best, best_value = point, value
        point = lowest_point(gradient + bent + 3 * cubed, place)[0]
    return best
