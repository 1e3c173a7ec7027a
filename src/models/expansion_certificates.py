"""Certified radii of a fitted expansion: which bound applies, and what rounding takes from it."""

from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models import certificates
from models.expansions import LiveExpansion
from models.expansions.random_features import RandomFeatureSum
from models.expansions.support_vectors import SupportVectorSum
from models.rounding import EvaluationErrors, rbf_evaluation_errors

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
    return ["sharp", "paper"] if expansion.space.kernel.name == "rbf" else ["paper"]


def global_quantity(expansion: LiveExpansion) -> float:
    """The number all rows share, worth keeping: the curvature bound of random features, or ‖f‖² of an exact sum."""
    if isinstance(expansion, RandomFeatureSum):
        return expansion.curvature_bound()
    assert isinstance(expansion, SupportVectorSum)
    return expansion.squared_norm()


def radii(expansion: LiveExpansion, X: Tensor, signs: np.ndarray, bound: str, quantity: float) -> np.ndarray:
    """Certified L2 radii of the rows of X for labels `signs` (±1), shape (n,).

    `quantity` is what `global_quantity` gave.
    """
    found = _evaluate(expansion, X)
    margins = signs * found.scores
    if isinstance(expansion, RandomFeatureSum):
        errors = _feature_errors(expansion, X)
        return certificates.second_order_radius(
            margins, found.slopes, quantity, margin_error=errors.score + found.rounding, gradient_error=errors.gradient
        )
    assert isinstance(expansion, SupportVectorSum)
    errors = _kernel_errors(expansion, X, quantity)
    norm, margin_error = float(np.sqrt(quantity)), errors.score + found.rounding
    gamma = expansion.space.gammas[0]
    if bound == "paper":
        inverse = partial(expansion.space.kernel.inverse_profile, gamma=gamma)
        return certificates.paper_radius(margins, norm, inverse, margin_error=margin_error, norm_error=errors.norm)
    return certificates.sharp_radius(
        margins,
        found.slopes,
        norm,
        gamma,
        margin_error=margin_error,
        gradient_error=errors.gradient,
        norm_error=errors.norm,
    )


def _evaluate(expansion: LiveExpansion, X: Tensor) -> Evaluation:
    scores, gradients = expansion.scores_and_gradients(X.double(), dtype=torch.float64)
    exact = scores[:, 0].numpy()
    # Users and attacks see the model's own arithmetic. Its distance from float64 is measured where the margin is; eight
    # times that covers the neighbourhood.
    rounding = 8.0 * np.abs(expansion.scores(X)[:, 0].double().numpy() - exact)
    return Evaluation(exact, gradients[:, 0].norm(dim=1).numpy(), rounding)


def _feature_errors(expansion: RandomFeatureSum, X: Tensor) -> EvaluationErrors:
    """float64 error bounds of Σ_k w_k cos(ω_k·x + b_k) and its gradient's norm.

    The angle is off by at most d units of ‖ω‖‖x‖ plus its own last place, cos and sin pass that on; sums of K terms by
    K units of Σ|w_k| and Σ|w_k|‖ω_k‖. Doubled to cover second-order terms.
    """
    mass, first, second, n_terms = expansion.amplitude_moments()
    d = expansion.space.dimension
    lengths = X.double().norm(dim=1).numpy()
    score = 2 * _UNIT * ((d + 4) * lengths * first + (n_terms + 16) * mass)
    gradient = 2 * _UNIT * ((d + 4) * lengths * second + (n_terms + d + 16) * first)
    return EvaluationErrors(score, gradient, 0.0)


def _kernel_errors(expansion: SupportVectorSum, X: Tensor, squared_norm: float) -> EvaluationErrors:
    vectors, weights = expansion.live()
    points, coefficients = vectors.double().numpy(), weights[:, 0].numpy()
    gamma = expansion.space.gammas[0]
    if expansion.space.kernel.name == "rbf":
        return rbf_evaluation_errors(X.double().numpy(), points, coefficients, gamma, squared_norm)
    # exp(-gamma r): an error e of r² is at most e / r of r, and pairs too close for that were computed from differences
    # (kernels.squared_distances), where r² is at least 1e4·eps of the squared lengths.
    d = points.shape[1]
    mass = float(np.abs(coefficients).sum())
    reach = np.sqrt(np.square(points).sum(1).max(initial=0.0))
    lengths = X.double().norm(dim=1).numpy() + reach
    kernel_error = 2 * gamma * (d + 4) * np.sqrt(_UNIT) * lengths / 50 + (len(points) + 8) * 2 * _UNIT
    norm_error = mass * np.sqrt(float(2 * gamma * (d + 4) * np.sqrt(_UNIT) * 2 * reach / 50) + 4 * len(points) * _UNIT)
    return EvaluationErrors(mass * kernel_error, np.zeros(len(X)), norm_error)
