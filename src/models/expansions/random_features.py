"""Random Fourier features in seeded blocks, and functions f(x) = Σ_k w_k cos(ω_k·x + b_k) over such blocks.

The doubly stochastic half of Algorithm 1: *draw* a block (`FeatureStream.block`), *project* a term of kernels onto its
features (`RandomFeatureSum.project`), *accumulate* the term in scores (`RandomFeatureSum.accumulate`).
"""

from abc import abstractmethod
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.distances import chunks
from models.expansions.base import Expansion, KernelSpace, LiveExpansion
from models.kernels import Nearby
from models.probing import FeatureProber, Moves, Prober, add_gradients, add_probes
from models.registry import at_least, one_of

if TYPE_CHECKING:
    from models.certificates.expansions import ExpansionCertificates

# A block is drawn in this many independent parts, side by side: drawing alone would cost a tenth of training.
_PARTS = 2
# Features evaluated at once where blocks are narrow: below this a product is too small for a second core.
_PANEL = 1024


class Block(NamedTuple):
    """Features cos(scale · x @ frequencies + phases), amplitude 2/m left to the weights."""

    frequencies: Tensor  # (d, m), unit scale
    phases: Tensor  # (m,), in [0, 2π)

    def angles(self, X: Tensor, scale: float) -> Tensor:
        """z = scale · X @ frequencies + phases, shape (n, m)."""
        return torch.addmm(self.phases, X, self.frequencies, alpha=scale)

    def moves(self, coords: Tensor, size: float) -> Moves:
        """cos and sin of what moving coordinate j by `size` adds to the angles, both of shape (m, len(coords))."""
        d = len(self.frequencies)
        # All of them in order: the frequencies as they are, without a second table to read.
        whole = len(coords) == d and torch.equal(coords, torch.arange(d))
        slopes = self.frequencies if whole else self.frequencies[coords]
        # Where a²/2 is within an eps, cos a is 1 and sin a is a, as exactly as the angles themselves are known.
        largest = max(map(abs, torch.aminmax(slopes))) * size if len(coords) else 0.0
        if float(largest) ** 2 <= 2.0 * torch.finfo(slopes.dtype).eps:
            return Moves(None, slopes.t(), size)
        moves = slopes * size
        return Moves(moves.cos().t(), moves.sin_().t())

    @property
    def n_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self)


class FeatureStream:
    """Blocks of random features by number: block i is a function of (seed, i) alone.

    Blocks are kept within a memory budget. A kept block and one drawn again hold the same numbers, so the budget
    changes the time and nothing else. The draws are float32 numbers whatever the space's dtype: a float64 model uses
    the same features.
    """

    def __init__(self, space: KernelSpace, n_features: int, cache_mb: float, sampling: str = "gaussian"):
        self.space, self.n_features, self.cache_mb, self.sampling = space, n_features, cache_mb, sampling
        self._kept: dict[int, Block] = {}
        self._panels: dict[tuple[int, ...], Block] = {}
        self._source: FeatureStream | None = None

    def block(self, number: int) -> Block:
        """Block `number`, from memory or drawn."""
        if number in self._kept:
            return self._kept[number]
        if self._source is not None:
            # All draws are float32 numbers: converting them is exact, and ten times as fast as drawing.
            return Block(*(part.to(self.space.dtype) for part in self._source.block(number)))
        block = self._draw(number)
        # Blocks are read in turn, over and over: under that pattern evicting an old block for each new one would never
        # find anything in memory.
        if self._has_room(block):
            self._kept[number] = block
        return block

    def panel(self, numbers: tuple[int, ...]) -> Block:
        """Several blocks side by side, as one that is wider."""
        if len(numbers) == 1:
            return self.block(numbers[0])
        if numbers in self._panels:
            return self._panels[numbers]
        if self._source is not None:
            return Block(*(part.to(self.space.dtype) for part in self._source.panel(numbers)))
        blocks = [self.block(number) for number in numbers]
        panel = Block(torch.cat([b.frequencies for b in blocks], dim=1), torch.cat([b.phases for b in blocks]))
        if self._has_room(panel):
            self._panels[numbers] = panel
        return panel

    def _has_room(self, block: Block) -> bool:
        kept = sum(one.n_bytes for one in (*self._kept.values(), *self._panels.values()))
        return kept + block.n_bytes <= self.cache_mb * 2**20

    def forget_except(self, numbers: Collection[int]) -> None:
        """Make room: keep only these blocks in memory."""
        self._kept = {number: block for number, block in self._kept.items() if number in numbers}
        self._panels = {}

    def in_dtype(self, dtype: torch.dtype) -> "FeatureStream":
        """The same features in another precision, converted from those kept here; not kept themselves."""
        if dtype == self.space.dtype:
            return self
        other = FeatureStream(replace(self.space, dtype=dtype), self.n_features, 0, self.sampling)
        other._source = self
        return other

    def _draw(self, number: int) -> Block:
        frequencies = np.empty((self.space.dimension, self.n_features), dtype=np.float32)
        # numpy draws without holding the interpreter lock, and each part has its own stream: threads change nothing.
        first, *others = (
            partial(self._rng(number, part).standard_normal, out=rows, dtype=np.float32)
            for part, rows in enumerate(np.array_split(frequencies, _PARTS))
        )
        # Daemons that end by themselves: a thread of a pool that a signal cuts off while it starts would wait for ever,
        # and the process with it.
        helpers = [Thread(target=draw, name="features", daemon=True) for draw in others]
        for helper in helpers:
            helper.start()
        first()
        for helper in helpers:
            helper.join()
        if self.sampling == "orthogonal":
            frequencies = orthogonalised(frequencies)
        rng = self._rng(number, _PARTS)
        phases = rng.random(self.n_features, dtype=np.float32) * np.float32(2 * np.pi)
        lengths = self.space.kernel.frequency_lengths(rng, self.n_features)
        if lengths is not None:
            frequencies *= lengths
        return Block(*(torch.from_numpy(drawn).to(self.space.dtype) for drawn in (frequencies, phases)))

    def _rng(self, number: int, part: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.space.seed, number, part])))

    def __getstate__(self) -> dict[str, Any]:
        # A pickled or copied stream draws its blocks again.
        return {**self.__dict__, "_kept": {}, "_panels": {}}


