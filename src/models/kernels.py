"""Kernels k(x, x') = g(‖x - x'‖₂), g decreasing, g(0) = 1, with what each one needs everywhere else.

A kernel says how it looks as a function of the squared distance (training, prediction), of the distance (the training
penalty ε' and the paper's certificate), and in frequency space (random features).
"""

from abc import ABC, abstractmethod
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

# Rows the median rule looks at: 500,000 pairs put the median within about 0.2 % of the full one.
_MEDIAN_ROWS = 1000


@dataclass(frozen=True)
class Kernel(ABC):
    """What all kernels share: the width rule.

    Parameters
    ----------
    width_scale : float
        How narrow the kernel is relative to the data, used while `gamma` is None.
    gamma : float or None
        The width itself; None takes it from the data by `resolve_gamma`.
    """

    width_scale: float = 4.0
    gamma: float | None = None

    name: ClassVar[str]
    # gamma = width_scale / median(distance) ** median_power keeps g(median distance) = exp(-width_scale).
    median_power: ClassVar[int]

    def __post_init__(self):
        if not self.width_scale > 0:
            raise ValueError(f"kernel.width_scale must be positive, got {self.width_scale!r}")
        if self.gamma is not None and not self.gamma > 0:
            raise ValueError(f"kernel.gamma must be positive or None, got {self.gamma!r}")

    def resolve_gamma(self, X: np.ndarray, seed: int) -> float:
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
    def drop(self, distance: np.ndarray | float, gamma: float) -> np.ndarray:
        """1 - g(r), exact also for tiny r."""

    @abstractmethod
    def inverse_profile(self, value: np.ndarray, gamma: float) -> np.ndarray:
        """g⁻¹: the distance at which the kernel has fallen to `value` in (0, 1]."""

    @abstractmethod
    def frequency_lengths(self, rng: np.random.Generator, n_features: int) -> np.ndarray | None:
        """What makes standard normal vectors draws of the spectral measure at frequency_scale 1.

        Both measures are scale mixtures of normals: factors of shape (n_features,), float32, or None for all ones.
        """

    @abstractmethod
    def frequency_scale(self, gamma: float) -> float:
        """What unit frequencies are multiplied by for this `gamma`; widths differ in nothing else."""

    def profile(self, distance: np.ndarray | float, gamma: float) -> np.ndarray:
        """g(r)."""
        return 1.0 - self.drop(distance, gamma)

    def penalty(self, epsilon: float, gamma: float) -> float:
        """ε' = sqrt(2g(0) - 2g(ε)): how far a feature vector moves when x moves by ε in L2."""
        return float(np.sqrt(2.0 * self.drop(epsilon, gamma)))

    def to_dict(self) -> dict[str, Any]:
        """The kernel as plain JSON; `kernel_from_dict` restores it."""
        return {"name": self.name, **asdict(self)}


@dataclass(frozen=True)
class RBF(Kernel):
    """g(r) = exp(-gamma r²); spectral measure N(0, 2·gamma·I). Default gamma: width_scale / median(‖x - x'‖)²."""

    name: ClassVar[str] = "rbf"
    median_power: ClassVar[int] = 2

    def from_squared_distance_(self, squared: Tensor, gamma: float) -> Tensor:
        return squared.mul_(-gamma).exp_()

    def slope(self, squared: Tensor, values: Tensor, gamma: float) -> Tensor:
        return values * -gamma

    def drop(self, distance, gamma):
        return -np.expm1(-gamma * np.square(distance, dtype=np.float64))

    def inverse_profile(self, value, gamma):
        return np.sqrt(-np.log(value) / gamma)

    def frequency_lengths(self, rng, n_features):
        return None

    def frequency_scale(self, gamma: float) -> float:
        return float(np.sqrt(2.0 * gamma))


