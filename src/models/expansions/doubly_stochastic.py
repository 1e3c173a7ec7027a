"""The paper's expansion: every iteration draws new random features, seeded by its number."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor

from models.batches import Batch, BatchView
from models.distances import chunks
from models.expansions.expansion import WINDOW_BYTES, RunningScores, negligible
from models.expansions.feature_stream import FeatureStream
from models.expansions.random_features import RandomFeatures, RandomFeatureSum
from models.kernel_sums import KernelSpace
from models.limits import whole


@dataclass(frozen=True)
class DoublyStochastic(RandomFeatures):
    """New random features in every iteration; the state is their seeds and coefficients.

    Parameters
    ----------
    n_features : int
        Features per iteration.
    cache_mb : float
        Memory for blocks of features that would otherwise be drawn again at each prediction; no result depends on it.
    sampling : {"gaussian", "orthogonal"}
        Independent frequencies, or those of a block orthogonal: nearer to the kernel at the same number.
    """

    n_features: Annotated[int, whole(1)] = 1024

    name: ClassVar[str] = "doubly_stochastic"

    def begin(self, space: KernelSpace, n_columns: int) -> "DoublyStochasticSum":
        return DoublyStochasticSum(self.stream(space), n_columns)


class DoublyStochasticSum(RandomFeatureSum):
    """Block t belongs to iteration t; `terms[t]` holds its weights when it was added."""

    def __init__(self, stream: FeatureStream, n_columns: int):
        super().__init__(stream, n_columns)
        self._live: list[tuple[int, Tensor]] | None = None

    def window_batches(self, n_rows: int, batch_size: int, n_batches: int, revisited: bool) -> int:
        # A block drawn once can serve all rows that are left, so a window is as long as memory allows.
        row_bytes = self.space.dimension * self.space.dtype.itemsize
        if n_rows * row_bytes <= WINDOW_BYTES:
            return n_batches
        return max(1, WINDOW_BYTES // (row_bytes * batch_size))

    def track(self, view: BatchView, revisited: bool) -> RunningScores:
        return RunningScores(self, view)

    def add(self, batch: Batch, coefficients: Tensor) -> None:
        block = self.stream.block(len(self.terms))
        self.terms.append(self.project(block, batch.X, coefficients))
        self._live = None

    def add_newest(self, view: BatchView, scores: Tensor, start: int) -> None:
        block = self.stream.block(len(self.terms) - 1)
        decay = self.decays[-1].to(scores.dtype)
        # A quarter of MNIST's pixels are 0 in all rows: their frequencies add nothing.
        columns, X = view.filled
        if columns is not None:
            block = block._replace(frequencies=block.frequencies[columns])
        for rows in chunks(len(view) - start, self.n_features):
            rows = slice(start + rows.start, start + rows.stop)
            self.accumulate(block, X[rows], self.terms[-1], scores[rows].mul_(decay))

    def average_tail(self, start: int) -> None:
        super().average_tail(start)
        self._live = None

    def live_blocks(self) -> Iterator[tuple[int, Tensor]]:
        if self._live is None:
            self._live = self._weigh()
        return iter(self._live)

    def _weigh(self) -> list[tuple[int, Tensor]]:
        if not self.terms:
            return []
        later = self.term_factors()
        mass = torch.stack([term.abs().sum(0, dtype=torch.float64) for term in self.terms]) * later.abs()
        kept = (~negligible(mass, self.space.dtype)).nonzero()[:, 0].tolist()
        self.stream.forget_except(kept)
        return [(t, (self.terms[t] * later[t]).to(self.space.dtype)) for t in kept]

    def iterate_scores(self, X: Tensor) -> Tensor:
        current = torch.zeros(len(X), self.n_columns, dtype=self.space.dtype)
        stages = torch.empty(len(self.terms), len(X), dtype=torch.float64)
        for t, (term, decay) in enumerate(zip(self.terms, self.decays)):
            current *= decay.to(current.dtype)
            block = self.stream.block(t)
            for rows in chunks(len(X), self.n_features):
                self.accumulate(block, X[rows], term, current[rows])
            stages[t] = current[:, 0]
        return stages
