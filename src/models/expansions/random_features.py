"""Random Fourier features in seeded blocks, and functions f(x) = Σ_k w_k cos(ω_k·x + b_k) over such blocks.

The doubly stochastic half of Algorithm 1: *draw* a block (`FeatureStream.block`), *project* a term of kernels onto its
features (`RandomFeatureSum.project`), *accumulate* the term in scores (`RandomFeatureSum.accumulate`).
"""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
from torch import Tensor

from models.distances import chunks
from models.expansions.expansion import Expansion, LiveExpansion
from models.expansions.feature_stream import Block, FeatureStream, Moves
from models.kernel_sums import KernelSpace
from models.limits import at_least, one_of, whole
from models.probing import Prober

# Features evaluated at once where blocks are narrow: below this a product is too small for a second core.
_PANEL = 1024


@dataclass(frozen=True)
class RandomFeatures(Expansion):
    """Settings of both random-feature expansions."""

    n_features: Annotated[int, whole(1)]
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

    def arrays(self) -> dict[str, np.ndarray]:
        terms = torch.stack([term[:, 0] for term in self.terms]).numpy()
        return {"terms": terms, "decays": torch.stack(self.decays)[:, 0].numpy()}


class FeatureProber(Prober):
    """Keeps the angles of all random features in use."""

    expansion: RandomFeatureSum

    def __init__(self, expansion: RandomFeatureSum):
        self.scale = expansion.space.kernel.frequency_scale(expansion.space.gammas[0])
        self.panels = [(numbers, weights[:, 0]) for numbers, weights in expansion.live_panels()]
        self.angles: list[Tensor] = []
        self._moves: tuple[Tensor, float, list[Moves]] | None = None
        super().__init__(expansion, sum(len(weights) for _, weights in self.panels))

    def _features(self) -> Iterator[Block]:
        # Asked for each time: the stream keeps what its memory allows.
        return (self.expansion.stream.panel(numbers) for numbers, _ in self.panels)

    def _renew(self, X: Tensor) -> None:
        self.angles = [block.angles(X, self.scale) for block in self._features()]

    def _update(self, difference: Tensor, total: Tensor, columns: Tensor) -> None:
        for block, angles in zip(self._features(), self.angles):
            angles.addmm_(difference, block.frequencies[columns], alpha=self.scale)

    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        even = torch.zeros(len(X), len(coords), dtype=torch.float64)
        odd = torch.zeros_like(even)
        for angles, (_, weights), moves in zip(self.angles, self.panels, self._moves_of(coords, h)):
            for rows in chunks(len(X), len(weights)):
                add_probes(angles[rows].clone(), moves, weights, even[rows], odd[rows])
        return even, odd

    def _anew(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        return self.expansion.probe(X, coords, h, self._moves_of(coords, h))

    def _moves_of(self, coords: Tensor, h: float) -> list[Moves]:
        """What a step along `coords` adds to the angles; short rows are asked about whole, each time the same."""
        if self._moves is None or self._moves[1] != h or not torch.equal(self._moves[0], coords):
            moves = [block.moves(coords, self.scale * h) for block in self._features()]
            self._moves = (coords.clone(), h, moves)
        return self._moves[2]

    def _keep(self, rows: Tensor) -> None:
        self.angles = [angles[rows] for angles in self.angles]


def add_gradients(
    angles: Tensor, weights: Tensor, frequencies: Tensor, scale: float, scores: Tensor, gradients: Tensor
) -> None:
    """Add Σ_k w_k cos z_k, (n, c), and its gradients, (n, c, d), for z_k = scale · ω_k·x + …; writes over `angles`."""
    slopes = torch.sin(angles)[:, None, :] * -weights.t().contiguous()
    gradients.view(-1, gradients.shape[2]).addmm_(slopes.view(-1, len(weights)), frequencies.t(), alpha=scale)
    scores.addmm_(angles.cos_(), weights)


def add_probes(angles: Tensor, moves: Moves, weights: Tensor, even: Tensor, odd: Tensor) -> None:
    """Add the parts of Σ_k w_k cos(z_k ± hω_kj) even and odd in h; writes over `angles`.

    cos(z ± hω) = cos z · cos hω ∓ sin z · sin hω: exact, and the odd part is never a difference of scores. With the
    usual tiny h every cos hω rounds to 1, and the even part is the score itself whatever the coordinate.
    """
    odd.sub_(torch.sin(angles).mul_(weights) @ moves.sines, alpha=moves.scale)
    if moves.cosines is None:
        even += angles.cos_().mv(weights)[:, None]
    else:
        even += angles.cos_().mul_(weights) @ moves.cosines