@dataclass(frozen=True)
class Laplacian(Kernel):
    """g(r) = exp(-gamma r) of the **L2** distance; spectral measure the multivariate Cauchy distribution.

    Libraries often call exp(-gamma ‖x - x'‖₁) Laplacian. The adversarial penalty and the certificate need a function of
    the L2 distance, so this is the L2 one (Matérn 1/2). Default gamma: width_scale / median(‖x - x'‖).
    """

    name: ClassVar[str] = "laplacian"
    median_power: ClassVar[int] = 1

    def from_squared_distance_(self, squared: Tensor, gamma: float) -> Tensor:
        return squared.sqrt_().mul_(-gamma).exp_()

    def slope(self, squared: Tensor, values: Tensor, gamma: float) -> Tensor:
        # At r = 0 the kernel has a kink; 0, the mean of the one-sided derivatives, is the subgradient taken there.
        distance = squared.sqrt()
        return torch.where(distance > 0, values * (-0.5 * gamma) / distance, 0.0)

    def drop(self, distance, gamma):
        return -np.expm1(-gamma * np.asarray(distance, dtype=np.float64))

    def inverse_profile(self, value, gamma):
        return -np.log(value) / gamma

    def frequency_lengths(self, rng, n_features):
        # A normal vector over an independent |normal| is Cauchy. The floor keeps float32 finite (one feature in 1e6).
        return 1 / np.maximum(np.abs(rng.standard_normal(n_features, dtype=np.float32)), np.float32(1e-6))

    def frequency_scale(self, gamma: float) -> float:
        return float(gamma)


KERNELS: dict[str, type[Kernel]] = {kernel.name: kernel for kernel in (RBF, Laplacian)}


def as_kernel(kernel: str | Kernel) -> Kernel:
    """A kernel object from its name, or the object itself."""
    return KERNELS[kernel]() if isinstance(kernel, str) else kernel


def kernel_from_dict(settings: dict[str, Any]) -> Kernel:
    """Inverse of `Kernel.to_dict`."""
    return KERNELS[settings["name"]](**{key: value for key, value in settings.items() if key != "name"})


def median_distance(X: np.ndarray, seed: int) -> float:
    """Median of the positive L2 distances between at most 1,000 rows of X drawn with `seed`.

    Raises
    ------
    ValueError
        If all rows drawn are equal: no width can be read off such data.
    """
    rows = np.arange(len(X))
    if len(X) > _MEDIAN_ROWS:
        rows = np.sort(np.random.default_rng([seed, 0]).choice(len(X), _MEDIAN_ROWS, replace=False))
    sample = torch.from_numpy(np.asarray(X[rows], dtype=np.float64))
    norms = sample.square().sum(1)
    pairs = squared_distances(sample, sample, norms, norms, refine=True)
    squared = pairs[tuple(torch.triu_indices(len(sample), len(sample), offset=1))]
    positive = squared[squared > 0].sqrt_()
    if len(positive) == 0:
        raise ValueError(
            f"The median distance between the rows of X is 0 (n_samples = {len(X)}, all rows equal): the kernel width "
            "cannot be chosen from this data. Set gamma of the kernel."
        )
    return float(positive.median())


def squared_distances(A: Tensor, B: Tensor, norms_a: Tensor, norms_b: Tensor, refine: bool = False) -> Tensor:
    """‖a - b‖² for all pairs, shape (len(A), len(B)), by one matrix product.

    Parameters
    ----------
    A, B : tensors of shape (n, d), (m, d)
    norms_a, norms_b : tensors of shape (n,), (m,)
        Squared norms of the rows.
    refine : bool
        Recompute close pairs from their differences. ‖a‖² + ‖b‖² - 2a·b loses about 1e-7 (‖a‖² + ‖b‖²) in float32,
        which is nothing in exp(-gamma r²) but not in exp(-gamma r), where the root magnifies it near r = 0.
    """
    squared = torch.addmm(norms_b, A, B.t(), alpha=-2.0).add_(norms_a[:, None]).clamp_(min=0.0)
    if refine:
        tolerance = 1e4 * torch.finfo(A.dtype).eps
        close = (squared < tolerance * (norms_a[:, None] + norms_b)).nonzero()
        for part in close.split(max(1, 2**22 // A.shape[1])):
            rows, columns = part[:, 0], part[:, 1]
            squared[rows, columns] = (A[rows] - B[columns]).square_().sum(1)
    return squared
