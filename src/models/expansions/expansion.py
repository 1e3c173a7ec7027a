"""What every expansion shares: the space it lives in, the scores it is followed by, and the history of its decays.

The training loop (``models.training``) sees only `LiveExpansion` and `ScoreTracker`. All of them hold several functions
at once, the *columns*: the settings and folds of a grid. A single model is one column.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor

from models.batches import Batch, BatchView
from models.kernel_sums import KernelSpace
from models.probing import PlainProber, Prober
from models.registry import Registered

# Rows held by one training window, in bytes.
WINDOW_BYTES = 2**28


class ScoreTracker(ABC):
    """Scores of the rows of a view while the expansion grows."""

    def __init__(self, expansion: "LiveExpansion", view: BatchView):
        self.expansion = expansion
        self.view = view

    @abstractmethod
    def at(self, positions: Tensor) -> Tensor:
        """Current scores of some rows of the view, shape (len(positions), n_columns)."""

    @abstractmethod
    def advance(self, finished: int) -> None:
        """Take in the newest decay and term; rows before `finished` are never asked for again."""

    @abstractmethod
    def all(self) -> Tensor:
        """Current scores of the whole view, if no row has ever been `finished`."""

    def add_to_average(self) -> None:  # noqa: B027
        """The scores just reached are some of those to be averaged."""

    @abstractmethod
    def averaged(self) -> Tensor:
        """Scores of the mean of the iterates counted so far, as `all`."""

    def term_norms(self, positions: Tensor, coefficients: Tensor) -> Tensor:
        """‖Σ_b c_b k(x_b, ·)‖² for each column, shape (n_columns,), float64, from the rows' own Gram matrix."""
        X, norms = self.view.X[positions], self.view.norms[positions]
        squared = self.expansion.space.squared_distances(X, X, norms, norms).fill_diagonal_(0.0)
        return self.expansion.space.quadratic_form(squared, coefficients)


class RunningScores(ScoreTracker):
    """Scores kept up to date by adding each new term to every row still needed: scores ← decay · scores + term."""

    def __init__(self, expansion: "LiveExpansion", view: BatchView):
        super().__init__(expansion, view)
        self.scores = expansion.scores(view.X)
        self._tail_sum, self._tail_count = torch.zeros(0), 0

    def at(self, positions: Tensor) -> Tensor:
        return self.scores[positions]

    def advance(self, finished: int) -> None:
        self.expansion.add_newest(self.view, self.scores, finished)

    def all(self) -> Tensor:
        return self.scores

    def add_to_average(self) -> None:
        self._tail_sum = self.scores.clone() if self._tail_count == 0 else self._tail_sum.add_(self.scores)
        self._tail_count += 1

    def averaged(self) -> Tensor:
        return self._tail_sum / self._tail_count


@dataclass(frozen=True)
class Expansion(Registered, ABC, family="expansion"):
    """Settings of an expansion: how a function f is held. Defining a subclass registers it under its `name`."""

    # Whether f comes as near as one likes to the exact sum when it is trained for longer.
    approaches_kernel: ClassVar[bool] = True

    @abstractmethod
    def begin(self, space: KernelSpace, n_columns: int) -> "LiveExpansion":
        """The zero function, `n_columns` times."""

    @abstractmethod
    def restore(self, space: KernelSpace, arrays: dict[str, np.ndarray]) -> "LiveExpansion":
        """An expansion of one column from what `LiveExpansion.arrays` gave."""


