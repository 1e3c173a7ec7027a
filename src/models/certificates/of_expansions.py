"""Certificates of a fitted expansion: its form, its L2 radii, and what rounding takes from both.

`certificates_of` gives one of the two classes: for a sum of random features, or an exact sum of kernels. An expansion
of another kind registers its own; without, it is refused a certificate.
"""

from abc import ABC, abstractmethod
from functools import cached_property, partial, singledispatch
from typing import Any, ClassVar, NamedTuple

import numpy as np
import torch
from scipy.special import gammainc
from torch import Tensor

from models.certificates.contest import Form, Prove, Quick
from models.certificates.cosines import CosineSum, Moments, amplitude_moments, curvature_estimates, curvature_of
from models.certificates.gaussian import GaussianSum
from models.certificates.radii import paper_radius, second_order_radius, sharp_radius
from models.certificates.region import Region
from models.distances import chunks, row_norms, squared_distances
from models.expansions.expansion import LiveExpansion
from models.expansions.random_features import RandomFeatureSum
from models.expansions.support_vectors import SupportVectorSum
from models.rounding import UNIT32, UNIT64, NoCertificate, Sum

_ROUND = 64 * UNIT64


class Nearby(NamedTuple):
    """What tuning knows of c functions of one width around n points."""

    margins: np.ndarray  # (n, c), y·f(x)
    losses: np.ndarray  # (n, c), the most that y·∇f(x)·δ can fall
    slopes: np.ndarray  # (n, c), ‖∇f(x)‖₂
    lengths: np.ndarray  # (n, 1), largest ‖δ‖₂
    norms: np.ndarray  # (c,), ‖f‖ by the training recursion


class ExpansionCertificates(ABC):
    """What can be proved of f = expansion + offset, first column."""

    bounds: tuple[str, ...]  # names of the bounds that hold, the best first
    tuning_note: ClassVar[str] = ""  # how `tuning_bound` differs from the fitted model's own certificate, for the user

    def __init__(self, expansion: Any):
        self.expansion = expansion

    @abstractmethod
    def quantity(self) -> float:
        """The number all rows share, worth keeping: the other methods take it."""

    @abstractmethod
    def form(self, offset: float, quantity: float) -> Form:
        """f as ``models.certify`` asks about it."""

    @abstractmethod
    def tuning_bound(self, at: Nearby, columns: Tensor) -> np.ndarray:
        """Lower bound of y·f around a point, good enough to choose settings by, shape (n, c); rounding does not count.

        `columns`, shape (c,), are those that `at` is about.
        """

    def radii(self, X: Tensor, signs: np.ndarray, bound: str, quantity: float, offset: float) -> np.ndarray:
        """Certified L2 radii of the rows of X for labels `signs` (±1), shape (n,)."""
        at = Measured.of(self.expansion, X, signs, offset)
        radius = self._radii(at, X, bound, quantity)
        if not at.single:
            return radius
        # A float32 model rounds the row it is given and the attacked one, by a unit of their lengths.
        return np.maximum((radius - 2.01 * UNIT32 * at.lengths) / (1 + 2 * UNIT32), 0.0)

    @abstractmethod
    def _radii(self, at: "Measured", X: Tensor, bound: str, quantity: float) -> np.ndarray:
        """The same for the exact function of rows that are not rounded."""


class Measured(NamedTuple):
    """An expansion at some rows, in float64."""

    margins: np.ndarray  # (n,), y·f(x)
    offsets: np.ndarray  # (n,), what of it is y·offset
    slopes: np.ndarray  # (n,), ‖∇f(x)‖₂
    lengths: np.ndarray  # (n,), ‖x‖₂
    rounding: np.ndarray  # (n,), what the model's own arithmetic was seen to lose
    single: bool  # whether that is float32

    @classmethod
    def of(cls, expansion: Any, X: Tensor, signs: np.ndarray, offset: float) -> "Measured":
        """Evaluate at the rows of X, with labels ±1."""
        scores, gradients = expansion.scores_and_gradients(X.double(), dtype=torch.float64)
        exact, offsets = scores[:, 0].numpy(), signs * offset
        # Users and attacks see the model's own arithmetic. Its distance from float64 at x can be 0 by luck, so it only
        # counts where it exceeds what float32 is allowed everywhere.
        rounding = 8.0 * np.abs(expansion.scores(X)[:, 0].double().numpy() - exact)
        slopes = gradients[:, 0].norm(dim=1).numpy()
        return cls(signs * exact + offsets, offsets, slopes, _lengths(X), rounding, X.dtype != torch.float64)


