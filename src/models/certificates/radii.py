"""Certified L2 radii: how far a point may move before the predicted label can change.

Every function takes margins y·f(x), shape (n,), float64, and returns radii, shape (n,), in the data's units (L2,
pixels in [0, 1]). A radius is 0 where the margin is not positive and ``inf`` where no perturbation of any size can
change the sign. The radii are lower bounds for the exact function f: rounding enters through the ``*_error`` arguments
(absolute error bounds of what was measured) and every result is rounded down. An L∞ ball of size ε is covered by the L2
ball of radius ε·sqrt(d).
"""

from collections.abc import Callable

import numpy as np
from scipy.special import gammainc

__all__ = ["linear_radius", "paper_radius", "second_order_radius", "sharp_radius"]

Values = np.ndarray | float

# A few units in the last place: the error of the short closed forms below, relative to the sum of the magnitudes of
# their terms.
_ROUND = 32 * np.finfo(np.float64).eps


def linear_radius(
    margins: Values, weight_norm: float, *, margin_error: Values = 0.0, norm_error: float = 0.0
) -> np.ndarray:
    """Distance to the hyperplane, y·(w·x + b) / ‖w‖: exact, no larger radius is possible."""
    margins = _lower_margins(margins, margin_error)
    with np.errstate(divide="ignore", invalid="ignore"):
        radius = margins / ((weight_norm + norm_error) * (1 + _ROUND))
    return _finish(radius, margins)


def paper_radius(
    margins: Values,
    norm: Values,
    inverse_profile: Callable[[np.ndarray], np.ndarray],
    *,
    margin_error: Values = 0.0,
    norm_error: float = 0.0,
) -> np.ndarray:
    """The paper's bound, for any kernel k(x, x') = g(‖x - x'‖) with g decreasing and g(0) = 1.

    ‖k(x+δ,·) - k(x,·)‖² = 2 - 2g(‖δ‖), so by Cauchy-Schwarz |f(x+δ) - f(x)| ≤ ‖f‖ sqrt(2 - 2g(‖δ‖)) and
    r(x) = g⁻¹(1 - (m/‖f‖)²/2). A constant intercept cancels in the difference: with f = h + b, pass the margins of f
    and the norm of h.

    Parameters
    ----------
    margins : array of shape (n,)
    norm : float
        RKHS norm of the kernel part.
    inverse_profile : callable
        g⁻¹, from values in (0, 1] to distances, elementwise.
    margin_error, norm_error : absolute error bounds
    """
    margins = _lower_margins(margins, margin_error)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = margins / ((norm + norm_error) * (1 + _ROUND))
        # Rounding g up rounds the radius down; near g = 1 this is what the cancellation in 1 - ratio²/2 costs.
        value = 1 - 0.5 * ratio * ratio + _ROUND
        positive = value > 0
        radius = np.where(positive, inverse_profile(np.where(positive, np.minimum(value, 1.0), 1.0)), np.inf)
    return _finish(radius, margins)


def second_order_radius(
    margins: Values,
    gradient_norms: Values,
    curvature: Values,
    *,
    margin_error: Values = 0.0,
    gradient_error: Values = 0.0,
) -> np.ndarray:
    """First root of m - G r - H r²/2, Taylor's bound when every Hessian satisfies ‖∇²f‖₂ ≤ H = `curvature`.

    For random features `curvature_bound` gives H.
    """
    margins = _lower_margins(margins, margin_error)
    slope = np.asarray(gradient_norms, dtype=np.float64) + gradient_error
    with np.errstate(divide="ignore", invalid="ignore"):
        # 2m / (G + sqrt(G² + 2Hm)) is the root without cancellation.
        radius = 2 * margins / (slope + np.sqrt(slope * slope + 2 * curvature * np.maximum(margins, 0.0)))
    return _finish(radius, margins)


