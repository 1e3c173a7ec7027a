"""Sums of random features, f(x) = Σ_k w_k cos(ω_k·x + b_k): a parabola below every cosine.

With θ_k the angle at the centre and t = ω_k·δ, |t| ≤ τ_k, every cosine has a tangent parabola below it,

    cos(θ+t) ≥ cos θ - t sin θ + ψ t²,     ψ = min over these t of (cos(θ+t) - cos θ + t sin θ) / t².

ψ lies between -1/2 (the worst curvature anywhere, what the global second-order bound takes for all) and +1/2: at the
bottom of a cosine, θ = π, it is positive up to τ = 2π. Negative weights turn θ by π. So f is at least constant +
gradient·δ + δᵀMδ with M = Σ_k |w_k| ψ_k ω_k ω_kᵀ, whatever the dimension; where τ is small it is the local Hessian less
the third order at its worst.
"""

from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
import torch

from models.certificates.contest import Prove, Quick
from models.certificates.definite import curvature_bound_of_blocks
from models.certificates.places import Directions, Place, places, positive_on, proved_one_by_one, signed_gram
from models.certificates.quartics import MANY, Quartic, quartic_of, usual_price
from models.certificates.region import Region, lowest_linear
from models.expansions.random_features import RandomFeatureSum
from models.rounding import UNIT32, UNIT64

# Numbers the frequencies may hold for the proof by parabolas, which needs them all at once in float64.
_LARGEST = 2**27
_ANGLES, _STEP, _FAR = 2048, 0.01, 12.0


@cache
def _lowest_bends() -> np.ndarray:
    """ψ for 0 ≤ t ≤ τ on a grid of angles and of τ = 0, _STEP, …, _FAR, rounded down, shape (_ANGLES, n).

    The quotient is -∫₀¹ (1-s) cos(θ+st) ds, which changes by at most 1/2 per unit of θ and 1/6 per unit of t: half a
    step of each is what the grid may miss.
    """
    angles = np.arange(_ANGLES)[:, None] * (2 * np.pi / _ANGLES)
    moves = np.arange(1, round(_FAR / _STEP) + 1) * _STEP
    even, odd = 2 * np.sin(0.5 * moves) ** 2 / moves**2, _beyond_sine(moves) / moves**2
    lowest = np.empty((_ANGLES, len(moves) + 1))
    lowest[:, 0] = -0.5 * np.cos(angles[:, 0])
    lowest[:, 1:] = -np.cos(angles) * even + np.sin(angles) * odd
    lowest = np.minimum.accumulate(lowest, axis=1)
    return lowest - 0.5 * (np.pi / _ANGLES) - _STEP / 6 - 1e-6


def _beyond_sine(t: np.ndarray) -> np.ndarray:
    """t - sin t."""
    series = t**3 / 6 * (1 - t**2 / 20 * (1 - t**2 / 42 * (1 - t**2 / 72)))
    return np.where(np.abs(t) < 0.1, series, t - np.sin(t))


def lowest_bends(angles: np.ndarray, below: np.ndarray, above: np.ndarray) -> np.ndarray:
    """ψ for -below ≤ t ≤ above, rounded down, shape (m,)."""
    # cos(θ+t) is cos(-θ-t): the left side of θ is the right side of -θ.
    return np.minimum(_to_the_right(angles, above), _to_the_right(-angles, below))


def _to_the_right(angles: np.ndarray, reaches: np.ndarray) -> np.ndarray:
    table = _lowest_bends()
    places = np.rint(np.mod(angles, 2 * np.pi) * (_ANGLES / (2 * np.pi))).astype(np.intp) % _ANGLES
    steps = np.minimum(np.ceil(reaches / _STEP), table.shape[1] - 1).astype(np.intp)
    found = table[places, steps]
    # Beyond the table the quotient is at least -(2 + |t|)/t².
    far = (2 + _FAR) / _FAR**2
    return np.where(reaches > _FAR - _STEP, np.minimum(found, -far), found)