@singledispatch
def certificates_of(expansion: LiveExpansion) -> ExpansionCertificates:
    """What can be proved of an expansion; register the classes of your own."""
    raise NoCertificate(f"no certificate is known for a {type(expansion).__name__}")


@certificates_of.register
def _(expansion: RandomFeatureSum) -> ExpansionCertificates:
    return FeatureCertificates(expansion)


@certificates_of.register
def _(expansion: SupportVectorSum) -> ExpansionCertificates:
    return KernelCertificates(expansion)


class FeatureCertificates(ExpansionCertificates):
    """Of a sum of random features; `quantity` is the bound of its curvature."""

    bounds = ("second_order",)
    tuning_note = ", with the curvature estimated by power iteration; the fitted model's own certificate is rigorous"

    def quantity(self) -> float:
        return float(curvature_of(self.expansion))

    def tuning_bound(self, at: Nearby, columns: Tensor) -> np.ndarray:
        curvature = curvature_estimates(self.expansion, columns).numpy()
        return at.margins - at.losses - 0.5 * curvature * at.lengths**2

    @cached_property
    def moments(self) -> Moments:
        return amplitude_moments(self.expansion)

    def form(self, offset: float, quantity: float) -> Form:
        return CosineSum(self.expansion, quantity, self.moments)

    def _radii(self, at: "Measured", X: Tensor, bound: str, quantity: float) -> np.ndarray:
        form = CosineSum(self.expansion, quantity, self.moments)
        score, gradient = form.errors(at.lengths)
        # At distance r from x the angle's error has grown by that of ‖ω‖r, which acts like a steeper gradient.
        allowed, steeper = form.float32_allowance(at.lengths) if at.single else (0.0, 0.0)
        score_error = score + np.maximum(at.rounding, allowed)
        return second_order_radius(
            at.margins, at.slopes, quantity, margin_error=score_error, gradient_error=gradient + steeper
        )


class KernelCertificates(ExpansionCertificates):
    """Of an exact sum; `quantity` is ‖f‖²."""

    def __init__(self, expansion: Any):
        super().__init__(expansion)
        self.kernel, self.gamma = expansion.space.kernel, expansion.space.gammas[0]
        self.bounds = self.kernel.bounds

    def quantity(self) -> float:
        return float(self.expansion.squared_norm())

    def form(self, offset: float, quantity: float) -> Form:
        if not self.bounds:
            raise NoCertificate(f"the {self.kernel.name} kernel offers no certificate: its `bounds` are empty")
        form = GaussianSum.of if self.kernel.gaussian else RadialSum
        return form(self.expansion, offset, quantity)

    def tuning_bound(self, at: Nearby, columns: Tensor) -> np.ndarray:
        kernel, gamma = self.kernel, self.expansion.space.gamma_of(columns, self.expansion.n_columns)
        # No choosing by a certificate that the fitted model would be refused.
        kernel.value_error(0.0, 0.0, self.expansion.space.dimension, gamma)
        if not kernel.gaussian:
            return at.margins - at.norms * np.sqrt(2.0 * kernel.drop(at.lengths, gamma))
        # The sharp bound, with the loss of the linear part in place of ‖∇f‖·r; see ``certificates.radii.sharp_radius``.
        u = gamma * np.square(at.lengths)
        rest = np.sqrt(np.maximum(at.norms**2 - at.margins**2 - at.slopes**2 / (2 * gamma), 0.0))
        return np.exp(-u) * (at.margins - at.losses) - rest * np.sqrt(gammainc(2.0, 2 * u))

    def _radii(self, at: "Measured", X: Tensor, bound: str, quantity: float) -> np.ndarray:
        kernel, gamma, norm, terms = self.kernel, self.gamma, float(np.sqrt(quantity)), terms_of(self.expansion)
        errors = kernel.evaluation_errors(
            at.lengths, terms, gamma, quantity, float(np.abs(at.offsets).max(initial=0.0))
        )

        def radii(float32_errors: np.ndarray | float) -> np.ndarray:
            # |f(x) - g(x)| ≤ ‖f - g‖ wherever x is: the radius is one of the sum without projections, too.
            allowance = np.maximum(at.rounding, self.expansion.projection_error + float32_errors)
            known = {"margin_error": errors.score + allowance, "norm_error": errors.norm}
            if bound == "sharp" and kernel.gaussian:
                own = {"offsets": at.offsets, "gradient_error": errors.gradient}
                return sharp_radius(at.margins, at.slopes, norm, gamma, **known, **own)
            if bound != "paper":
                raise NoCertificate(f"the {kernel.name} kernel offers the bound {bound!r} and does not prove it")
            return paper_radius(at.margins, norm, partial(kernel.inverse_profile, gamma=gamma), **known)

        radius = radii(0.0)
        if not at.single:
            return radius
        # What float32 loses in the larger ball covers the smaller one.
        lost = np.empty(len(X))
        for rows in chunks(len(X), len(terms.coefficients)):
            nearest = np.maximum(least_distances(self.expansion, X[rows]) - radius[rows, None], 0.0)
            lost[rows] = kernel.float32_errors(nearest, at.lengths[rows] + radius[rows], terms, gamma)
        return radii(lost)


