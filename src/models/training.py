"""The training loop: Algorithm 1 of the paper in mini-batches, for many settings at once, whatever the expansion.

Per iteration i, on the rows of one batch, for every column (a setting of C, step, width and the fold it leaves out):

    v_b     = 1 if 1 - y_b f(x_b) + ε'‖f‖ > 0 else 0
    γ_i     = step (constant) or step / i (diminishing)
    c_b     = γ_i C v_b y_b
    literal:   f ← (1 - γ_i (1 + ε' C Σ_b v_b / ‖f‖)) f + Σ_b c_b k(x_b, ·)
    proximal:  f ← (1 - γ_i) f + Σ_b c_b k(x_b, ·), then ‖f‖ shrinks by γ_i ε' C Σ_b v_b, never below 0

‖f‖ follows by a recursion on the batch's own Gram matrix. All rows of a window of batches are scored ahead of their
turn: the batches are known, so each new term is added to the rows that will be asked for, in large matrix products.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.expansions import Front, LiveExpansion
from models.expansions.base import Tracker
from models.rows import RowSource, to_tensor

Observer = Callable[..., None]

# A column is given up for diverged beyond this norm: float32 scores and their squares are still finite there.
NORM_LIMIT = 1e12
# Observers hear at most about this many times.
_REPORTS = 200


class PenaltyTooLargeWarning(UserWarning):
    """ε is so large that f = 0 minimises the adversarial objective on this data."""


class DivergenceWarning(UserWarning):
    """The step is too large: training left the range of numbers and was stopped at its last finite state."""


@dataclass(frozen=True)
class Columns:
    """Settings trained together, one value per column.

    Parameters
    ----------
    C, step, penalty : arrays of shape (n_columns,)
        Weight of the hinge summed over the batch, step size γ, and ε'.
    diminishing, proximal : bool
        Step schedule and form of the decay, the same for all columns.
    left_out : array of shape (n_columns,) or None
        The fold each column does not train on.
    """

    C: np.ndarray
    step: np.ndarray
    penalty: np.ndarray
    diminishing: bool = False
    proximal: bool = False
    left_out: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.C)


@dataclass
class TrainingRecord:
    """What happened, by iteration and column.

    Attributes
    ----------
    norms, violators : arrays of shape (T, n_columns)
    test_errors : array of shape (T,) or None
        First column, on the evaluation rows.
    diverged : bool array of shape (n_columns,)
    penalty_too_large : bool array of shape (n_columns,)
    late_scores : list of tensors of shape (n, n_columns)
        Scores of all training rows after each of the last iterations asked for, the final ones last.
    """

    norms: np.ndarray
    violators: np.ndarray
    diverged: np.ndarray
    penalty_too_large: np.ndarray
    test_errors: np.ndarray | None = None
    late_scores: list[Tensor] = field(default_factory=list)


def train(
    expansion: LiveExpansion,
    source: RowSource,
    signs: np.ndarray,
    batches: list[np.ndarray],
    columns: Columns,
    *,
    folds: np.ndarray | None = None,
    evaluation: tuple[np.ndarray, np.ndarray] | None = None,
    keep_scores: int = 0,
    observer: Observer | None = None,
    event: str = "train",
) -> TrainingRecord:
    """Train every column of `expansion` on `batches`.

    Parameters
    ----------
    expansion : LiveExpansion
        The zero function; grows in place.
    source : RowSource
    signs : array of shape (n,)
        Labels as -1.0 and +1.0.
    batches : list of row-number arrays
    columns : Columns
    folds : array of shape (n,), optional
        Fold of each row; a column skips the rows of its `left_out` fold.
    evaluation : (X, signs), optional
        Rows whose error is followed from iteration to iteration.
    keep_scores : int
        Also give the scores of all training rows after this many last iterations; data that needs several windows gives
        the final ones only.
    observer : callable, optional
        Called as observer(event, iteration, total, norm=, violators=[, test_error=]).
    """
    loop = _Loop(columns, folds, len(batches))
    watch = None
    test_errors: np.ndarray | None = None
    if evaluation is not None:
        watch = expansion.track(Front(to_tensor(evaluation[0], source.dtype)), revisited=True)
        test_errors = np.empty(len(batches))
    every = max(1, len(batches) // _REPORTS)
    windows = _windows(batches, expansion, keep_scores > 0)
    # With one window the rows' scores are simply kept up to date to the end.
    keep_all = keep_scores > 0 and len(windows) == 1
    late_scores: list[Tensor] = []
    tracker: Tracker | None = None
    for window in windows:
        tracker = expansion.track(source.front(window.ids), window.revisited or keep_all)
        for batch in window.batches:
            values = loop.step(expansion, tracker, batch, signs, keep_all)
            if keep_all and loop.total - loop.done < keep_scores:
                late_scores.append(_in_row_order(tracker))
            if watch is not None and test_errors is not None:
                watch.advance(0)
                test_errors[loop.done - 1] = values["test_error"] = _error(watch, evaluation)
            if observer is not None and (loop.done % every == 0 or loop.done == loop.total):
                observer(event, loop.done, loop.total, **values)
    if keep_scores and not keep_all:
        late_scores.append(_score_everything(expansion, source))
    return loop.record(test_errors, late_scores)


@dataclass
class _Batch:
    positions: Tensor  # in the window's front
    rows: np.ndarray  # in the training data
    start: int  # rows of the front before this are finished once the batch is


@dataclass
class _Window:
    ids: np.ndarray
    batches: list[_Batch] = field(default_factory=list)
    revisited: bool = False


def _windows(batches: list[np.ndarray], expansion: LiveExpansion, keep_scores: bool) -> list[_Window]:
    """Cut the batches into windows; the rows of a window in the order in which they are first used."""
    everything = np.concatenate(batches)
    n_rows = int(everything.max()) + 1
    revisited = len(everything) > n_rows
    length = expansion.window_batches(n_rows, len(batches[0]), len(batches), revisited or keep_scores)
    windows = []
    for first in range(0, len(batches), length):
        part = batches[first : first + length]
        used = np.concatenate(part)
        ids = used[np.sort(np.unique(used, return_index=True)[1])]
        place = np.empty(n_rows, dtype=np.int64)
        place[ids] = np.arange(len(ids))
        window = _Window(ids, revisited=len(used) > len(ids))
        finished = 0
        for rows in part:
            finished += 0 if window.revisited else len(rows)
            window.batches.append(_Batch(torch.from_numpy(place[rows]), rows, finished))
        windows.append(window)
    return windows


class _Loop:
    """The state of all columns that is not the function itself."""

    def __init__(self, columns: Columns, folds: np.ndarray | None, total: int):
        self.columns = columns
        self.folds = folds
        self.total = total
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
        self, expansion: LiveExpansion, tracker: Tracker, batch: _Batch, signs: np.ndarray, keep_all: bool
    ) -> dict[str, Any]:
        """One iteration for all columns."""
        columns = self.columns
        gamma = self.gamma / (self.done + 1) if columns.diminishing else self.gamma
        y = torch.from_numpy(signs[batch.rows])[:, None]
        scores = tracker.at(batch.positions).double()
        violating = (1.0 - y * scores + self.penalty * self.norm > 0) & self.alive
        if self.folds is not None and columns.left_out is not None:
            violating &= torch.from_numpy(self.folds[batch.rows][:, None] != columns.left_out)
        counts = violating.sum(0)
        coefficients = violating * (gamma * self.C) * y
        pull = gamma * self.penalty * self.C * counts

        decay = 1.0 - gamma
        if not columns.proximal:
            decay = decay - torch.where(self.norm > 0, pull / self.norm, 0.0)
            self.flips += (decay < 0) & (gamma < 1) & self.alive
        used = violating.any(1)
        own = tracker.term_norms(batch.positions[used], coefficients[used])
        cross = (coefficients * scores).sum(0)
        # Random features give approximate scores, with which the sum can fall slightly below 0.
        norm = (decay.square() * self.norm.square() + 2.0 * decay * cross + own).clamp_(min=0.0).sqrt_()
        if columns.proximal:
            shrink = torch.where(norm > 0, (1.0 - pull / norm).clamp_(min=0.0), 1.0)
            decay, coefficients, norm = decay * shrink, coefficients * shrink, norm * shrink

        lost = self.alive & ~(norm <= NORM_LIMIT)
        self.alive &= ~lost
        decay = torch.where(self.alive, decay, 1.0)
        coefficients[:, ~self.alive] = 0.0
        self.norm = torch.where(self.alive, norm, self.norm)

        expansion.scale(decay)
        expansion.add(tracker.front, batch.positions, coefficients)
        tracker.advance(0 if keep_all else batch.start)
        self.norms[self.done] = self.norm.numpy()
        self.violators[self.done] = counts.numpy()
        self.done += 1
        return {"norm": float(self.norm[0]), "violators": int(counts[0])}

    def record(self, test_errors: np.ndarray | None, late_scores: list[Tensor]) -> TrainingRecord:
        # The literal rule cannot reach f = 0: near it the decay turns negative and f changes sign from step to step.
        vanished = (self.norm == 0) | (self.flips > max(1, self.done // 8))
        return TrainingRecord(
            self.norms, self.violators, (~self.alive).numpy(), (vanished & self.alive).numpy(), test_errors, late_scores
        )


def _error(watch: Tracker, evaluation: Any) -> float:
    positive = watch.all()[:, 0].numpy() > 0
    return float(np.mean(positive != (evaluation[1] > 0)))


def _in_row_order(tracker: Tracker) -> Tensor:
    assert tracker.front.ids is not None
    found = tracker.all()
    scores = torch.empty_like(found)
    scores[torch.from_numpy(tracker.front.ids)] = found
    return scores


def _score_everything(expansion: LiveExpansion, source: RowSource) -> Tensor:
    scores = torch.empty(len(source), expansion.n_columns, dtype=source.dtype)
    for ids in np.array_split(np.arange(len(source)), max(1, len(source) // 16384)):
        scores[ids] = expansion.scores(to_tensor(source.X[ids], source.dtype))
    return scores
