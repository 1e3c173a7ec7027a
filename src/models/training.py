"""Algorithm 1 of the paper in mini-batches, for many settings at once, whatever the expansion.

`algorithm1_step` is the algorithm; ``models.reference`` has it in plain NumPy. The loop around it scores all rows of a
window of batches ahead of their turn: the batches are known, so each new term is added to the rows that will be asked
for, in large matrix products.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.batches import Batch, BatchView, RowSource, windows
from models.descent import descend
from models.distances import to_tensor
from models.expansions import LiveExpansion
from models.expansions.expansion import ScoreTracker
from models.threat import Threat

Observer = Callable[..., None]

# A column is given up for diverged beyond this norm: float32 scores and their squares are still finite there.
NORM_LIMIT = 1e12
# Observers hear at most about this many times.
_REPORTS = 200


class PenaltyTooLargeWarning(UserWarning):
    """ε is so large that f = 0 minimises the adversarial objective on this data."""


class FewIterationsWarning(UserWarning):
    """So few iterations were run that the result says little about the method."""


class DivergenceWarning(UserWarning):
    """The step is too large: training left the range of numbers and was stopped at its last finite state."""


@dataclass(frozen=True)
class Columns:
    """Settings trained together, one value per column: arrays of shape (n_columns,)."""

    C: np.ndarray  # weight of the hinge summed over the batch
    step: np.ndarray  # γ
    penalty: np.ndarray  # ε'
    diminishing: bool = False  # step schedule and form of the decay, the same for all columns
    proximal: bool = False
    left_out: np.ndarray | None = None  # the fold each column does not train on

    def __len__(self) -> int:
        return len(self.C)

    def memory(self, dtype: torch.dtype) -> float:
        """Iterations after which a term no longer moves a score: a constant step γ shrinks it by 1 - γ in each."""
        slowest = float(np.abs(1.0 - self.step).max())
        if self.diminishing or slowest >= 1.0:
            return math.inf
        return 1.0 if slowest == 0.0 else math.log(torch.finfo(dtype).eps) / math.log(slowest)


@dataclass
class TrainingRecord:
    """What happened, by iteration and column."""

    norms: np.ndarray  # (T, n_columns)
    violators: np.ndarray  # (T, n_columns)
    diverged: np.ndarray  # (n_columns,), bool
    penalty_too_large: np.ndarray  # (n_columns,), bool
    test_errors: np.ndarray | None = None  # (T,), first column, on the evaluation rows
    # Scores (n, n_columns) of all training rows after each of the last iterations asked for, the final ones last.
    late_scores: list[Tensor] = field(default_factory=list)


class Update(NamedTuple):
    """f ← decay · f + Σ_b coefficients[b] k(x_b, ·), one value or column per setting, and ‖f‖ after it."""

    decay: Tensor  # (n_columns,)
    coefficients: Tensor  # (B, n_columns)
    norm: Tensor  # (n_columns,)
    violators: Tensor  # (n_columns,), Σ_b v_b


def algorithm1_step(
    scores: Tensor,
    y: Tensor,
    norm: Tensor,
    term_norms: Callable[[Tensor], Tensor],
    *,
    step: Tensor,
    C: Tensor,
    penalty: Tensor,
    proximal: bool = False,
    trained: Tensor | None = None,
) -> Update:
    """One iteration of Algorithm 1 on a batch of B rows, for every column (a setting and the fold it leaves out).

        v_b = 1 if 1 - y_b f(x_b) + ε'‖f‖ > 0 else 0,    c_b = γ_i C v_b y_b
        literal:   f ← (1 - γ_i (1 + ε' C Σ_b v_b / ‖f‖)) f + Σ_b c_b k(x_b, ·)
        proximal:  f ← (1 - γ_i) f + Σ_b c_b k(x_b, ·), then ‖f‖ shrinks by γ_i ε' C Σ_b v_b, never below 0

    Parameters
    ----------
    scores : tensor of shape (B, n_columns)
        f(x_b).
    y : tensor of shape (B, 1)
        ±1.
    norm : tensor of shape (n_columns,)
        ‖f‖.
    term_norms : callable
        From coefficients c to ‖Σ_b c_b k(x_b, ·)‖², by the batch's Gram matrix.
    step, C, penalty : tensors of shape (n_columns,)
        γ_i, C and ε'.
    proximal : bool
    trained : bool tensor of shape (B, n_columns), optional
        Rows a column may learn from.
    """
    violating = 1.0 - y * scores + penalty * norm > 0
    if trained is not None:
        violating &= trained
    violators = violating.sum(0)
    coefficients = violating * (step * C) * y
    shrinkage = step * penalty * C * violators
    decay = 1.0 - step
    if not proximal:
        decay = decay - torch.where(norm > 0, shrinkage / norm, 0.0)
    squared = decay.square() * norm.square() + 2.0 * decay * (coefficients * scores).sum(0) + term_norms(coefficients)
    # Random features give approximate scores, with which the sum can fall slightly below 0.
    norm = squared.clamp_(min=0.0).sqrt_()
    if proximal:
        shrink = torch.where(norm > 0, (1.0 - shrinkage / norm).clamp_(min=0.0), 1.0)
        decay, coefficients, norm = decay * shrink, coefficients * shrink, norm * shrink
    return Update(decay, coefficients, norm, violators)


def train_columns(
    expansion: LiveExpansion,
    source: RowSource,
    signs: np.ndarray,
    batches: list[np.ndarray],
    columns: Columns,
    *,
    folds: np.ndarray | None = None,
    evaluation: tuple[np.ndarray, np.ndarray] | None = None,
    keep_scores: int = 0,
    averaging: bool = False,
    observer: Observer | None = None,
    event: str = "train",
) -> TrainingRecord:
    """Train every column of `expansion` on `batches`.

    Parameters
    ----------
    expansion : LiveExpansion
        The zero function; grows in place.
    signs : array of shape (n,)
        Labels as -1.0 and +1.0.
    batches : list of row-number arrays
    folds : array of shape (n,), optional
        Fold of each row; a column skips the rows of its `left_out` fold.
    evaluation : (X, signs), optional
        Rows whose error is followed from iteration to iteration.
    keep_scores : int
        Also give the scores of all training rows after this many last iterations; data that needs several windows gives
        the final ones only, and with `averaging` there is one, of the mean.
    averaging : bool
        In the end f is the mean of the last half of the iterates, f_t with t > T // 2.
    observer : callable, optional
        Called as observer(event, iteration, total, norm=, violators=[, test_error=]).
    """
    total = len(batches)
    n_rows, used = int(max(rows.max() for rows in batches)) + 1, sum(map(len, batches))
    length = expansion.window_batches(n_rows, len(batches[0]), total, used > n_rows or keep_scores > 0)
    # Rows whose only turn comes when today's terms are forgotten are not scored ahead of it: four windows to a memory.
    if (memory := columns.memory(source.dtype)) < total / 2 and used <= n_rows and not keep_scores:
        length = min(length, max(1, round(memory / 4)))
    length = length if source.ahead else 1
    # With one window the rows' scores are simply kept up to date to the end.
    keep_all = keep_scores > 0 and length >= total and source.ahead
    loop = _Loop(columns, folds, total)
    watched = [expansion.track(BatchView(to_tensor(evaluation[0], source.dtype)), True)] if evaluation else []
    test_errors = np.empty(total) if evaluation else None
    every = max(1, total // _REPORTS)
    tail = total // 2 if averaging else total
    late_scores: list[Tensor] = []
    for window in windows(batches, length, keep_all):
        tracker = expansion.track(window.open(source), window.revisited or keep_all)
        for batch in window.batches:
            values = loop.step(expansion, tracker, watched, batch, signs)
            if loop.done > tail:
                expansion.add_to_average()
                for following in [*watched, tracker] if keep_all else watched:
                    following.add_to_average()
            if keep_all and not averaging and total - loop.done < keep_scores:
                late_scores.append(_in_row_order(tracker, tracker.all()))
            if evaluation is not None and test_errors is not None:
                scores = watched[0].averaged() if loop.done > tail else watched[0].all()
                wrong = (scores[:, 0].numpy() > 0) != (evaluation[1] > 0)
                test_errors[loop.done - 1] = values["test_error"] = float(np.mean(wrong))
            if observer is not None and (loop.done % every == 0 or loop.done == total):
                observer(event, loop.done, total, **values)
    if keep_all and averaging:
        late_scores.append(_in_row_order(tracker, tracker.averaged()))
    if averaging:
        expansion.average_tail(tail)
    if keep_scores and not keep_all:
        late_scores.append(_score_everything(expansion, source))
    return loop.record(test_errors, late_scores)


class _Loop:
    """The state of all columns that is not the function itself."""

    def __init__(self, columns: Columns, folds: np.ndarray | None, total: int):
        self.columns = columns
        self.folds = folds
        self.done = 0
        self.C, self.gamma, self.penalty = (
            torch.from_numpy(np.asarray(values, dtype=np.float64))
            for values in (columns.C, columns.step, columns.penalty)
        )
        self.norm = torch.zeros(len(columns), dtype=torch.float64)
        self.alive = torch.ones(len(columns), dtype=torch.bool)
        self.flips = torch.zeros(len(columns), dtype=torch.int64)
        self.norms = np.zeros((total, len(columns)))
        self.violators = np.zeros((total, len(columns)), dtype=np.int64)

    def step(
        self,
        expansion: LiveExpansion,
        tracker: ScoreTracker,
        watched: list[ScoreTracker],
        batch: Batch,
        signs: np.ndarray,
    ) -> dict[str, float]:
        """One iteration of all columns; those that diverge stay at their last finite state."""
        columns = self.columns
        gamma = self.gamma / (self.done + 1) if columns.diminishing else self.gamma
        trained = self.alive
        if self.folds is not None and columns.left_out is not None:
            trained = trained & torch.from_numpy(self.folds[batch.rows][:, None] != columns.left_out)

        def term_norms(coefficients: Tensor) -> Tensor:
            used = coefficients.ne(0).any(1)
            return tracker.term_norms(batch.positions[used], coefficients[used])

        decay, coefficients, norm, violators = algorithm1_step(
            tracker.at(batch.positions).double(),
            torch.from_numpy(signs[batch.rows])[:, None],
            self.norm,
            term_norms,
            step=gamma,
            C=self.C,
            penalty=self.penalty,
            proximal=columns.proximal,
            trained=trained,
        )
        if not columns.proximal:
            self.flips += (decay < 0) & (gamma < 1) & self.alive
        self.alive &= norm <= NORM_LIMIT
        decay = torch.where(self.alive, decay, 1.0)
        coefficients[:, ~self.alive] = 0.0
        self.norm = torch.where(self.alive, norm, self.norm)
        expansion.update(decay, batch, coefficients, tracker, *watched)
        self.norms[self.done] = self.norm.numpy()
        self.violators[self.done] = violators.numpy()
        self.done += 1
        return {"norm": float(self.norm[0]), "violators": int(violators[0])}

    def record(self, test_errors: np.ndarray | None, late_scores: list[Tensor]) -> TrainingRecord:
        # The literal rule cannot reach f = 0: near it the decay turns negative and f changes sign from step to step.
        vanished = (self.norm == 0) | (self.flips > max(1, self.done // 8))
        return TrainingRecord(
            self.norms, self.violators, (~self.alive).numpy(), (vanished & self.alive).numpy(), test_errors, late_scores
        )


class FreshExamples(RowSource):
    """Rows of X by number, moved in the threat's own ball to where y·f is low when they are asked for.

    The moved rows take the place of the rows in Algorithm 1: they are scored, violate their margins and become the
    kernels' centres. A moved row is seen once, so there is nothing to over-fit; a row of a later pass is another one.
    `expansion` is f while it grows, one column; one of the `steps` of descent is the fast gradient sign method.
    """

    # Rows are moved against f as it is now, so they cannot be scored ahead of their turn.
    ahead = False

    def __init__(
        self, X: np.ndarray, dtype: torch.dtype, signs: np.ndarray, expansion: LiveExpansion, threat: Threat, steps: int
    ):
        super().__init__(X, dtype)
        self.signs, self.expansion, self.threat, self.steps = signs, expansion, threat, steps
        self._given = 0

    def view(self, ids: np.ndarray) -> BatchView:
        """Some rows, moved; each gets a number of its own, as the same row is moved elsewhere in another pass."""
        rows = super().view(ids).X
        y = torch.from_numpy(self.signs[ids])[:, None].to(self.dtype)
        self.expansion.bring_up_to_date()

        def slopes(points: Tensor) -> Tensor:
            return y * self.expansion.scores_and_gradients(points)[1][:, 0]

        numbers = np.arange(self._given, self._given + len(ids))
        self._given += len(ids)
        return BatchView(descend(self.threat, rows, slopes, self.steps), numbers)


def _in_row_order(tracker: ScoreTracker, found: Tensor) -> Tensor:
    assert tracker.view.ids is not None
    scores = torch.empty_like(found)
    scores[torch.from_numpy(tracker.view.ids)] = found
    return scores


def _score_everything(expansion: LiveExpansion, source: RowSource) -> Tensor:
    scores = torch.empty(len(source), expansion.n_columns, dtype=source.dtype)
    for ids in np.array_split(np.arange(len(source)), max(1, len(source) // 16384)):
        scores[ids] = expansion.scores(to_tensor(source.X[ids], source.dtype))
    return scores