class FeatureBank:
    """Random features in float64, held once for all machines that share them."""

    def __init__(self, expansion: Any, numbers: list[int]):
        self.expansion, self.numbers = expansion, numbers
        self._last: SeenFeatures | None = None

    @cached_property
    def features(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Frequencies (m, d), their lengths (m,) and phases (m,)."""
        scale = self.expansion.space.kernel.frequency_scale(self.expansion.space.gammas[0])
        stream = self.expansion.stream.in_dtype(torch.float64)
        blocks = [stream.block(number) for number in self.numbers]
        frequencies = np.concatenate([block.frequencies.t().numpy() * scale for block in blocks])
        lengths = np.linalg.norm(frequencies, axis=1) * (1 + frequencies.shape[1] * UNIT64)
        return frequencies, lengths, np.concatenate([block.phases.numpy() for block in blocks])

    @cached_property
    def directions(self) -> Directions:
        return Directions.of(self.features[0])

    def seen_from(self, place: Place) -> "SeenFeatures":
        """The last answer is kept: the comparisons of one row are asked one after the other."""
        if self._last is None or not place.equals(self._last.place):
            self._last = SeenFeatures(self, place)
        return self._last


@dataclass(frozen=True)
class SeenFeatures:
    """Features around a place."""

    bank: FeatureBank
    place: Place

    @cached_property
    def angles(self) -> np.ndarray:
        """At the centre, shape (m,)."""
        frequencies, _, phases = self.bank.features
        return frequencies @ self.place.center + phases

    @cached_property
    def reaches(self) -> tuple[np.ndarray, np.ndarray]:
        """How far the angles may fall and rise, two arrays of shape (m,)."""
        return self.place.reaches(self.bank.directions)


class CosineSum:
    """The form of a random-feature expansion; `curvature` bounds ‖∇²f‖₂ everywhere."""

    def __init__(self, expansion: RandomFeatureSum, curvature: float, moments: "Moments | None" = None):
        self.expansion, self.curvature = expansion, curvature
        self.single = expansion.space.dtype != torch.float64
        self.mass, self.first, self.second, self.n_terms = moments or amplitude_moments(expansion)

    @property
    def stages(self) -> tuple[tuple[Prove, int], ...]:
        d = self.expansion.space.dimension
        if self.n_terms * d > _LARGEST:
            return ()
        return ((self.proves_by_parabolas, 1), (self.proves_by_quartics, 16))[: 2 if d <= MANY else 1]

    # -- the function --------------------------------------------------------------------------------------------------
    def _at(self, X: np.ndarray, signs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, gradients = self.expansion.scores_and_gradients(torch.from_numpy(X), dtype=torch.float64)
        return signs * scores[:, 0].numpy(), signs[:, None] * gradients[:, 0].numpy()

    def errors(self, lengths: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Error bounds of scores and gradients in float64 at points of these lengths.

        The angle is off by at most d units of ‖ω‖‖x‖ plus its own last place, cos and sin pass that on; sums of K terms
        by K units of Σ|w_k| and Σ|w_k|‖ω_k‖. Doubled to cover second-order terms.
        """
        d = self.expansion.space.dimension
        score = 2 * UNIT64 * ((d + 4) * lengths * self.first + (self.n_terms + 16) * self.mass)
        gradient = 2 * UNIT64 * ((d + 4) * lengths * self.second + (self.n_terms + d + 16) * self.first)
        return score, gradient

    def float32_allowance(self, lengths: np.ndarray) -> tuple[np.ndarray, float]:
        """What to allow float32 at points of these lengths, and how much more per unit of length.

        √d and √K stand for d and K: an allowance for independent errors, not a proof.
        """
        steeper = UNIT32 * (np.sqrt(self.expansion.space.dimension) + 4) * self.first
        return steeper * lengths + UNIT32 * (np.sqrt(self.n_terms) + 16) * self.mass, float(steeper)

    def required_margins(self, where: Region) -> np.ndarray:
        """What sign·f must exceed at the attacked point for its computed score to have that sign, shape (n,)."""
        lengths = np.linalg.norm(where.X, axis=1) + where.radius
        return (self.float32_allowance if self.single else self.errors)(lengths)[0]

    # -- proofs --------------------------------------------------------------------------------------------------------
    def quick(self, X: np.ndarray, signs: np.ndarray) -> Quick:
        """The global curvature at its worst, the linear term over ball and box."""
        margins, gradients = self._at(X, signs)
        score_error, gradient_error = self.errors(np.linalg.norm(X, axis=1))

        def proves(where: Region) -> np.ndarray:
            sloped = lowest_linear(gradients, where) - gradient_error * where.radius
            bent = 0.5 * self.curvature * where.radius**2 * (1 + 16 * UNIT64)
            lost = score_error + self.required_margins(where) + 16 * UNIT64 * (np.abs(margins) - sloped + bent)
            return margins + sloped - bent - lost > 0

        return Quick(margins, proves)

    @cached_property
    def bank(self) -> FeatureBank:
        return FeatureBank(self.expansion, [number for number, _ in self.expansion.live_blocks()])

    @cached_property
    def _features(self) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Frequencies (m, d), their lengths (m,), phases (m,) and weights (m,) in float64."""
        weights = np.concatenate([weights[:, 0].double().numpy() for _, weights in self.expansion.live_blocks()])
        return *self.bank.features, weights

    def proves_by_parabolas(self, where: Region, signs: np.ndarray) -> np.ndarray:
        """The parabolas of this module, proved positive by Cholesky."""
        return proved_one_by_one(self._positive, where, signs, self.required_margins(where))

    def _positive(self, place: Place, cell: bool, sign: float, required_margin: float) -> bool:
        frequencies, _, _, weights = self._features
        angles, constant, gradient = self._expanded(place, sign, required_margin)
        if not constant + float(lowest_linear(gradient[None], place.region())[0]) > 0:
            return False
        weights, mass = sign * weights, np.abs(weights)
        bends = mass * lowest_bends(np.where(weights > 0, angles, angles + np.pi), *self.bank.seen_from(place).reaches)
        return positive_on(place, cell, constant, gradient, _weighted_products(frequencies, bends))

    def _expanded(self, place: Place, sign: float, required_margin: float) -> tuple[np.ndarray, float, np.ndarray]:
        """Angles at the centre, sign·f less the margin it needs and what rounding may hide, and its gradient."""
        frequencies, lengths, _, weights = self._features
        angles = self.bank.seen_from(place).angles
        mass, d, radius = np.abs(weights), len(place.center), place.radius
        # Angles and products are off by d units, sums by K; of order n in δ, Σ|w|(‖ω‖ρ)^n enters.
        reach = radius + float(np.linalg.norm(place.center))
        grown = float(mass @ ((1 + lengths * reach) * (1 + lengths * radius) ** 4))
        slack = 16 * UNIT64 * (len(mass) + d + 16) * grown
        constant = sign * float(weights @ np.cos(angles)) - required_margin - slack
        return angles, constant, -sign * ((weights * np.sin(angles)) @ frequencies)

    @cached_property
    def _quartic(self) -> Quartic:
        return quartic_of(self._features[0], np.abs(self._features[3]))

    @cached_property
    def _usual_price(self) -> float:
        return usual_price(self._features[0], np.abs(self._features[3]))

    def proves_by_quartics(self, where: Region, signs: np.ndarray) -> np.ndarray:
        """The fourth-order bound of ``models.certificates.quartics``, proved positive by Cholesky."""
        frequencies, _, _, weights = self._features
        required_margins, proved, known = self.required_margins(where), np.zeros(len(where), dtype=bool), {}
        for row, place, cell in places(where):
            angles, constant, gradient = self._expanded(place, float(signs[row]), float(required_margins[row]))
            if constant + float(lowest_linear(gradient[None], place.region())[0]) > 0:
                hessian = -(frequencies * (signs[row] * weights * np.cos(angles))[:, None]).T @ frequencies
                # Cubics and N cost the most: not for points where the usual price of the quartic says no already.
                price = self._usual_price * place.radius**4
                if positive_on(place, cell, constant - price, gradient, hessian / 2):
                    known[row] = place, cell, angles, constant, gradient, hessian
        if not known:
            return proved
        sines = np.stack([signs[row] * weights * np.sin(angles) / 6 for row, (_, _, angles, *_) in known.items()])
        for row, cubic, off in zip(known, *self._quartic.products.cubics(frequencies, sines)):
            place, cell, _, constant, gradient, hessian = known[row]
            below = self._quartic.minorant(place, constant, gradient, hessian, cubic, float(off))
            proved[row] = positive_on(place, cell, *below)
        return proved


def _weighted_products(frequencies: np.ndarray, factors: np.ndarray) -> np.ndarray:
    """Σ_k factors_k ω_k ω_kᵀ, shape (d, d), at least its lower triangle."""
    if frequencies.shape[1] <= MANY:
        # Copying the frequencies costs more than the half of the product that symmetry saves.
        return (frequencies * factors[:, None]).T @ frequencies
    return signed_gram(frequencies, factors)


def curvature_of(expansion: RandomFeatureSum) -> float:
    """Rigorous bound of ‖∇²f‖₂ everywhere, first column."""
    scale = expansion.space.kernel.frequency_scale(expansion.space.gammas[0])
    stream = expansion.stream.in_dtype(torch.float64)
    return curvature_bound_of_blocks(
        (stream.block(number).frequencies.t().numpy() * scale, weights[:, 0].double().numpy())
        for number, weights in expansion.live_blocks()
    )


Moments = tuple[float, float, float, int]


def amplitude_moments(expansion: RandomFeatureSum) -> Moments:
    """Σ|w_k|, Σ|w_k|‖ω_k‖, Σ|w_k|‖ω_k‖² and the number of features, first column."""
    scale = expansion.space.kernel.frequency_scale(expansion.space.gammas[0])
    moments, blocks = torch.zeros(3, dtype=torch.float64), list(expansion.live_blocks())
    for number, weights in blocks:
        frequencies = expansion.stream.block(number).frequencies
        lengths = frequencies.square().sum(0).sqrt_().double() * scale
        amplitudes = weights[:, 0].double().abs()
        moments += torch.stack([(amplitudes * lengths**power).sum() for power in range(3)])
    mass, first, second = moments.tolist()
    return mass, first, second, len(blocks) * expansion.n_features


def curvature_estimates(expansion: RandomFeatureSum, columns: torch.Tensor, iterations: int = 12) -> torch.Tensor:
    """λ_max(Σ_k |w_k| ω_k ω_kᵀ) for many columns of one width, by power iteration: a little low, for tuning."""
    space = expansion.space
    scale = space.kernel.frequency_scale(space.gamma_of(columns, expansion.n_columns))
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(space.dimension, len(columns), dtype=space.dtype, generator=generator)
    values = torch.zeros(len(columns), dtype=space.dtype)
    for _ in range(iterations):
        vectors /= vectors.norm(dim=0).clamp_(min=torch.finfo(vectors.dtype).tiny)
        product = torch.zeros_like(vectors)
        for number, weights in expansion.live_blocks():
            frequencies = expansion.stream.block(number).frequencies
            product += frequencies @ (weights[:, columns].abs() * (frequencies.t() @ vectors))
        values = product.norm(dim=0)
        vectors = product
    return values.double() * scale**2
