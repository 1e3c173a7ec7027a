"""The exact expansion: f(x) = Σ_s w_s k(x, s) over the rows that violated their margin."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

import numpy as np
import torch
from torch import Tensor

from models.batches import Batch, BatchView
from models.distances import chunks, row_norms
from models.expansions.expansion import (
    Expansion,
    LiveExpansion,
    RunningScores,
    ScoreTracker,
    negligible,
    suffix_products,
)
from models.expansions.kernel_cache import KernelColumns
from models.expansions.projection import project
from models.kernel_sums import KernelSpace, KernelSum, kernel_sum
from models.limits import at_least, whole
from models.probing import PlainProber, Prober

# Batches trained on one view. New terms are added to the whole rest of a window, faded ones included: a short window
# wastes less, and 4,000 rows are enough for large matrix products.
_WINDOW = 8


@dataclass(frozen=True)
class SupportVectors(Expansion):
    """Exact kernel sum over the margin violators.

    Parameters
    ----------
    cache_mb : float
        Memory for kernel values that training in several passes reads again.
    budget : int or None
        Most support vectors that count for the next rows (eight batches are scored together). When there are more,
        those of the least weight are projected onto the heavier half of the budget
        (``models.expansions.projection``), so that the cost of a row stays bounded;
        `SupportVectorSum.projection_error` bounds what that has changed, and certificates make allowance for it. A
        grid of settings is trained without it. None: no limit, the exact sum.
    rank : int or None
        Training takes the distances between its rows from so many coordinates and the rows' own lengths
        (``models.distances.leading_coordinates``): 150 instead of 3,072 pixels, a twentieth of the arithmetic. The
        fitted sum is evaluated, attacked and certified with exact distances; `norm_` and the violators counted while it
        trains are those of the approximation. None: exact.
    """

    cache_mb: Annotated[float, at_least(0)] = 1024
    budget: Annotated[int | None, whole(2)] = None
    rank: Annotated[int | None, whole(1)] = None

    name: ClassVar[str] = "support_vectors"

    def begin(self, space: KernelSpace, n_columns: int) -> "SupportVectorSum":
        return SupportVectorSum(space, n_columns, replace(self, budget=self.budget if n_columns == 1 else None))

    def restore(self, space: KernelSpace, arrays: dict[str, np.ndarray]) -> "SupportVectorSum":
        live = self.begin(space, 1)
        live.rows = [torch.from_numpy(np.require(arrays["rows"], requirements=["C", "W"]))]
        sizes = np.diff(arrays["offsets"]).tolist()
        live.members = list(torch.from_numpy(arrays["members"].copy()).split(sizes))
        live.coefficients = list(torch.from_numpy(arrays["coefficients"].copy())[:, None].split(sizes))
        live.decays = list(torch.from_numpy(arrays["decays"].copy())[:, None])
        live.projection_error = float(arrays.get("projection_error", np.zeros(1))[0])
        return live


class SupportVectorSum(LiveExpansion):
    """`rows` are the support vectors, each once; iteration t gave row `members[t][e]` the `coefficients[t][e]`."""

    def __init__(self, space: KernelSpace, n_columns: int, settings: SupportVectors):
        super().__init__(space, n_columns)
        self.cache_mb, self.budget, self.rank = settings.cache_mb, settings.budget, settings.rank
        # How far f may be, in the RKHS and so at any point, from the same terms without projections.
        self.projection_error = self._tail_error = 0.0
        self._correction: tuple[Tensor, Tensor] | None = None
        self.rows: list[Tensor] = []
        self.members: list[Tensor] = []
        self.coefficients: list[Tensor] = []
        self._index: dict[int, int] = {}
        self._newest: tuple[Tensor, Tensor] | None = None
        self._live: tuple[Tensor, Tensor] | None = None
        self._prepared: dict[torch.dtype, tuple[tuple[Tensor, Tensor], KernelSum]] = {}
        self._active = ActiveSet(n_columns, space.dimension, space.dtype)
        self._taken_in = 0

    # -- training ------------------------------------------------------------------------------------------------------
    def window_batches(self, n_rows: int, batch_size: int, n_batches: int, revisited: bool) -> int:
        if (
            revisited or self.rank is not None
        ) and n_rows * n_rows * self.space.dtype.itemsize <= 4 * self.cache_mb * 2**20:
            return n_batches
        return min(n_batches, _WINDOW)

    def track(self, view: BatchView, revisited: bool) -> ScoreTracker:
        self.bring_up_to_date()
        kept = (revisited or self.rank is not None) and view.ids is not None
        return CachedKernelScores(self, view) if kept else RunningScores(self, view)

    def bring_up_to_date(self) -> None:
        """Bring the active set up to date, for the scores at the start of a window."""
        recent = slice(self._taken_in, None)
        if self.members[recent]:
            decays = torch.stack(self.decays[recent])
            entries = zip(self.coefficients[recent], suffix_products(decays))
            self._active.update(
                self.rows,
                torch.cat(self.members[recent]),
                torch.cat([coefficients * later for coefficients, later in entries]),
                decays.prod(0),
            )
            self._taken_in = len(self.members)
            self._live = None
        if self._live is None:
            self._live = (self._active.X, self._active.weights)

    def add(self, batch: Batch, coefficients: Tensor) -> None:
        used = coefficients.ne(0).any(1)
        view, positions, coefficients = batch.view, batch.positions[used], coefficients[used]
        ids = positions.tolist() if view.ids is None else view.ids[positions.numpy()].tolist()
        fresh = [place for place, row in enumerate(ids) if row not in self._index]
        for place in fresh:
            self._index[ids[place]] = len(self._index)
        if fresh:
            self.rows.append(view.X[positions[fresh]])
        self.members.append(torch.tensor([self._index[row] for row in ids], dtype=torch.int64))
        self.coefficients.append(coefficients)
        self._newest = (positions, view.X[positions])
        self._live = None
        self._correction = None
        self.projection_error *= float(self.decays[-1].abs().max())
        # Rows of the window that are still to come would be scored again; after the last one there are none.
        if self.budget is not None and not 0 < batch.finished < len(view):
            self._keep_to_budget(self.budget)

    def _keep_to_budget(self, budget: int) -> None:
        """When too many vectors count: put the lighter ones into the others, as a part of the newest term."""
        since = sum(map(len, self.members[self._taken_in :]))
        if len(self._active.rows) + since <= budget:
            return
        self.bring_up_to_date()
        active = self._active
        if len(active.rows) <= budget:
            return
        # Of equal weights the latest stay.
        order = active.weights[:, 0].abs().sort(stable=True).indices
        gone, kept = order[: -(budget // 2)], order[-(budget // 2) :].sort().values
        taken = active.weights[gone]
        found = project(self.space, active.X[kept], active.X[gone], taken)
        self.projection_error += float(found.error.max())
        # As entries of this iteration: every later iterate has them, no earlier one.
        self._correction = (active.X[torch.cat([gone, kept])], torch.cat([-taken, found.gained]))
        self.members[-1] = torch.cat([self.members[-1], active.rows[gone], active.rows[kept]])
        self.coefficients[-1] = torch.cat([self.coefficients[-1], self._correction[1]])
        active.weights[kept] += found.gained
        active.keep(kept)
        self._live = None

    def add_newest(self, view: BatchView, scores: Tensor, start: int) -> None:
        assert self._newest is not None
        vectors = self._newest[1]
        scores[start:].mul_(self.decays[-1].to(scores.dtype))
        self._add_term(view, scores, start, vectors, self.coefficients[-1][: len(vectors)])
        self.add_correction(view, scores, start)

    def add_correction(self, view: BatchView, scores: Tensor, start: int) -> None:
        """What keeping to the budget has just changed, for rows[start:] of a view."""
        if self._correction is not None:
            self._add_term(view, scores, start, *self._correction)

    def _add_term(self, view: BatchView, scores: Tensor, start: int, vectors: Tensor, coefficients: Tensor) -> None:
        if len(vectors) == 0:
            return
        coefficients, vector_norms = coefficients.to(scores.dtype), row_norms(vectors)
        for rows in chunks(len(view) - start, len(vectors)):
            rows = slice(start + rows.start, start + rows.stop)
            squared = self.space.squared_distances(view.X[rows], vectors, view.norms[rows], vector_norms)
            self.space.kernel_product(squared, coefficients, scores[rows])

    def add_to_average(self) -> None:
        self._tail_error = max(self._tail_error, self.projection_error)

    def average_tail(self, start: int) -> None:
        super().average_tail(start)
        self.projection_error = self._tail_error
        self._live = None

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

    def _ready(self, dtype: torch.dtype | None) -> KernelSum:
        """The live part, prepared once for many evaluations."""
        dtype = dtype or self.space.dtype
        vectors, weights = live = self.live()
        if dtype not in self._prepared or self._prepared[dtype][0] is not live:
            self._prepared[dtype] = (live, kernel_sum(self.space, vectors, weights, dtype))
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
        for members, coefficients, later in zip(self.members, self.coefficients, self.term_factors()):
            weights.index_add_(0, members, coefficients * later)
        kept = ~negligible(weights, self.space.dtype)
        return vectors[kept], weights[kept]

    def scores(self, X: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        return self._ready(dtype).scores(X)

    def scores_and_gradients(
        self, X: Tensor, columns: Tensor | None = None, dtype: torch.dtype | None = None, coords: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        columns = torch.tensor([0]) if columns is None else columns
        gamma = self.space.gamma_of(columns, self.n_columns)
        return self._ready(dtype).scores_and_gradients(X, columns, gamma, coords)

    def column(self, number: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        vectors, weights = self.live()
        # A column has its own support vectors: not those of the fold it left out, nor rows beyond its margin.
        used = weights[:, number].ne(0)
        first, gamma = torch.tensor([0]), self.space.gamma_of(torch.tensor([number]), self.n_columns)
        space = replace(self.space, gammas=(gamma,))
        alone = kernel_sum(space, vectors[used], weights[used, number][:, None], space.dtype)
        return lambda X: alone.scores_and_gradients(X, first, gamma)

    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        return self._ready(None).probe(X, coords, h)

    def prober(self) -> Prober | PlainProber:
        return self._ready(None).prober(self)

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

    def iterate_scores(self, X: Tensor) -> Tensor:
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

    def arrays(self) -> dict[str, np.ndarray]:
        sizes = [len(members) for members in self.members]
        return {
            "rows": self._all_rows().numpy(),
            "members": torch.cat(self.members).numpy(),
            "coefficients": torch.cat(self.coefficients)[:, 0].numpy(),
            "offsets": np.concatenate([[0], np.cumsum(sizes)]),
            "decays": torch.stack(self.decays)[:, 0].numpy(),
        } | ({"projection_error": np.array([self.projection_error])} if self.projection_error else {})


class CachedKernelScores(RunningScores):
    """Adds terms from kernel values that are computed once for each support vector and then read again."""

    expansion: SupportVectorSum

    def __init__(self, expansion: SupportVectorSum, view: BatchView):
        super().__init__(expansion, view)
        self.columns = KernelColumns(expansion.space, view, int(expansion.cache_mb * 2**20), expansion.rank)

    def term_norms(self, positions: Tensor, coefficients: Tensor) -> Tensor:
        values = self.columns.among(positions)
        image = torch.empty_like(coefficients)
        for gamma, group in self.expansion.space.groups(self.expansion.n_columns):
            image[:, group] = self.columns.kernel_values(values, gamma).double() @ coefficients[:, group]
        return (coefficients * image).sum(0)

    def advance(self, finished: int) -> None:
        # With kept columns all rows cost the same, and a shorter tail would save nothing.
        assert self.expansion._newest is not None
        self.scores.mul_(self.expansion.decays[-1].to(self.scores.dtype))
        positions = self.expansion._newest[0]
        coefficients = self.expansion.coefficients[-1][: len(positions)].to(self.scores.dtype)
        for part, values in self.columns.parts(positions):
            for gamma, group in self.expansion.space.groups(self.expansion.n_columns):
                kernel = self.columns.kernel_values(values, gamma)
                self.scores[:, group].addmm_(kernel.t(), coefficients[part, group])
        self.expansion.add_correction(self.view, self.scores, 0)


class ActiveSet:
    """Support vectors with a weight that still moves a score, while training goes on; the others are left out for good.

    A decay multiplies all weights alike and new terms only add to their total, so what is negligible once stays so, and
    each window costs only as much as the rows that are active. Everything left out so far, at its present weight, stays
    below half an eps of the total (see `negligible`).
    """

    def __init__(self, n_columns: int, dimension: int, dtype: torch.dtype):
        self.rows = torch.zeros(0, dtype=torch.int64)  # numbers of the active rows among all support vectors
        self.X = torch.zeros(0, dimension, dtype=dtype)
        self.weights = torch.zeros(0, n_columns, dtype=torch.float64)
        self.left_out = torch.zeros(1, n_columns, dtype=torch.float64)

    def update(self, vectors: list[Tensor], members: Tensor, coefficients: Tensor, decay: Tensor) -> None:
        """Shrink by `decay`, add `coefficients` to the rows `members`, and leave out what has faded.

        `vectors` are all support vectors so far; coefficients (n_entries, n_columns) are at their present weight, and
        `decay` is the product since the last call.
        """
        self.weights *= decay
        self.left_out *= decay.abs()
        n_rows = sum(map(len, vectors))
        place = torch.full((n_rows,), -1, dtype=torch.int64)
        place[self.rows] = torch.arange(len(self.rows))
        fresh = members[place[members] < 0].unique()
        if len(fresh):
            place[fresh] = torch.arange(len(self.rows), len(self.rows) + len(fresh))
            self.rows = torch.cat([self.rows, fresh])
            self.X = torch.cat([self.X, _pick(vectors, fresh, n_rows)])
            self.weights = torch.cat([self.weights, torch.zeros(len(fresh), self.weights.shape[1]).double()])
        self.weights.index_add_(0, place[members], coefficients)
        self._leave_out()

    def keep(self, places: Tensor) -> None:
        """Leave out all but these, whose weights stand for the others now."""
        self.rows, self.X, self.weights = self.rows[places], self.X[places], self.weights[places]

    def _leave_out(self) -> None:
        # What was left out before counts as one more term, and as the first to stay out.
        faded = negligible(torch.cat([self.weights, self.left_out]), self.X.dtype)
        if not bool(faded[-1]):
            return
        faded = faded[:-1]
        self.left_out += self.weights[faded].abs().sum(0)
        self.keep(~faded)


def _pick(vectors: list[Tensor], rows: Tensor, n_rows: int) -> Tensor:
    """Some rows of the concatenation, without concatenating what comes before the first of them."""
    start, first = n_rows, int(rows.min())
    tail: list[Tensor] = []
    for part in reversed(vectors):
        tail.insert(0, part)
        start -= len(part)
        if start <= first:
            break
    return torch.cat(tail)[rows - start]
