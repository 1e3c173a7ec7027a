"""Kernels k(x, x') = g(‖x - x'‖₂), g decreasing, g(0) = 1, with everything the rest of the package asks of one.

A kernel says how it looks as a function of the squared distance (training, prediction), of the distance (the training
penalty ε' and the paper's certificate), in frequency space (random features), and in floating point (certificates).
A new kernel is one subclass of `Kernel`; defining it registers it under its `name`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, NoReturn

import numpy as np
import torch
from torch import Tensor

from models.distances import pair_distances
from models.limits import POSITIVE, at_most
from models.registry import Registered
from models.rounding import UNIT32, UNIT64, EvaluationErrors, NoCertificate, Sum

Values = np.ndarray | float

# What of a kernel holds for its own g only.
_FACTS_OF_G = ("bounds", "gaussian", "refine_distances")
_ROUNDING_OF_G = ("value_error", "gradient_error", "spread")
# Methods of earlier versions that would be overlooked in silence.
_NO_LONGER_ASKED = ("form", "radii", "sum", "lowest_nearby", "float32_sensitivity")
# Rows the median rule looks at: 500,000 pairs put the median within about 0.2 % of the full one.
_MEDIAN_ROWS = 1000


@dataclass(frozen=True)
class Kernel(Registered, ABC, family="kernel"):
    """What all kernels share: the width rule, and rounding as far as it does not depend on g.

    Parameters
    ----------
    width_scale : float
        How narrow the kernel is relative to the data, used while `gamma` is None.
    gamma : float or None
        The width itself; None takes it from the data by `resolve_gamma`.
    """

    # Limits far beyond what a kernel can mean; what is larger overflows in single precision half-way through a run.
    width_scale: Annotated[float, POSITIVE, at_most(1e9)] = 4.0
    gamma: Annotated[float | None, POSITIVE, at_most(1e30)] = None

    # Certificates that hold for exact sums of this kernel, the best first; a kernel without `value_error` gets none.
    bounds: ClassVar[tuple[str, ...]] = ("paper",)
    # Whether g(r) = exp(-gamma r²): faster sums and sharper certificates are known for it.
    gaussian: ClassVar[bool] = False
    # Whether close pairs need distances from differences (see `squared_distances`).
    refine_distances: ClassVar[bool] = False
    # gamma = width_scale / median(distance) ** median_power keeps g(median distance) = exp(-width_scale).
    median_power: ClassVar[int]

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        gone = [name for name in _NO_LONGER_ASKED if name in cls.__dict__]
        if gone:
            raise TypeError(f"{cls.__name__}.{gone[0]} is no longer asked: a kernel states facts of g, and no proofs")
        if "from_squared_distance_" in cls.__dict__:
            # Another g: what was proved about a parent's does not carry over.
            for fact in (*_FACTS_OF_G, *_ROUNDING_OF_G):
                if fact not in cls.__dict__:
                    setattr(cls, fact, Kernel.__dict__[fact])

    def resolve_gamma(self, X: Any, seed: int) -> float:
        """`gamma`, or `width_scale` / median(‖x - x'‖) ** `median_power` over a seeded subsample of the rows of X."""
        if self.gamma is not None:
            return float(self.gamma)
        return self.width_scale / median_distance(X, seed) ** self.median_power

    @abstractmethod
    def from_squared_distance_(self, squared: Tensor, gamma: float) -> Tensor:
        """Kernel values from squared distances, written over them."""

    @abstractmethod
    def slope(self, squared: Tensor, values: Tensor, gamma: float) -> Tensor:
        """dk/d(r²), so that the gradient of k(x, s) in x is 2 · slope · (x - s)."""

    @abstractmethod
    def drop(self, distance: Values, gamma: float) -> np.ndarray:
        """1 - g(r), exact also for tiny r."""

    @abstractmethod
    def inverse_profile(self, value: np.ndarray, gamma: float) -> np.ndarray:
        """g⁻¹: the distance at which the kernel has fallen to `value` in (0, 1]."""

    @abstractmethod
    def frequency_lengths(self, rng: np.random.Generator, n_features: int) -> np.ndarray | None:
        """What makes standard normal vectors draws of the spectral measure at frequency_scale 1.

        The measure of every g that is a kernel in all dimensions is a scale mixture of normals (Schoenberg): factors of
        shape (n_features,), float32, or None for all ones.
        """

    @abstractmethod
    def frequency_scale(self, gamma: float) -> float:
        """What unit frequencies are multiplied by for this `gamma`; widths differ in nothing else."""

    def profile(self, distance: Values, gamma: float) -> np.ndarray:
        """g(r)."""
        return 1.0 - self.drop(distance, gamma)

    def penalty(self, epsilon: float, gamma: float) -> float:
        """ε' = sqrt(2g(0) - 2g(ε)): how far a feature vector moves when x moves by ε in L2."""
        return float(np.sqrt(2.0 * self.drop(epsilon, gamma)))

    # -- rounding ------------------------------------------------------------------------------------------------------
    def value_error(self, lengths: Values, reach: float, dimension: int, gamma: float) -> Values:
        """Bound of |computed - exact| of one kernel value in float64, ‖x‖ = `lengths` (n,), ‖s‖ ≤ `reach`."""
        self._refuse("value_error")

    def spread(self, squared: np.ndarray, off: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        """The largest value that a squared distance off by `off` may give, and by how much two such values differ."""
        least = self.drop(np.sqrt(np.maximum(squared - off, 0.0)), gamma)
        return 1.0 - least, self.drop(np.sqrt(squared + off), gamma) - least

    def _refuse(self, method: str) -> NoReturn:
        raise NoCertificate(
            f"the {self.name} kernel states no rounding bound ({type(self).__name__}.{method}): exact sums of it "
            "have no certificate"
        )

    def evaluation_errors(
        self, lengths: np.ndarray, terms: Sum, gamma: float, squared_norm: float, offset: float = 0.0
    ) -> EvaluationErrors:
        """Error bounds for h(x) = Σ_i a_i k(x, s_i) + offset, evaluated in float64 in the usual way.

        The usual way: squared distances as ‖x‖² + ‖s‖² - 2 x·s clipped at 0, scores k·a, and the squared norm aᵀKa,
        `squared_norm`. All bounds are doubled to cover second-order terms. `lengths`, shape (n,), are ‖x‖ of the rows.
        Raises NoCertificate if the kernel does not state the error of its values.
        """
        one = self.value_error(lengths, terms.reach, terms.dimension, gamma)
        gram = float(self.value_error(terms.reach, terms.reach, terms.dimension, gamma))
        summing = 2 * UNIT64 * (len(terms.coefficients) + 4)
        score = np.asarray(terms.mass * (one + summing) + 4 * UNIT64 * abs(offset))
        largest = np.sqrt(max(squared_norm, 0.0) + terms.mass**2 * (gram + 2 * summing))
        gradient = self.gradient_error(lengths, terms, gamma, one + summing)
        return EvaluationErrors(score, gradient, float(largest - np.sqrt(max(squared_norm, 0.0))))

    def gradient_error(self, lengths: np.ndarray, terms: Sum, gamma: float, one: Values) -> np.ndarray:
        """Error bound of ‖∇h(x)‖, shape (n,), given that of one term of h; infinite if the kernel knows none."""
        return np.full(len(lengths), np.inf)

    def float32_errors(self, nearest: np.ndarray, lengths: np.ndarray, terms: Sum, gamma: float) -> np.ndarray:
        """How far float32 scores of h(x) = Σ_i a_i k(x, s_i) may be from h, shape (n,).

        `nearest`, shape (n, m), are lower bounds of ‖x - s_i‖, and `lengths`, shape (n,), upper ones of ‖x‖: both may
        hold all over a region. No error is taken for independent of another: equal rows have equal ones.

        - A squared distance D, one product and two squared lengths, is off by as many units of its parts as they have
          terms: by e at most. As a function of D the kernel falls and is convex (it is completely monotone:
          Schoenberg), so that e costs most where D is smallest.
        - Summing n terms adds n units of Σ|a_i|k(x, s_i), the exponential and the weights a few.
        """
        units = (terms.used + 8) * np.square(lengths[:, None] + terms.lengths)
        units += terms.dimension * np.square(lengths)[:, None] + terms.used * np.square(terms.lengths)
        off = (1 + 1e-3) * UNIT32 * units
        largest, apart = self.spread(np.square(nearest), off, gamma)
        each = apart + (len(terms.coefficients) + 12) * UNIT32 * largest
        return (each @ np.abs(terms.coefficients)) * (1 + 1e-6)


@dataclass(frozen=True)
class RBF(Kernel):
    """g(r) = exp(-gamma r²); spectral measure N(0, 2·gamma·I). Default gamma: width_scale / median(‖x - x'‖)²."""

    name: ClassVar[str] = "rbf"
    gaussian: ClassVar[bool] = True
    bounds: ClassVar[tuple[str, ...]] = ("sharp", "paper")
    median_power: ClassVar[int] = 2

    def from_squared_distance_(self, squared: Tensor, gamma: float) -> Tensor:
        return squared.mul_(-gamma).exp_()

    def slope(self, squared: Tensor, values: Tensor, gamma: float) -> Tensor:
        return values * -gamma

    def drop(self, distance: Values, gamma: float) -> np.ndarray:
        return -np.expm1(-gamma * np.square(distance, dtype=np.float64))

    def inverse_profile(self, value: np.ndarray, gamma: float) -> np.ndarray:
        return np.sqrt(-np.log(value) / gamma)

    def frequency_lengths(self, rng: np.random.Generator, n_features: int) -> np.ndarray | None:
        return None

    def frequency_scale(self, gamma: float) -> float:
        return float(np.sqrt(2.0 * gamma))

    def spread(self, squared: np.ndarray, off: np.ndarray, gamma: float) -> tuple[np.ndarray, np.ndarray]:
        largest = np.exp(-gamma * np.maximum(squared - off, 0.0))
        return largest, largest * -np.expm1(-2 * gamma * off)

    def value_error(self, lengths: Values, reach: float, dimension: int, gamma: float) -> Values:
        # A dot product of length d is off by at most d units of ‖x‖‖s‖; exp(-gamma D) ≤ 1 passes on at most gamma times
        # the error of D.
        return 2 * UNIT64 * (gamma * (dimension + 4) * np.square(lengths + reach) + 4)

    def gradient_error(self, lengths: np.ndarray, terms: Sum, gamma: float, one: Values) -> np.ndarray:
        # Of 2·gamma·((k∘a) S - h x).
        spread = 2 * gamma * terms.mass * (lengths + terms.reach)
        return spread * (one + 2 * UNIT64 * (terms.dimension + 4))


@dataclass(frozen=True)
class Laplacian(Kernel):
    """g(r) = exp(-gamma r) of the **L2** distance; spectral measure the multivariate Cauchy distribution.

    Libraries often call exp(-gamma ‖x - x'‖₁) Laplacian. The adversarial penalty and the certificate need a function of
    the L2 distance, so this is the L2 one (Matérn 1/2). Default gamma: width_scale / median(‖x - x'‖).
    """

    name: ClassVar[str] = "laplacian"
    refine_distances: ClassVar[bool] = True
    median_power: ClassVar[int] = 1

    def from_squared_distance_(self, squared: Tensor, gamma: float) -> Tensor:
        return squared.sqrt_().mul_(-gamma).exp_()

    def slope(self, squared: Tensor, values: Tensor, gamma: float) -> Tensor:
        # At r = 0 the kernel has a kink; 0, the mean of the one-sided derivatives, is the subgradient taken there.
        distance = squared.sqrt()
        return torch.where(distance > 0, values * (-0.5 * gamma) / distance, 0.0)

    def drop(self, distance: Values, gamma: float) -> np.ndarray:
        return -np.expm1(-gamma * np.asarray(distance, dtype=np.float64))

    def inverse_profile(self, value: np.ndarray, gamma: float) -> np.ndarray:
        return -np.log(value) / gamma

    def frequency_lengths(self, rng: np.random.Generator, n_features: int) -> np.ndarray | None:
        # A normal vector over an independent |normal| is Cauchy. The floor keeps float32 finite (one feature in 1e6).
        return 1 / np.maximum(np.abs(rng.standard_normal(n_features, dtype=np.float32)), np.float32(1e-6))

    def frequency_scale(self, gamma: float) -> float:
        return float(gamma)

    def value_error(self, lengths: Values, reach: float, dimension: int, gamma: float) -> Values:
        # An error e of r² is at most e / r of r, and pairs too close for that were computed from differences
        # (`squared_distances`), where r² is at least 1e4·eps of the squared lengths.
        return 2 * gamma * (dimension + 4) * np.sqrt(UNIT64) * (lengths + reach) / 50 + 8 * UNIT64


def median_distance(X: Any, seed: int) -> float:
    """Median of the positive L2 distances between at most 1,000 rows of X drawn with `seed`."""
    n_rows = X.shape[0]
    rows = np.arange(n_rows)
    if n_rows > _MEDIAN_ROWS:
        rows = np.sort(np.random.default_rng([seed, 0]).choice(n_rows, _MEDIAN_ROWS, replace=False))
    sample = X[rows]
    pairs = pair_distances(sample, sample, refine=True)
    squared = pairs[tuple(torch.triu_indices(len(rows), len(rows), offset=1))]
    positive = squared[squared > 0].sqrt_()
    if len(positive) == 0:
        raise ValueError(
            f"The median distance between the rows of X is 0 (n_samples = {n_rows}, all rows equal): the kernel width "
            "cannot be chosen from this data. Set gamma of the kernel."
        )
    return float(positive.median())