class RadialSum:
    """f(x) = h(x) + b, h a sum of any kernel g(‖x - x'‖): what the value of h at x alone can prove.

    k(x,·) and k(x+δ,·) have length 1 and the inner product g = g(‖δ‖), h has the component h(x) along the first. So

        y·f(x+δ) ≥ y·b + g·y·h(x) - sqrt(1 - g²) sqrt(‖h‖² - h(x)²),

    never below the paper's bound, and no better one follows from h(x) and ‖h‖.
    """

    stages: ClassVar[tuple[tuple[Prove, int], ...]] = ()

    def __init__(self, expansion: Any, offset: float, squared_norm: float):
        self.expansion, self.offset, self.squared_norm = expansion, offset, squared_norm
        self.terms = terms_of(expansion)

    def quick(self, X: np.ndarray, signs: np.ndarray) -> Quick:
        kernel, gamma = self.expansion.space.kernel, self.expansion.space.gammas[0]
        scores = self.expansion.scores(torch.from_numpy(X), dtype=torch.float64)[:, 0].numpy()
        values, offsets = signs * scores, signs * self.offset
        lengths = np.linalg.norm(X, axis=1)
        errors = kernel.evaluation_errors(lengths, self.terms, gamma, self.squared_norm, self.offset)
        largest = (np.sqrt(self.squared_norm) + errors.norm) * (1 + _ROUND)
        known = np.maximum(np.abs(values) - errors.score, 0.0)
        rest = np.sqrt(np.maximum(largest**2 - known**2 * (1 - _ROUND), 0.0)) * (1 + _ROUND)
        single = self.expansion.space.dtype != torch.float64
        distances = least_distances(self.expansion, torch.from_numpy(X)) if single else None

        def proves(where: Region) -> np.ndarray:
            drop = kernel.drop(where.radius, gamma) * (1 + _ROUND)
            # Between g and 1 a positive value is worst at g, a negative one at 1.
            low = values - errors.score
            faded = np.where(low > 0, low * (1 - drop), low)
            unknown = rest * np.sqrt(drop * (2 - drop)) * (1 + _ROUND)
            there = kernel.evaluation_errors(lengths + where.radius, self.terms, gamma, 0.0, self.offset).score
            if distances is not None:
                nearest = np.maximum(distances - where.radius[:, None], 0.0)
                there = there + kernel.float32_errors(nearest, lengths + where.radius, self.terms, gamma)
            lost = there + self.expansion.projection_error + _ROUND * (np.abs(offsets) + np.abs(values) + unknown)
            return offsets + faded - unknown - lost > 0

        return Quick(values + offsets, proves)


def terms_of(expansion: Any) -> Sum:
    """What rounding depends on in an exact sum, first column."""
    vectors, weights = expansion.live()
    used = int(vectors.ne(0).any(0).sum())
    return Sum(weights[:, 0].numpy(), _lengths(vectors), expansion.space.dimension, used)


def least_distances(expansion: Any, X: Tensor) -> np.ndarray:
    """Lower bounds of ‖x - s_i‖ from the rows of X to the vectors of an exact sum, shape (n, m)."""
    rows, vectors = X.double(), expansion.live()[0].double()
    squared = squared_distances(rows, vectors, row_norms(rows), row_norms(vectors)).numpy()
    spans = np.square(_lengths(rows)[:, None] + _lengths(vectors))
    return np.sqrt(np.maximum(squared - 2 * UNIT64 * (rows.shape[1] + 4) * spans, 0.0)) * (1 - _ROUND)


def _lengths(rows: Tensor) -> np.ndarray:
    """‖x‖₂ of every row in float64, without a copy of the rows."""
    return torch.linalg.vector_norm(rows, dim=1, dtype=torch.float64).numpy()