def orthogonalised(normals: np.ndarray) -> np.ndarray:
    """Columns of normal draws (d, m) made orthogonal, d at a time, each with its own length (Yu et al. 2016).

    A column's direction among those before it is uniform and independent of its length, so that every single one is
    still a standard normal vector: the features approximate the same kernel, with less variance. In float64, so that
    what LAPACK rounds hardly ever shows in float32.
    """
    found = np.empty_like(normals)
    for start in range(0, normals.shape[1], len(normals)):
        group = normals[:, start : start + len(normals)].astype(np.float64)
        directions, triangle = np.linalg.qr(group)
        # Of the two directions of a line LAPACK takes any: that of the draw is uniform.
        lengths = np.linalg.norm(group, axis=0) * np.where(np.diag(triangle) < 0, -1.0, 1.0)
        found[:, start : start + len(normals)] = directions * lengths
    return found


@dataclass(frozen=True)
class RandomFeatures(Expansion):
    """Settings of both random-feature expansions."""

    n_features: Annotated[int, at_least(1)]
    cache_mb: Annotated[float, at_least(0)] = 1024
    sampling: Annotated[str, one_of("gaussian", "orthogonal")] = "gaussian"

    def restore(self, space: KernelSpace, arrays: dict[str, np.ndarray]) -> "RandomFeatureSum":
        live = self.begin(space, 1)
        live.terms = [torch.from_numpy(term.copy())[:, None] for term in arrays["terms"]]
        live.decays = list(torch.from_numpy(arrays["decays"].copy())[:, None])
        return live

    @abstractmethod
    def begin(self, space: KernelSpace, n_columns: int) -> "RandomFeatureSum": ...

    def stream(self, space: KernelSpace) -> FeatureStream:
        """The features themselves."""
        return FeatureStream(space, int(self.n_features), self.cache_mb, self.sampling)


