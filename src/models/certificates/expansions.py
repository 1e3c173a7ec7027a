"""Certified radii of a fitted expansion: which bound applies, and what rounding takes from it."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.certificates import radii as certified
from models.expansions import LiveExpansion
from models.expansions.random_features import RandomFeatureSum
from models.expansions.support_vectors import SupportVectorSum
from models.rounding import UNIT32, EvaluationErrors, Sum

_UNIT = np.finfo(np.float64).eps / 2


class Evaluation(NamedTuple):
    """Scores and gradient norms of some rows in float64, and how far the model's own arithmetic is from them."""

    scores: np.ndarray  # (n,)
    slopes: np.ndarray  # (n,), ‖∇f(x)‖₂
    rounding: np.ndarray  # (n,)


def bounds_offered(expansion: LiveExpansion) -> list[str]:
    """Names of the bounds that hold for this expansion, the best first."""
    if isinstance(expansion, RandomFeatureSum):
        return ["second_order"]
    return list(expansion.space.kernel.bounds)


def global_quantity(expansion: LiveExpansion) -> float:
    """The number all rows share, worth keeping: the curvature bound of random features, or ‖f‖² of an exact sum."""
    if isinstance(expansion, RandomFeatureSum):
        return expansion.curvature_bound()
    assert isinstance(expansion, SupportVectorSum)
    return expansion.squared_norm()


def radii(
    expansion: LiveExpansion, X: Tensor, signs: np.ndarray, bound: str, quantity: float, offset: float = 0.0
) -> np.ndarray:
    """Certified L2 radii of the rows of X for labels `signs` (±1), shape (n,).

    `quantity` is what `global_quantity` gave; `offset` is added to the scores of an exact sum.
    """
    found = _evaluate(expansion, X)
    margins = signs * (found.scores + offset)
    if isinstance(expansion, RandomFeatureSum):
        errors, beyond = _feature_errors(expansion, X)
        radius = certified.second_order_radius(
            margins,
            found.slopes,
            quantity,
            margin_error=errors.score + np.maximum(found.rounding, beyond.score),
            gradient_error=errors.gradient + beyond.gradient,
        )
        return _after_conversion(radius, X)
    assert isinstance(expansion, SupportVectorSum)
    errors, allowance = _kernel_errors(expansion, X, quantity, offset)
    norm, margin_error = float(np.sqrt(quantity)), errors.score + np.maximum(found.rounding, allowance)
    gamma = expansion.space.gammas[0]
    if bound == "paper":
        inverse = partial(expansion.space.kernel.inverse_profile, gamma=gamma)
        radius = certified.paper_radius(margins, norm, inverse, margin_error=margin_error, norm_error=errors.norm)
        return _after_conversion(radius, X)
    radius = certified.sharp_radius(
        margins,
        found.slopes,
        norm,
        gamma,
        offsets=signs * offset,
        margin_error=margin_error,
        gradient_error=errors.gradient,
        norm_error=errors.norm,
    )
    return _after_conversion(radius, X)


def _evaluate(expansion: LiveExpansion, X: Tensor) -> Evaluation:
    scores, gradients = expansion.scores_and_gradients(X.double(), dtype=torch.float64)
    exact = scores[:, 0].numpy()
    # Users and attacks see the model's own arithmetic. Its distance from float64 at x can be 0 by luck, so it only
    # counts where it exceeds what float32 is allowed everywhere.
    rounding = 8.0 * np.abs(expansion.scores(X)[:, 0].double().numpy() - exact)
    return Evaluation(exact, gradients[:, 0].norm(dim=1).numpy(), rounding)


def _after_conversion(radius: np.ndarray, X: Tensor) -> np.ndarray:
    """What is left when a float32 model rounds the row it is given and the attacked one, by a unit of their lengths."""
    if X.dtype == torch.float64:
        return radius
    lengths = _lengths(X)
    return np.maximum((radius - 2.01 * UNIT32 * lengths) / (1 + 2 * UNIT32), 0.0)


def _feature_errors(expansion: RandomFeatureSum, X: Tensor) -> tuple[EvaluationErrors, EvaluationErrors]:
    """Error bounds of Σ_k w_k cos(ω_k·x + b_k) and its gradient's norm in float64; what to allow float32 around x.

    The angle is off by at most d units of ‖ω‖‖x‖ plus its own last place, cos and sin pass that on; sums of K terms by
    K units of Σ|w_k| and Σ|w_k|‖ω_k‖. Doubled to cover second-order terms. For float32 √d and √K stand for d and K (see
    `Kernel.float32_allowance`); at distance r from x the angle's error has grown by that of ‖ω‖r, which acts
    like a steeper gradient.
    """
    mass, first, second, n_terms = expansion.amplitude_moments()
    d = expansion.space.dimension
    lengths = _lengths(X)
    score = 2 * _UNIT * ((d + 4) * lengths * first + (n_terms + 16) * mass)
    gradient = 2 * _UNIT * ((d + 4) * lengths * second + (n_terms + d + 16) * first)
    errors = EvaluationErrors(score, gradient, 0.0)
    if X.dtype == torch.float64:
        return errors, EvaluationErrors(np.zeros(len(X)), np.zeros(len(X)), 0.0)
    steeper = UNIT32 * (np.sqrt(d) + 4) * first
    around = steeper * lengths + UNIT32 * (np.sqrt(n_terms) + 16) * mass
    return errors, EvaluationErrors(around, np.full(len(X), steeper), 0.0)


def _kernel_errors(
    expansion: SupportVectorSum, X: Tensor, squared_norm: float, offset: float
) -> tuple[EvaluationErrors, float]:
    """Error bounds of an exact sum in float64, and what to allow float32 at any point."""
    vectors, weights = expansion.live()
    reach = float(_lengths(vectors).max(initial=0.0))
    terms = Sum(weights[:, 0].numpy(), reach, expansion.space.dimension)
    lengths, gamma = _lengths(X), expansion.space.gammas[0]
    kernel = expansion.space.kernel
    errors = kernel.evaluation_errors(lengths, terms, gamma, squared_norm, offset)
    single = X.dtype != torch.float64
    return errors, kernel.float32_allowance(terms, gamma, float(np.sqrt(squared_norm))) if single else 0.0


def _lengths(rows: Tensor) -> np.ndarray:
    """‖x‖₂ of every row in float64, without a copy of the rows."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy()
