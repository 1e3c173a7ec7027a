"""Cells and balls around one point, and proofs that a quadratic stays positive on them.

Weak duality proposes, a Cholesky factorisation proves (`stays_positive`).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, blas, cholesky, solve_triangular

from models.certificates.region import Region
from models.rounding import UNIT64


@dataclass(frozen=True)
class Place:
    """Where a point may be, seen from `center`: lower ≤ δ ≤ upper, all of shape (d,), and ‖δ‖₂ ≤ radius."""

    center: np.ndarray
    lower: np.ndarray
    upper: np.ndarray
    radius: float

    @classmethod
    def of(cls, where: Region, row: int) -> "Place":
        """One region."""
        return cls(where.X[row], where.lower[row], where.upper[row], float(where.radius[row]))

    def equals(self, other: "Place") -> bool:
        """Whether both are the same."""
        mine, theirs = (self.center, self.lower, self.upper), (other.center, other.lower, other.upper)
        return self.radius == other.radius and all(np.array_equal(a, b) for a, b in zip(mine, theirs))

    def region(self) -> Region:
        """As a region of one row."""
        return Region(self.center[None], self.lower[None], self.upper[None], np.array([self.radius]))

    def reaches(self, directions: "Directions") -> tuple[np.ndarray, np.ndarray]:
        """Upper bounds of -e·δ and of e·δ for every direction e, two arrays of shape (m,)."""
        ends, turned = np.stack([-self.lower, self.upper], 1), np.stack([-self.upper, self.lower], 1)
        cell = directions.rising @ ends + directions.falling @ turned
        # For the ball only coordinates that can move that way at all.
        moves = np.stack([self.lower < 0, self.upper > 0], 1).astype(np.float64)
        free = directions.rising_squared @ moves + directions.falling_squared @ moves[:, ::-1]
        both = np.minimum(cell, np.sqrt(free) * self.radius) * (1 + 8 * (len(self.center) + 8) * UNIT64)
        return both[:, 0], both[:, 1]

    def reaches_of(self, rows: np.ndarray, at_once: int = 128) -> tuple[np.ndarray, np.ndarray]:
        """`reaches` of directions (m, d) that are asked once: a few at a time, so that they stay in the cache."""
        parts = [self._reaches_of(rows[start : start + at_once]) for start in range(0, len(rows), at_once)]
        return np.concatenate([below for below, _ in parts]), np.concatenate([above for _, above in parts])

    def _reaches_of(self, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        if not np.array_equal(self.lower, -self.upper):
            return self.reaches(Directions.of(rows))
        # A cell about its midpoint: both ways are the same.
        free = (rows * rows) @ (self.upper > 0).astype(np.float64)
        cell = np.abs(rows) @ self.upper
        both = np.minimum(cell, np.sqrt(free) * self.radius) * (1 + 8 * (len(self.center) + 8) * UNIT64)
        return both, both


class Directions(NamedTuple):
    """Directions by the sign of their coordinates, and the squares of those: what `Place.reaches` multiplies."""

    rising: np.ndarray  # (m, d), coordinates > 0
    falling: np.ndarray  # (m, d), coordinates < 0
    rising_squared: np.ndarray
    falling_squared: np.ndarray

    @classmethod
    def of(cls, rows: np.ndarray) -> "Directions":
        """The rows of an array of shape (m, d)."""
        rising, falling = np.maximum(rows, 0.0), np.minimum(rows, 0.0)
        return cls(rising, falling, rising * rising, falling * falling)


def places(where: Region) -> Iterator[tuple[int, Place, bool]]:
    """(row, place, whether it is a cell) of every region; cells are seen from their midpoints."""
    seen = about_midpoint(where)
    for row, cell in enumerate(is_cell(where).tolist()):
        yield row, Place.of(seen if cell else where, row), cell


def proved_one_by_one(
    positive: Callable[[Place, bool, float, float], bool],
    where: Region,
    signs: np.ndarray,
    required_margins: np.ndarray,
) -> np.ndarray:
    """``positive(place, whether it is a cell, sign, required_margin)`` of every region, shape (n,)."""
    rows = [
        positive(place, cell, float(signs[row]), float(required_margins[row])) for row, place, cell in places(where)
    ]
    return np.array(rows, dtype=bool)


def is_cell(where: Region) -> np.ndarray:
    """Rows whose ball holds the whole cell, shape (n,): what an L∞ ball gives."""
    corners = np.linalg.norm(np.maximum(-where.lower, where.upper), axis=1)
    return corners <= where.radius


def about_midpoint(where: Region) -> Region:
    """The same cells, seen from their midpoints, which a box puts elsewhere than at x."""
    units = 8 * np.finfo(np.float64).eps
    half = (0.5 * (where.upper - where.lower) + units * (np.abs(where.X) + where.upper - where.lower)) * (1 + units)
    radius = np.linalg.norm(half, axis=1) * (1 + half.shape[1] * units)
    return Region(where.X + 0.5 * (where.lower + where.upper), -half, half, radius)


def positive_on(place: Place, cell: bool, constant: float, gradient: np.ndarray, matrix: np.ndarray) -> bool:
    """Whether constant + gradient·δ + δᵀMδ > 0 on a place; of M only the lower triangle is read."""
    if cell:
        return _on_cell(constant, gradient, matrix, place)
    # Ball and box: the part of the gradient that only the box holds back is bounded by the box, the rest goes into the
    # trust region. For any split, (g - g')·δ ≥ the sum of its worse ends.
    inner = held_by_ball(gradient, place)
    outer = gradient - inner
    ends = float(np.minimum(outer * place.lower, outer * place.upper).sum())
    constant += ends * (1 + len(inner) * 1e-15)
    return stays_positive(constant, inner, matrix, np.zeros(len(inner)), 0.0, place.radius)


def _on_cell(constant: float, gradient: np.ndarray, matrix: np.ndarray, place: Place) -> bool:
    """Linear and quadratic part jointly: multipliers |g_j|/2h_j of δ_j² ≤ h_j².

    Without M these give the L1 norm of the linear term; with it, near enough, M at the worst corner instead of at its
    worst anywhere.
    """
    half = place.upper
    wide = half > 1e-6 * half.max(initial=0.0)
    ends = float((np.abs(gradient[~wide]) * half[~wide]).sum())
    inner = np.where(wide, gradient, 0.0)
    bends = np.zeros(len(half))
    bends[wide] = np.abs(gradient[wide]) / (2 * half[wide])
    cost = float((bends * half * half).sum()) * (1 + len(half) * 1e-15)
    return stays_positive(constant - ends * (1 + len(half) * 1e-15), inner, matrix, bends, cost, place.radius)


def signed_gram(rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Σ_i w_i r_i r_iᵀ of rows (m, d) with weights of either sign (m,), only the lower triangle set."""
    total = np.zeros((rows.shape[1], rows.shape[1]), order="F")
    for sign in (1.0, -1.0):
        chosen = np.flatnonzero(sign * weights > 0)
        if len(chosen):
            scaled = rows[chosen] * np.sqrt(np.abs(weights[chosen]))[:, None]
            total = blas.dsyrk(sign, scaled.T, beta=1.0, c=total, lower=1, overwrite_c=1)
    return total


