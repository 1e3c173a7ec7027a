"""The exact expansion: f(x) = Σ_s w_s k(x, s) over the rows that violated their margin."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from models.expansions.base import (
    Expansion,
    Front,
    KernelSpace,
    LiveExpansion,
    PushTracker,
    Tracker,
    chunks,
    negligible,
    row_norms,
    suffix_products,
)
from models.expansions.gaussian_sum import GaussianProber, GaussianSum
from models.expansions.kernel_columns import KernelColumns
from models.expansions.kernel_sum import KernelSum
from models.expansions.live_set import LiveSet
from models.expansions.probing import ForgetfulProber

# Batches trained on one front. New terms are added to the whole rest of a window, faded ones included: a short window
# wastes less, and 4,000 rows are enough for large matrix products.
_WINDOW = 8


@dataclass(frozen=True)
class SupportVectors(Expansion):
    """Exact kernel sum over the margin violators.

    Parameters
    ----------
    cache_mb : float
        Memory for kernel values that training in several passes reads again.
    """

    cache_mb: float = 1024

    name: ClassVar[str] = "support_vectors"

    def __post_init__(self):
        if not self.cache_mb >= 0:
            raise ValueError(f"expansion.cache_mb must not be negative, got {self.cache_mb!r}")

    def begin(self, space: KernelSpace, n_columns: int) -> "SupportVectorSum":
        return SupportVectorSum(space, n_columns, self.cache_mb)

    def restore(self, space: KernelSpace, arrays: dict[str, np.ndarray]) -> "SupportVectorSum":
        live = self.begin(space, 1)
        live.rows = [torch.from_numpy(arrays["rows"].copy())]
        sizes = np.diff(arrays["offsets"]).tolist()
        live.members = list(torch.from_numpy(arrays["members"].copy()).split(sizes))
        live.coefficients = list(torch.from_numpy(arrays["coefficients"].copy())[:, None].split(sizes))
        live.decays = list(torch.from_numpy(arrays["decays"].copy())[:, None])
        return live


class SupportVectorSum(LiveExpansion):
    """`rows` are the support vectors, each once; iteration t gave row `members[t][e]` the `coefficients[t][e]`."""

    def __init__(self, space: KernelSpace, n_columns: int, cache_mb: float):
        super().__init__(space, n_columns)
        self.cache_mb = cache_mb
        self.rows: list[Tensor] = []
        self.members: list[Tensor] = []
        self.coefficients: list[Tensor] = []
        self._index: dict[int, int] = {}
        self._newest: tuple[Tensor, Tensor] | None = None
        self._live: tuple[Tensor, Tensor] | None = None
        self._prepared: dict[torch.dtype, tuple[tuple[Tensor, Tensor], KernelSum | GaussianSum]] = {}
        self._current = LiveSet(n_columns, space.dimension, space.dtype)
        self._taken_in = 0

    # -- training ------------------------------------------------------------------------------------------------------
    def window_batches(self, n_rows, batch_size, n_batches, revisited):
        if revisited and n_rows * n_rows * self.space.dtype.itemsize <= 4 * self.cache_mb * 2**20:
            return n_batches
        return min(n_batches, _WINDOW)

    def track(self, front: Front, revisited: bool) -> Tracker:
        self._take_in_newest()
        return KernelTracker(self, front) if revisited and front.ids is not None else PushTracker(self, front)

    def _take_in_newest(self) -> None:
        """Bring the live set up to date, for the scores at the start of a window."""
        recent = slice(self._taken_in, None)
        if self.members[recent]:
            decays = torch.stack(self.decays[recent])
            entries = zip(self.coefficients[recent], suffix_products(decays))
            self._current.take_in(
                self.rows,
                torch.cat(self.members[recent]),
                torch.cat([coefficients * later for coefficients, later in entries]),
                decays.prod(0),
            )
            self._taken_in = len(self.members)
        self._live = (self._current.X, self._current.weights)

    def add(self, front, positions, coefficients):
        used = coefficients.ne(0).any(1)
        positions, coefficients = positions[used], coefficients[used]
        ids = positions.tolist() if front.ids is None else front.ids[positions.numpy()].tolist()
        fresh = [place for place, row in enumerate(ids) if row not in self._index]
        for place in fresh:
            self._index[ids[place]] = len(self._index)
        if fresh:
            self.rows.append(front.X[positions[fresh]])
        self.members.append(torch.tensor([self._index[row] for row in ids], dtype=torch.int64))
        self.coefficients.append(coefficients)
        self._newest = (positions, front.X[positions])
        self._live = None

    def push(self, front, scores, start):
        assert self._newest is not None
        vectors = self._newest[1]
        scores[start:].mul_(self.decays[-1].to(scores.dtype))
        coefficients = self.coefficients[-1].to(scores.dtype)
        self._accumulate(front.X[start:], front.norms[start:], vectors, coefficients, scores[start:])

    def _accumulate(self, X: Tensor, norms: Tensor, vectors: Tensor, coefficients: Tensor, out: Tensor) -> None:
        if len(vectors) == 0:
            return
        vector_norms = row_norms(vectors)
        for rows in chunks(len(X), len(vectors)):
            squared = self.space.squared_distances(X[rows], vectors, norms[rows], vector_norms)
            self.space.kernel_product(squared, coefficients, out[rows])

    # -- the fitted function -------------------------------------------------------------------------------------------
    @property
    def n_support(self) -> int:
        """Support vectors, each row counted once."""
        return sum(len(rows) for rows in self.rows)

    def live(self) -> tuple[Tensor, Tensor]:
        """Support vectors that still matter, (n, d), and their weights, (n, n_columns), float64."""
        if self._live is None:
            self._live = self._weigh()
        return self._live

    def _ready(self, dtype: torch.dtype) -> KernelSum | GaussianSum:
        """The live part, prepared once for many evaluations."""
        vectors, weights = live = self.live()
        if dtype not in self._prepared or self._prepared[dtype][0] is not live:
            single = self.n_columns == 1 and self.space.kernel.name == "rbf"
            ready = (
                GaussianSum(self.space.gammas[0], vectors, weights[:, 0], dtype)
                if single
                else KernelSum(self.space, vectors, weights, dtype)
            )
            self._prepared[dtype] = (live, ready)
        return self._prepared[dtype][1]

    def _all_rows(self) -> Tensor:
        """All support vectors as one tensor; no rows for the zero function."""
        if len(self.rows) != 1:
            nothing = torch.zeros(0, self.space.dimension, dtype=self.space.dtype)
            # One tensor instead of many: the next call has nothing left to concatenate.
            self.rows = [torch.cat([nothing, *self.rows])]
        return self.rows[0]

    def _weigh(self) -> tuple[Tensor, Tensor]:
        vectors = self._all_rows()
        weights = torch.zeros(len(vectors), self.n_columns, dtype=torch.float64)
        if not self.decays:
            return vectors, weights
        for members, coefficients, later in zip(self.members, self.coefficients, self.later_decays()):
            weights.index_add_(0, members, coefficients * later)
        kept = ~negligible(weights, self.space.dtype)
        return vectors[kept], weights[kept]

    def scores(self, X, dtype=None):
        dtype = dtype or self.space.dtype
        ready = self._ready(dtype)
        return ready.scores(X) if len(ready) else torch.zeros(len(X), self.n_columns, dtype=dtype)

    def scores_and_gradients(self, X, columns=None, dtype=None):
        dtype = dtype or self.space.dtype
        columns = torch.tensor([0]) if columns is None else columns
        gamma = self.space.gammas[int(columns[0]) // (self.n_columns // len(self.space.gammas))]
        ready = self._ready(dtype)
        if len(ready) == 0:
            shape = (len(X), len(columns))
            return torch.zeros(shape, dtype=dtype), torch.zeros(*shape, X.shape[1], dtype=dtype)
        return ready.scores_and_gradients(X, columns, gamma)

    def probe(self, X, coords, h):
        ready = self._ready(self.space.dtype)
        found = ready.probe(X, coords, h) if isinstance(ready, GaussianSum) and len(ready) else None
        return self._probe_any(X, coords, h) if found is None else found

    def prober(self):
        ready = self._ready(self.space.dtype)
        return GaussianProber(self, ready) if isinstance(ready, GaussianSum) and len(ready) else ForgetfulProber(self)

    def _probe_any(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        # One coordinate moves the squared distance by ±2h(x_j - s_j) + h²; float64, because the difference counts.
        vectors, weights = (part.double() for part in self.live())
        gamma = self.space.gammas[0]
        even = torch.empty(len(X), len(coords), dtype=torch.float64)
        odd = torch.empty_like(even)
        for rows in chunks(len(X), max(1, len(vectors)), at_least=1):
            points = X[rows].double()
            squared = self.space.squared_distances(points, vectors)
            for column, j in enumerate(coords.tolist()):
                move = 2.0 * h * (points[:, j, None] - vectors[:, j])
                plus, minus = (
                    self.space.kernel.from_squared_distance_((squared + sign * move + h * h).clamp_(min=0.0), gamma)
                    for sign in (1.0, -1.0)
                )
                even[rows, column] = 0.5 * (plus + minus) @ weights[:, 0]
                odd[rows, column] = 0.5 * (plus - minus) @ weights[:, 0]
        return even, odd

    def squared_norm(self) -> float:
        """‖f‖² = wᵀKw of the first column, from the Gram matrix in float64."""
        vectors, weights = (part.double() for part in self.live())
        weights, norms = weights[:, 0], row_norms(vectors)
        total = 0.0
        for rows in chunks(len(vectors), len(vectors), at_least=256):
            right = slice(rows.start, None)
            squared = self.space.squared_distances(vectors[rows], vectors[right], norms[rows], norms[right])
            # K is symmetric: what lies to the right of the diagonal block stands for its mirror image, too.
            counted = weights[right].clone()
            counted[rows.stop - rows.start :] *= 2
            image = self.space.kernel.from_squared_distance_(squared, self.space.gammas[0]) @ counted
            total += float(weights[rows] @ image)
        return max(total, 0.0)

    def staged_scores(self, X):
        vectors = self._all_rows()
        stages = torch.empty(len(self.members), len(X), dtype=torch.float64)
        norms = row_norms(vectors)
        for rows in chunks(len(X), len(vectors)):
            squared = self.space.squared_distances(X[rows], vectors, norms_b=norms)
            values = self.space.kernel.from_squared_distance_(squared, self.space.gammas[0])
            current = torch.zeros(len(values), dtype=torch.float64)
            for t, (members, coefficients) in enumerate(zip(self.members, self.coefficients)):
                term = values[:, members] @ coefficients[:, 0].to(values.dtype)
                current = self.decays[t] * current + term
                stages[t, rows] = current
        return stages

    def arrays(self):
        sizes = [len(members) for members in self.members]
        return {
            "rows": self._all_rows().numpy(),
            "members": torch.cat(self.members).numpy(),
            "coefficients": torch.cat(self.coefficients)[:, 0].numpy(),
            "offsets": np.concatenate([[0], np.cumsum(sizes)]),
            "decays": torch.stack(self.decays)[:, 0].numpy(),
        }


class KernelTracker(PushTracker):
    """Pushes terms from kernel values that are computed once for each support vector and then read again."""

    expansion: SupportVectorSum

    def __init__(self, expansion: SupportVectorSum, front: Front):
        super().__init__(expansion, front)
        self.columns = KernelColumns(expansion.space, front, int(expansion.cache_mb * 2**20))

    def term_norms(self, positions: Tensor, coefficients: Tensor) -> Tensor:
        values = self.columns.among(positions)
        image = torch.empty_like(coefficients)
        for gamma, group in self.expansion.space.groups(self.expansion.n_columns):
            image[:, group] = self.columns.kernel_values(values, gamma).double() @ coefficients[:, group]
        return (coefficients * image).sum(0)

    def advance(self, start: int) -> None:
        # With kept columns all rows cost the same, and a shorter tail would save nothing.
        assert self.expansion._newest is not None
        self.scores.mul_(self.expansion.decays[-1].to(self.scores.dtype))
        coefficients = self.expansion.coefficients[-1].to(self.scores.dtype)
        for part, values in self.columns.parts(self.expansion._newest[0]):
            for gamma, group in self.expansion.space.groups(self.expansion.n_columns):
                kernel = self.columns.kernel_values(values, gamma)
                self.scores[:, group].addmm_(kernel.t(), coefficients[part, group])