class RandomFeatureSum(LiveExpansion):
    """What the two random-feature expansions share: evaluating blocks with given weights.

    Weights carry the amplitude: with features sqrt(2/m)·cos they are sqrt(2/m) times the usual coefficients. `terms[t]`
    are those that iteration t added.
    """

    def __init__(self, stream: FeatureStream, n_columns: int):
        super().__init__(stream.space, n_columns)
        self.stream, self.n_features = stream, stream.n_features
        self.terms: list[Tensor] = []
        self._moments: tuple[int, list[float]] | None = None

    def average_tail(self, start: int) -> None:
        super().average_tail(start)
        self._moments = None

    @abstractmethod
    def live_blocks(self) -> Iterator[tuple[int, Tensor]]:
        """(block number, weights (m, n_columns) in the space's dtype) of the current function."""

    def live_panels(self) -> Iterator[tuple[tuple[int, ...], Tensor]]:
        """The live blocks, as many as make a panel at a time: (their numbers, their weights)."""
        blocks, together = list(self.live_blocks()), max(1, _PANEL // self.n_features)
        for start in range(0, len(blocks), together):
            numbers, weights = zip(*blocks[start : start + together])
            yield numbers, torch.cat(weights)

    def panels(self, dtype: torch.dtype) -> Iterator[tuple[Block, Tensor]]:
        """The features of these panels and their weights, in any precision."""
        stream = self.stream.in_dtype(dtype)
        for numbers, weights in self.live_panels():
            yield stream.panel(numbers), weights.to(dtype)

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

    def project(self, block: Block, X: Tensor, coefficients: Tensor) -> Tensor:
        """Weights of the block's features in the term Σ_b c_b k(x_b, ·): (2/m) Φᵀc, shape (m, n_columns)."""
        coefficients = coefficients.to(self.space.dtype)
        parts = [angles.cos_().t() @ coefficients[:, columns] for columns, angles in self.angles(block, X)]
        return torch.cat(parts, dim=1).mul_(2.0 / self.n_features)

    # -- the fitted function -------------------------------------------------------------------------------------------
    def scores(self, X: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        dtype = dtype or self.space.dtype
        out = torch.zeros(len(X), self.n_columns, dtype=dtype)
        for block, weights in self.panels(dtype):
            for rows in chunks(len(X), len(weights)):
                self.accumulate(block, X[rows], weights, out[rows])
        return out

    def scores_and_gradients(
        self, X: Tensor, columns: Tensor | None = None, dtype: torch.dtype | None = None, coords: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        dtype = dtype or self.space.dtype
        columns = torch.tensor([0]) if columns is None else columns
        scale = self.space.kernel.frequency_scale(self.space.gamma_of(columns, self.n_columns))
        scores = torch.zeros(len(X), len(columns), dtype=dtype)
        width = X.shape[1] if coords is None else len(coords)
        gradients = torch.zeros(len(X), len(columns), width, dtype=dtype)
        for block, weights in self.panels(dtype):
            frequencies = block.frequencies if coords is None else block.frequencies[coords]
            weights = weights[:, columns]
            for rows in chunks(len(X), weights.numel(), at_least=16):
                angles = block.angles(X[rows], scale)
                add_gradients(angles, weights, frequencies, scale, scores[rows], gradients[rows])
        return scores, gradients

    def probe(self, X: Tensor, coords: Tensor, h: float, known: Sequence[Moves] | None = None) -> tuple[Tensor, Tensor]:
        """As for any expansion; `known` are the moves of all panels, where they are at hand."""
        scale = self.space.kernel.frequency_scale(self.space.gammas[0])
        even = torch.zeros(len(X), len(coords), dtype=torch.float64)
        odd = torch.zeros_like(even)
        for place, (block, weights) in enumerate(self.panels(self.space.dtype)):
            moves = block.moves(coords, scale * h) if known is None else known[place]
            for rows in chunks(len(X), len(weights)):
                add_probes(block.angles(X[rows], scale), moves, weights[:, 0], even[rows], odd[rows])
        return even, odd

    def prober(self) -> Prober:
        return FeatureProber(self)

    def certificates(self) -> "ExpansionCertificates":
        # Here: certificates are made of expansions, not the other way round.
        from models.certificates.expansions import FeatureCertificates

        return FeatureCertificates(self)

    # -- curvature -----------------------------------------------------------------------------------------------------
    def curvature_bound(self) -> float:
        """Rigorous bound of ‖∇²f‖₂ everywhere, first column."""
        # Here: certificates are made of expansions, not the other way round.
        from models.certificates.definite import curvature_bound_of_blocks

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
            self._moments = (len(self.decays), moments.tolist())
        mass, first, second = self._moments[1]
        return mass, first, second, len(blocks) * self.n_features

    tuning_note: ClassVar[str] = (
        ", with the curvature estimated by power iteration; the fitted model's own certificate is rigorous"
    )

    def tuning_bound(self, at: Nearby, columns: Tensor) -> np.ndarray:
        curvature = self.curvature_estimates(columns).numpy()
        return at.margins - at.losses - 0.5 * curvature * at.lengths**2

    def curvature_estimates(self, columns: Tensor, iterations: int = 12) -> Tensor:
        """λ_max(Σ_k |w_k| ω_k ω_kᵀ) for many columns of one width, by power iteration: a little low, for tuning."""
        scale = self.space.kernel.frequency_scale(self.space.gamma_of(columns, self.n_columns))
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

    def arrays(self) -> dict[str, np.ndarray]:
        terms = torch.stack([term[:, 0] for term in self.terms]).numpy()
        return {"terms": terms, "decays": torch.stack(self.decays)[:, 0].numpy()}