def sharp_radius(
    margins: Values,
    gradient_norms: Values,
    norm: Values,
    gamma: float,
    *,
    offsets: Values = 0.0,
    margin_error: Values = 0.0,
    gradient_error: Values = 0.0,
    norm_error: float = 0.0,
) -> np.ndarray:
    """The sharp bound for f = h + b with h in the RKHS of k(x, x') = exp(-gamma ‖x - x'‖²).

    Proof. Let φ = k(x,·) and ψ_j = ∂k(x,·)/∂x_j. They are orthogonal, ‖φ‖ = 1, ‖ψ_j‖² = 2·gamma, and ⟨h,φ⟩ = h(x),
    ⟨h,ψ_j⟩ = ∂_j h(x). For ‖δ‖ = r and u = gamma·r²: ⟨k(x+δ,·),φ⟩ = e^{-u} and ⟨k(x+δ,·),ψ_j⟩ = 2·gamma·δ_j e^{-u}, so
    the projection of k(x+δ,·) onto their span is e^{-u}(φ + Σ_j δ_j ψ_j), of squared norm e^{-2u}(1 + 2u). What is left
    of k(x+δ,·) has squared norm 1 - e^{-2u}(1 + 2u), what is left of h has squared norm R² = ‖h‖² - h(x)² -
    ‖∇h(x)‖²/(2·gamma), and Cauchy-Schwarz on the two remainders gives

        y·f(x+δ) ≥ y·b + e^{-u}(y·h(x) - G r) - R sqrt(1 - e^{-2u}(1 + 2u)),    G = ‖∇f(x)‖.

    Only the kernel part fades with e^{-u}; the intercept stays. Equality holds for some h with the same h(x), ∇h(x) and
    ‖h‖, so nothing better follows from these three, and the bound is never below the paper's.

    The radius is the first r at which the right side reaches 0. The right side is not monotone, so the search walks
    outward in steps, each accepted only if a lower bound over the *whole* step (every term at its worse end) is
    positive: no dip between two points is missed.

    Parameters
    ----------
    margins : array of shape (n,)
        y·f(x), intercept included.
    gradient_norms : array of shape (n,)
        ‖∇f(x)‖₂.
    norm : float
        RKHS norm ‖h‖.
    gamma : float
    offsets : float or array of shape (n,)
        y·b; 0 for a machine without intercept.
    margin_error, gradient_error, norm_error : absolute error bounds of the margins, gradient norms and norm
    """
    # A diverged machine has infinite margins or norms; they end as NaN in a comparison, and as radius 0.
    with np.errstate(invalid="ignore", over="ignore"):
        total = np.asarray(margins, dtype=np.float64)
        gradient = np.asarray(gradient_norms, dtype=np.float64)
        offset = np.broadcast_to(np.asarray(offsets, dtype=np.float64), total.shape)
        kernel_part = total - offset
        margin_error = margin_error + _ROUND * (np.abs(total) + np.abs(offset))

        # What is left of h after the projection, at its largest within the error bounds.
        largest_norm = (norm + norm_error) * (1 + _ROUND)
        value = np.maximum(np.abs(kernel_part) - margin_error, 0.0)
        slope = np.maximum(gradient - gradient_error, 0.0)
        left = np.maximum(largest_norm**2 * (1 + _ROUND) - (value**2 + slope**2 / (2 * gamma)) * (1 - _ROUND), 0.0)
        rest = np.sqrt(left) * (1 + _ROUND)
        # Lengths in units of 1/sqrt(gamma), so that u = rho².
        bound = _SharpBound(offset, kernel_part - margin_error, (gradient + gradient_error) / np.sqrt(gamma), rest)
        rho = _walk_outward(bound, total - margin_error > 0)
        return _finish(rho / np.sqrt(gamma), total - margin_error)


class _SharpBound:
    """Lower bound of the sharp right side over a whole interval of rho = r·sqrt(gamma), one row per point."""

    def __init__(self, offset: np.ndarray, value: np.ndarray, slope: np.ndarray, rest: np.ndarray):
        self.offset, self.value, self.slope, self.rest = offset, value, slope, rest
        self.slack = _ROUND * (np.abs(offset) + np.abs(value) + slope + rest)

    def over(self, start: np.ndarray, stop: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Bound on [start, stop]; exact at `stop` while all terms fall together (rho ≤ 1/sqrt(2), value ≥ 0)."""
        # value·e^{-rho²} is monotone; rho·e^{-rho²} rises to its peak at 1/sqrt(2) and falls; the last factor rises,
        # since 1 - e^{-2u}(1 + 2u) is the regularised incomplete gamma function P(2, 2u), which is also how to evaluate
        # it without cancellation.
        value = self.value[rows]
        faded = value * np.exp(-(np.where(value >= 0, stop, start) ** 2))
        worst = np.clip(np.sqrt(0.5), start, stop)
        lost = self.slope[rows] * worst * np.exp(-worst * worst)
        unknown = self.rest[rows] * np.sqrt(gammainc(2.0, 2 * stop * stop))
        return self.offset[rows] + faded - lost - unknown - self.slack[rows]

    def beyond(self, start: np.ndarray, rows: np.ndarray) -> np.ndarray:
        """Bound on [start, ∞)."""
        worst = np.maximum(start, np.sqrt(0.5))
        faded = np.minimum(self.value[rows], 0.0) * np.exp(-start * start)
        lost = self.slope[rows] * worst * np.exp(-worst * worst)
        return self.offset[rows] + faded - lost - self.rest[rows] - self.slack[rows]


def _walk_outward(
    bound: _SharpBound, active: np.ndarray, max_steps: int = 400, resolution: float = 1e-12
) -> np.ndarray:
    """Largest certified rho per row: double the step after a success, halve it after a failure."""
    # e^{-rho²} underflows beyond 27: what is not certified to infinity there can only lose.
    far = 27.0
    reached = np.zeros(active.shape)
    step = np.full(active.shape, 0.25)
    rows = np.flatnonzero(active)
    for _ in range(max_steps):
        if rows.size == 0:
            break
        start = reached[rows]
        stop = np.minimum(start + step[rows], far)
        passed = bound.over(start, stop, rows) > 0
        reached[rows] = np.where(passed, stop, start)
        step[rows] = np.where(passed, 2 * step[rows], 0.5 * step[rows])
        endless = (start > 1.0) & (bound.beyond(start, rows) > 0)
        reached[rows[endless]] = np.inf
        done = endless | (reached[rows] >= far) | (step[rows] < resolution * np.maximum(start, 1e-3))
        rows = rows[~done]
    return reached


def _lower_margins(margins: Values, margin_error: Values) -> np.ndarray:
    return np.asarray(margins, dtype=np.float64) - margin_error


def _finish(radius: np.ndarray, margins: np.ndarray) -> np.ndarray:
    """Round down; no certificate without a positive margin, nor from a NaN (0/0 of the zero function)."""
    radius = np.where(margins > 0, radius, 0.0)
    return np.where(np.isnan(radius), 0.0, np.maximum(radius, 0.0) * (1 - _ROUND))
