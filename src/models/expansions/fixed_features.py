"""One bank of random features, reused by every iteration."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from models.batches import Batch, BatchView
from models.distances import chunks
from models.expansions.expansion import WINDOW_BYTES, ScoreTracker
from models.expansions.feature_stream import FeatureStream
from models.expansions.random_features import RandomFeatures, RandomFeatureSum
from models.kernel_sums import KernelSpace
from models.limits import whole


@dataclass(frozen=True)
class FixedFeatures(RandomFeatures):
    """A bank of `n_features` random features; the state is one coefficient each.

    Parameters
    ----------
    n_features : int
    cache_mb : float
        Memory for the features of rows that training visits more than once.
    sampling : {"gaussian", "orthogonal"}
        Independent frequencies, or orthogonal ones: nearer to the kernel at the same number, for larger certificates.
    """

    n_features: Annotated[int, whole(1)] = 8192

    name: ClassVar[str] = "fixed_features"
    approaches_kernel: ClassVar[bool] = False

    def begin(self, space: KernelSpace, n_columns: int) -> "FixedFeatureSum":
        return FixedFeatureSum(self.stream(space), n_columns)

    def restore(self, space: KernelSpace, arrays: dict[str, np.ndarray]) -> "FixedFeatureSum":
        live = super().restore(space, arrays)
        assert isinstance(live, FixedFeatureSum)
        live.weights = torch.from_numpy(arrays["weights"].copy())[:, None]
        return live


class FixedFeatureSum(RandomFeatureSum):
    """`weights` is the current function; `terms[t]` what iteration t added to it (kept for a single column)."""

    def __init__(self, stream: FeatureStream, n_columns: int):
        super().__init__(stream, n_columns)
        self.weights = torch.zeros(self.n_features, n_columns, dtype=self.space.dtype)
        self._tail_sum, self._tail_count = self.weights, 0
        # The batch last scored and its features: the same batch is added next.
        self._recent: tuple[Tensor, Tensor] | None = None

    def window_batches(self, n_rows: int, batch_size: int, n_batches: int, revisited: bool) -> int:
        row_bytes = self.space.dimension * self.space.dtype.itemsize
        return max(1, min(n_batches, WINDOW_BYTES // (row_bytes * batch_size)))

    def track(self, view: BatchView, revisited: bool) -> "BankScores":
        return BankScores(self, view, revisited)

    def add(self, batch: Batch, coefficients: Tensor) -> None:
        features = self._batch_features(batch)
        coefficients = coefficients.to(self.space.dtype)
        groups = self.space.groups(self.n_columns)
        parts = [features[:, width].t() @ coefficients[:, group] for width, (_, group) in enumerate(groups)]
        term = torch.cat(parts, dim=1).mul_(2.0 / self.n_features)
        self.weights = self.weights.mul_(self.decays[-1].to(self.weights.dtype)).add_(term)
        if self.n_columns == 1:
            self.terms.append(term)

    def add_to_average(self) -> None:
        self._tail_sum = self.weights.clone() if self._tail_count == 0 else self._tail_sum.add_(self.weights)
        self._tail_count += 1

    def averaged_weights(self) -> Tensor:
        """Mean of the weights of the iterates counted so far."""
        return self._tail_sum / self._tail_count if self._tail_count else self.weights

    def average_tail(self, start: int) -> None:
        super().average_tail(start)
        # A restored expansion has the mean already.
        self.weights, self._tail_count = self.averaged_weights(), 0

    def _batch_features(self, batch: Batch) -> Tensor:
        if self._recent is not None and self._recent[0] is batch.positions:
            return self._recent[1]
        return self.features(batch.X)

    def live_blocks(self) -> Iterator[tuple[int, Tensor]]:
        yield 0, self.weights

    def features(self, X: Tensor) -> Tensor:
        """cos of the angles for every width, shape (n, n_widths, m)."""
        out = torch.empty(len(X), len(self.space.gammas), self.n_features, dtype=self.space.dtype)
        for rows in chunks(len(X), self.n_features):
            for width, (_, angles) in enumerate(self.angles(self.stream.block(0), X[rows])):
                torch.cos(angles, out=out[rows, width])
        return out

    def scores_of_features(self, features: Tensor) -> Tensor:
        """Current scores of rows whose features are known."""
        groups = self.space.groups(self.n_columns)
        return torch.cat(
            [features[:, width] @ self.weights[:, group] for width, (_, group) in enumerate(groups)], dim=1
        )

    def iterate_scores(self, X: Tensor) -> Tensor:
        # All iterations share the bank, so their terms are columns of one product.
        current = torch.zeros(len(X), dtype=torch.float64)
        terms = torch.cat(self.terms, dim=1)
        values = torch.cat([self.features(X[rows])[:, 0] @ terms for rows in chunks(len(X), self.n_features)])
        stages = torch.empty(terms.shape[1], len(X), dtype=torch.float64)
        for t, decay in enumerate(self.decays):
            current = decay * current + values[:, t]
            stages[t] = current
        return stages

    def arrays(self) -> dict[str, np.ndarray]:
        return super().arrays() | {"weights": self.weights[:, 0].numpy()}


class BankScores(ScoreTracker):
    """Scores computed when they are asked for: with one bank, features @ weights is all there is to do."""

    expansion: FixedFeatureSum

    def __init__(self, expansion: FixedFeatureSum, view: BatchView, revisited: bool):
        super().__init__(expansion, view)
        self.kept: Tensor | None = None
        row_bytes = expansion.n_features * len(expansion.space.gammas) * expansion.space.dtype.itemsize
        if revisited and len(view) * row_bytes <= expansion.stream.cache_mb * 2**20:
            self.kept = expansion.features(view.X)

    def at(self, positions: Tensor) -> Tensor:
        features = self.expansion.features(self.view.X[positions]) if self.kept is None else self.kept[positions]
        self.expansion._recent = (positions, features)
        return self.expansion.scores_of_features(features)

    def advance(self, finished: int) -> None:
        pass

    def all(self) -> Tensor:
        if self.kept is None:
            return self.expansion.scores(self.view.X)
        return self.expansion.scores_of_features(self.kept)

    def averaged(self) -> Tensor:
        # The mean of linear functions is one: this asks for its weights so far.
        current, self.expansion.weights = self.expansion.weights, self.expansion.averaged_weights()
        try:
            return self.all()
        finally:
            self.expansion.weights = current