class LiveExpansion(ABC):
    """f_t = decay_t · f_{t-1} + term_t for each column, scored, differentiated and probed.

    Terms are stored as they were added; the weight of term t today is its coefficient times the product of all later
    decays. That keeps every earlier iterate at hand (`staged_scores`).
    """

    def __init__(self, space: KernelSpace, n_columns: int):
        self.space = space
        self.n_columns = n_columns
        self.decays: list[Tensor] = []
        # f is the mean of the iterates after this many of them; None: the last iterate.
        self.tail: int | None = None

    # -- training ------------------------------------------------------------------------------------------------------
    def update(self, decay: Tensor, batch: Batch, coefficients: Tensor, *trackers: ScoreTracker) -> None:
        """f ← decay · f + Σ_b coefficients[b] k(x_b, ·) for each column, and the scores of `trackers` with it."""
        self.decays.append(decay)
        self.add(batch, coefficients)
        for tracker in trackers:
            tracker.advance(batch.finished if tracker.view is batch.view else 0)

    @abstractmethod
    def add(self, batch: Batch, coefficients: Tensor) -> None:
        """Store the term Σ_b coefficients[b] k(x_b, ·); its decay is stored already."""

    @abstractmethod
    def track(self, view: BatchView, revisited: bool) -> ScoreTracker:
        """Follow the scores of a view; `revisited` if its rows are used more than once."""

    @abstractmethod
    def window_batches(self, n_rows: int, batch_size: int, n_batches: int, revisited: bool) -> int:
        """How many consecutive batches are best trained on one view."""

    def bring_up_to_date(self) -> None:  # noqa: B027
        """Make ready to be scored in the midst of training."""

    def add_newest(self, view: BatchView, scores: Tensor, start: int) -> None:
        """scores[start:] ← decay · scores[start:] + newest term."""
        raise TypeError(f"{type(self).__name__} keeps no running scores")

    def add_to_average(self) -> None:  # noqa: B027
        """The iterate just reached is one of those to be averaged."""

    def average_tail(self, start: int) -> None:
        """From now on f is the mean of the iterates f_{start+1} … f_T."""
        self.tail = start

    def term_factors(self) -> Tensor:
        """What each term's coefficients count today, shape (T, n_columns), float64: the product of all later decays.

        In a mean of iterates, F_t = [t > start] + decay_{t+1} F_{t+1}, over their number.
        """
        decays = torch.stack(self.decays)
        if self.tail is None:
            return suffix_products(decays)
        factors = torch.ones_like(decays)
        for t in range(len(decays) - 2, -1, -1):
            factors[t] = decays[t + 1] * factors[t + 1] + (1.0 if t >= self.tail else 0.0)
        return factors / (len(decays) - self.tail)

    # -- the fitted function -------------------------------------------------------------------------------------------
    @abstractmethod
    def scores(self, X: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """f(x) for every column, shape (n, n_columns)."""

    @abstractmethod
    def scores_and_gradients(
        self, X: Tensor, columns: Tensor | None = None, dtype: torch.dtype | None = None, coords: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """f(x), shape (n, c), and ∇f(x), shape (n, c, d), or its `coords` only, for some columns of one width."""

    def column(self, number: int) -> Callable[[Tensor], tuple[Tensor, Tensor]]:
        """One column's `scores_and_gradients`, for many calls, shapes (n, 1) and (n, 1, d)."""
        return lambda X: self.scores_and_gradients(X, torch.tensor([number]))

    @abstractmethod
    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd part of f(x ± h·e_j) in h, both (n, q), for the first column."""

    def prober(self) -> Prober | PlainProber:
        """Answers `probe` again and again for rows of which few columns change in between."""
        return PlainProber(self)

    def staged_scores(self, X: Tensor) -> Tensor:
        """Scores of every stage, shape (T, n), first column: the iterate, and in the tail the mean of it so far."""
        stages = self.iterate_scores(X)
        if self.tail is not None:
            counts = torch.arange(1, len(stages) - self.tail + 1, dtype=torch.float64)
            stages[self.tail :] = stages[self.tail :].cumsum(0) / counts[:, None]
        return stages

    @abstractmethod
    def iterate_scores(self, X: Tensor) -> Tensor:
        """Scores of every iterate, shape (T, n), float64, first column."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The first column as arrays, for `Expansion.restore`."""


def suffix_products(decays: Tensor) -> Tensor:
    """Product of all later rows, for each row, shape (T, n_columns)."""
    after = torch.ones_like(decays)
    after[:-1] = decays[1:].flip(0).cumprod(0).flip(0)
    return after


def negligible(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Mask of terms whose weight no longer moves a score: together at most half an eps of any column's total weight.

    Every |feature| and kernel value is at most 1, so leaving them out moves no score by more than eps/2 · Σ|w|: 6e-8 of
    the total weight in float32, what evaluating the sum once may round anyway. Weights are (n_terms, n_columns).
    """
    tolerance = torch.finfo(dtype).eps / 2
    share = weights.abs()
    share = (share / share.sum(0).clamp_(min=torch.finfo(share.dtype).tiny)).amax(1)
    ascending, order = share.sort()
    mask = torch.zeros(len(share), dtype=torch.bool)
    mask[order[ascending.cumsum(0) <= tolerance]] = True
    return mask
