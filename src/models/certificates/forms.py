"""What a fitted expansion offers to be certified by."""

from typing import ClassVar

import numpy as np
import torch

from models.certificates.api import Form, Prove, Quick
from models.certificates.cosines import CosineSum
from models.certificates.expansions import bounds_offered, global_quantity
from models.certificates.gaussian import GaussianSum, float32_allowance
from models.certificates.region import Region
from models.expansions import LiveExpansion
from models.expansions.random_features import RandomFeatureSum
from models.expansions.support_vectors import SupportVectorSum
from models.rounding import UNIT64, NoCertificate, Sum

_ROUND = 64 * UNIT64


class RadialSum:
    """f(x) = h(x) + b, h a sum of any kernel g(‖x - x'‖): what the value of h at x alone can prove.

    k(x,·) and k(x+δ,·) have length 1 and the inner product g = g(‖δ‖), h has the component h(x) along the first. So

        y·f(x+δ) ≥ y·b + g·y·h(x) - sqrt(1 - g²) sqrt(‖h‖² - h(x)²),

    never below the paper's bound, and no better one follows from h(x) and ‖h‖.
    """

    stages: ClassVar[tuple[tuple[Prove, int], ...]] = ()

    def __init__(self, expansion: SupportVectorSum, offset: float, squared_norm: float):
        self.expansion, self.offset, self.squared_norm = expansion, offset, squared_norm
        vectors, weights = expansion.live()
        lengths = torch.linalg.vector_norm(vectors, dim=1, dtype=torch.float64)
        reach = float(lengths.max()) if len(lengths) else 0.0
        self.terms = Sum(weights[:, 0].numpy(), reach, expansion.space.dimension)

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
        allowance = kernel.float32_allowance(self.terms, gamma, float(largest)) if single else 0.0

        def proves(where: Region) -> np.ndarray:
            drop = kernel.drop(where.radius, gamma) * (1 + _ROUND)
            # Between g and 1 a positive value is worst at g, a negative one at 1.
            low = values - errors.score
            faded = np.where(low > 0, low * (1 - drop), low)
            unknown = rest * np.sqrt(drop * (2 - drop)) * (1 + _ROUND)
            there = kernel.evaluation_errors(lengths + where.radius, self.terms, gamma, 0.0, self.offset).score
            lost = there + allowance + _ROUND * (np.abs(offsets) + np.abs(values) + unknown)
            return offsets + faded - unknown - lost > 0

        return Quick(values + offsets, proves)


def form_of(expansion: LiveExpansion, offset: float = 0.0, quantity: float | None = None) -> Form:
    """The form of f = expansion + offset; `quantity` is what `global_quantity` gave, if it is known."""
    quantity = global_quantity(expansion) if quantity is None else quantity
    if isinstance(expansion, RandomFeatureSum):
        return CosineSum(expansion, quantity)
    assert isinstance(expansion, SupportVectorSum)
    offered = bounds_offered(expansion)
    if not offered:
        raise NoCertificate(f"the {expansion.space.kernel.name} kernel offers no certificate: its `bounds` are empty")
    if "sharp" not in offered:
        return RadialSum(expansion, offset, quantity)
    vectors, coefficients = expansion.live()
    centers, weights = vectors.double().numpy(), coefficients[:, 0].numpy()
    gamma, single = expansion.space.gammas[0], expansion.space.dtype != torch.float64
    allowance = float32_allowance(weights, centers, gamma, quantity) if single else 0.0
    return GaussianSum(centers, weights, gamma, offset, allowance)