def held_by_ball(gradient: np.ndarray, place: Place) -> np.ndarray:
    """The part g' of the gradient whose minimiser on the ball, -t·g', lies in the box: clip(-t·g)/(-t)."""
    point, t = lowest_point(gradient, place)
    return point / -t if t else gradient


def lowest_point(gradient: np.ndarray, place: Place, rounds: int = 30) -> tuple[np.ndarray, float]:
    """Where gradient·δ is lowest on a place, clip(-t·g), and t; about, since t is found by bisection.

    t is 0 where the box holds nothing back, and the minimiser that of the ball alone.
    """
    length = float(np.linalg.norm(gradient))
    if length == 0:
        return np.zeros_like(gradient), 0.0

    def move(t: float) -> np.ndarray:
        return np.clip(-t * gradient, place.lower, place.upper)

    low = place.radius / length
    if (move(low) == -low * gradient).all():
        return -low * gradient, 0.0
    high = low
    for _ in range(60):
        if np.linalg.norm(move(high)) >= place.radius:
            break
        high *= 2
    for _ in range(rounds):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if np.linalg.norm(move(middle)) < place.radius else (low, middle)
    return move(high), high


def stays_positive(
    constant: float, gradient: np.ndarray, matrix: np.ndarray, bends: np.ndarray, cost: float, radius: float
) -> bool:
    """Whether constant + gradient·δ + δᵀMδ > 0 for all ‖δ‖₂ ≤ radius with Σ_j bends_j δ_j² ≤ cost.

    For every μ ≥ 0 with A = M + diag(bends) + μI ⪰ 0 and every vector p,

        gradient·δ + δᵀMδ ≥ (gradient + 2Ap)·δ - pᵀAp - cost - μ·radius²,

    from (δ-p)ᵀA(δ-p) ≥ 0. The best p solves 2Ap = -gradient, and a larger μ helps while ‖p‖ > radius: the dual of the
    trust-region problem. Nothing depends on how p and μ were found. Of M only the lower triangle is read.
    """
    d, room = len(gradient), constant - cost
    square = radius * radius
    if not (room > 0 and np.isfinite(matrix).all() and np.isfinite(gradient).all()):
        return False
    if square == 0 or not matrix.any():
        return not bends.any() and room - float(np.linalg.norm(gradient)) * radius * (1 + d * UNIT64) > 0
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
            if _proved(shifted, gradient, point, radius) + room - mu * square * (1 + 8 * UNIT64) > 0:
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
    below = 2 * (d + 4) * UNIT64 * float(np.trace(matrix))
    image = blas.dsymv(1.0, matrix, point, lower=1)
    length = float(np.linalg.norm(point)) * (1 + d * UNIT64)
    lost = 4 * (d + 4) * UNIT64 * float(np.linalg.norm(matrix)) * length
    residual = float(np.linalg.norm(gradient + 2 * image)) * (1 + d * UNIT64)
    residual += 2 * lost + 4 * UNIT64 * float(np.linalg.norm(gradient))
    bowl = float(point @ image) + lost * length
    return -(residual * radius + bowl + below * (radius + length) ** 2) * (1 + 64 * UNIT64)
