"""Sums of random features, f(x) = Σ_k w_k cos(ω_k·x + b_k), over blocks of seeded features."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor

from models.curvature import curvature_bound_of_blocks
from models.expansions.base import KernelSpace, LiveExpansion, chunks
from models.expansions.probing import Prober
from models.features import Block, FeatureStream


class RandomFeatureSum(LiveExpansion):
    """What the two random-feature expansions share: evaluating blocks with given weights.

    Weights carry the amplitude: with features sqrt(2/m)·cos they are sqrt(2/m) times the usual coefficients.
    """

    def __init__(self, space: KernelSpace, n_columns: int, n_features: int, cache_mb: float):
        super().__init__(space, n_columns)
        self.n_features = n_features
        self._moments: tuple[int, float, float, float] | None = None
        self.stream = FeatureStream(space.kernel, space.dimension, n_features, space.seed, space.dtype, cache_mb)

    def live_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(block number, weights (m, n_columns) in the space's dtype) of the current function."""
        raise TypeError(f"{type(self).__name__} does not say which blocks it is made of")

    def accumulate(self, block: Block, X: Tensor, weights: Tensor, out: Tensor) -> None:
        """out += features(X) @ weights, each width with its own columns."""
        for columns, angles in self.angles(block, X):
            out[:, columns].addmm_(angles.cos_(), weights[:, columns])

    def angles(self, block: Block, X: Tensor) -> Iterator[tuple[slice, Tensor]]:
        """(columns, angles of the features) for each width; X @ frequencies is computed once."""
        scale = self.space.kernel.frequency_scale
        groups = list(self.space.groups(self.n_columns))
        if len(groups) == 1:
            yield groups[0][1], block.angles(X, scale(groups[0][0]))
            return
        product = X @ block.frequencies
        for gamma, columns in groups:
            yield columns, torch.add(block.phases, product, alpha=scale(gamma))

    def coefficients_of(self, block: Block, X: Tensor, coefficients: Tensor) -> Tensor:
        """Weights of the block's features in the term Σ_b c_b k(x_b, ·): (2/m) Φᵀc, shape (m, n_columns)."""
        coefficients = coefficients.to(self.space.dtype)
        parts = [angles.cos_().t() @ coefficients[:, columns] for columns, angles in self.angles(block, X)]
        return torch.cat(parts, dim=1).mul_(2.0 / self.n_features)

    # -- the fitted function -------------------------------------------------------------------------------------------
    def scores(self, X: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.space.dtype
        stream = self.stream.in_dtype(dtype)
        out = torch.zeros(len(X), self.n_columns, dtype=dtype)
        for number, weights in self.live_blocks():
            block = stream.block(number)
            for rows in chunks(len(X), self.n_features):
                self.accumulate(block, X[rows], weights.to(dtype), out[rows])
        return out

    def scores_and_gradients(self, X, columns=None, dtype=None):
        dtype = dtype or self.space.dtype
        stream = self.stream.in_dtype(dtype)
        columns = torch.tensor([0]) if columns is None else columns
        scale = self.space.kernel.frequency_scale(self._gamma_of(columns))
        scores = torch.zeros(len(X), len(columns), dtype=dtype)
        gradients = torch.zeros(len(X), len(columns), X.shape[1], dtype=dtype)
        for number, weights in self.live_blocks():
            block = stream.block(number)
            weights = weights[:, columns].to(dtype)
            downward = -weights.t().contiguous()
            for rows in chunks(len(X), self.n_features * len(columns), at_least=16):
                angles = block.angles(X[rows], scale)
                slopes = torch.sin(angles)[:, None, :] * downward
                gradients[rows].view(-1, X.shape[1]).addmm_(
                    slopes.view(-1, self.n_features), block.frequencies.t(), alpha=scale
                )
                scores[rows].addmm_(angles.cos_(), weights)
        return scores, gradients

    def probe(self, X, coords, h):
        scale = self.space.kernel.frequency_scale(self.space.gammas[0])
        even = torch.zeros(len(X), len(coords), dtype=torch.float64)
        odd = torch.zeros_like(even)
        for number, weights in self.live_blocks():
            block = self.stream.block(number)
            moves = block.moves(coords, scale * h)
            for rows in chunks(len(X), self.n_features):
                add_probes(block.angles(X[rows], scale), moves, weights[:, 0], even[rows], odd[rows])
        return even, odd

    def prober(self) -> Prober:
        return FeatureProber(self)

    # -- curvature -----------------------------------------------------------------------------------------------------
    def curvature_bound(self) -> float:
        """Rigorous bound of ‖∇²f‖₂ everywhere, first column."""
        scale = self.space.kernel.frequency_scale(self.space.gammas[0])
        stream = self.stream.in_dtype(torch.float64)
        return curvature_bound_of_blocks(
            (stream.block(number).frequencies.t().numpy() * scale, weights[:, 0].double().numpy())
            for number, weights in self.live_blocks()
        )

    def amplitude_moments(self) -> tuple[float, float, float, int]:
        """Σ|w_k|, Σ|w_k|‖ω_k‖, Σ|w_k|‖ω_k‖² and the number of features, first column."""
        blocks = list(self.live_blocks())
        # Every certificate asks, and the lengths take as long as scoring a few rows.
        if self._moments is None or self._moments[0] != len(self.decays):
            scale = self.space.kernel.frequency_scale(self.space.gammas[0])
            moments = torch.zeros(3, dtype=torch.float64)
            for number, weights in blocks:
                frequencies = self.stream.block(number).frequencies
                lengths = frequencies.square().sum(0).sqrt_().double() * scale
                amplitudes = weights[:, 0].double().abs()
                moments += torch.stack([(amplitudes * lengths**power).sum() for power in range(3)])
            self._moments = (len(self.decays), *moments.tolist())
        _, mass, first, second = self._moments
        return mass, first, second, len(blocks) * self.n_features

    def curvature_estimates(self, columns: Tensor, iterations: int = 12) -> Tensor:
        """λ_max(Σ_k |w_k| ω_k ω_kᵀ) for many columns of one width, by power iteration: a little low, for tuning."""
        scale = self.space.kernel.frequency_scale(self._gamma_of(columns))
        generator = torch.Generator().manual_seed(0)
        vectors = torch.randn(self.space.dimension, len(columns), dtype=self.space.dtype, generator=generator)
        values = torch.zeros(len(columns), dtype=self.space.dtype)
        for _ in range(iterations):
            vectors /= vectors.norm(dim=0).clamp_(min=torch.finfo(vectors.dtype).tiny)
            product = torch.zeros_like(vectors)
            for number, weights in self.live_blocks():
                frequencies = self.stream.block(number).frequencies
                product += frequencies @ (weights[:, columns].abs() * (frequencies.t() @ vectors))
            values = product.norm(dim=0)
            vectors = product
        return values.double() * scale**2

    def _gamma_of(self, columns: Tensor) -> float:
        size = self.n_columns // len(self.space.gammas)
        group = int(columns[0]) // size
        if bool((columns // size != group).any()):
            raise ValueError("columns of different widths have no common gradient pass")
        return self.space.gammas[group]


class FeatureProber(Prober):
    """Keeps the angles of all live features."""

    expansion: RandomFeatureSum

    def __init__(self, expansion: RandomFeatureSum):
        self.scale = expansion.space.kernel.frequency_scale(expansion.space.gammas[0])
        self.blocks = list(expansion.live_blocks())
        self.angles: list[Tensor] = []
        super().__init__(expansion, len(self.blocks) * expansion.n_features)

    def _block(self, place: int) -> Block:
        return self.expansion.stream.block(self.blocks[place][0])

    def _renew(self, X):
        self.angles = [self._block(place).angles(X, self.scale) for place in range(len(self.blocks))]

    def _update(self, X, difference, changed):
        for place, angles in enumerate(self.angles):
            angles.addmm_(difference, self._block(place).frequencies[changed], alpha=self.scale)

    def _answer(self, X, coords, h):
        even = torch.zeros(len(X), len(coords), dtype=torch.float64)
        odd = torch.zeros_like(even)
        for place, (angles, (_, weights)) in enumerate(zip(self.angles, self.blocks)):
            moves = self._block(place).moves(coords, self.scale * h)
            for rows in chunks(len(X), self.expansion.n_features):
                add_probes(angles[rows].clone(), moves, weights[:, 0], even[rows], odd[rows])
        return even, odd

    def _keep(self, rows):
        self.angles = [angles[rows] for angles in self.angles]


def add_probes(angles: Tensor, moves: tuple[Tensor, Tensor], weights: Tensor, even: Tensor, odd: Tensor) -> None:
    """Add the parts of Σ_k w_k cos(z_k ± hω_kj) even and odd in h; writes over `angles`.

    cos(z ± hω) = cos z · cos hω ∓ sin z · sin hω: exact, and the odd part is never a difference of scores.
    """
    cosines, sines = moves
    odd -= torch.sin(angles).mul_(weights) @ sines
    even += angles.cos_().mul_(weights) @ cosines


def stack(tensors: list[Tensor]) -> np.ndarray:
    """First columns of (m, n_columns) tensors as one array (T, m)."""
    return torch.stack([tensor[:, 0] for tensor in tensors]).numpy()
