"""The rows that training sees: in which order, how many batches together, and as they are or moved."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from models.distances import row_norms, to_tensor

# Of more than this share of filled columns none is left out: the copy would cost what a product saves.
_MOST_FILLED = 0.95


@dataclass(eq=False)
class BatchView:
    """Rows to be scored, held as one tensor."""

    X: Tensor  # (n, d)
    ids: np.ndarray | None = None  # (n,), row numbers in the training data; rows of other origin have none

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def norms(self) -> Tensor:
        """Squared norms, shape (n,)."""
        return row_norms(self.X)

    @cached_property
    def filled(self) -> tuple[Tensor | None, Tensor]:
        """Columns that are not 0 in every row, and the rows in these alone; where that saves little, None and X."""
        columns = self.X.ne(0).any(0).nonzero()[:, 0]
        if len(columns) > _MOST_FILLED * self.X.shape[1]:
            return None, self.X
        return columns, self.X[:, columns]


class RowSource:
    """Rows of X by number, converted a window at a time: X may be a memory map of any real dtype, or sparse (CSR)."""

    # Whether rows may be had before their batch's turn.
    ahead = True

    def __init__(self, X: Any, dtype: torch.dtype):
        self.X = X
        self.dtype = dtype

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def view(self, ids: np.ndarray) -> BatchView:
        """Some rows as a tensor."""
        return BatchView(to_tensor(self.X[ids], self.dtype), ids)


@dataclass
class Batch:
    """The rows of one iteration."""

    positions: Tensor  # (B,), of the batch in the view
    rows: np.ndarray  # (B,), of the batch in the training data
    finished: int  # rows of the view before this are never used again once the batch is done
    view: BatchView = field(init=False, repr=False)  # the window's rows, once it is opened

    @property
    def X(self) -> Tensor:
        return self.view.X[self.positions]


@dataclass
class Window:
    """Consecutive batches whose rows are scored together."""

    ids: np.ndarray
    batches: list[Batch]
    revisited: bool

    def open(self, source: RowSource) -> BatchView:
        """Convert the rows."""
        view = source.view(self.ids)
        for batch in self.batches:
            batch.view = view
        return view


def shuffled_batches(n_rows: int, batch_size: int, passes: int, seed: int) -> list[np.ndarray]:
    """Row numbers of every batch: each pass is a seeded permutation cut into batches, the last of them smaller."""
    batches: list[np.ndarray] = []
    for number in range(passes):
        order = np.random.default_rng([seed, number, 1]).permutation(n_rows)
        batches += [order[start : start + batch_size] for start in range(0, n_rows, batch_size)]
    return batches


def fold_batches(folds: np.ndarray, batch_size: int, passes: int, seed: int) -> list[np.ndarray]:
    """Batches with the same number of rows, batch_size / (n_folds - 1), from each fold."""
    n_folds = int(folds.max()) + 1
    share = max(1, round(batch_size / (n_folds - 1)))
    batches = []
    for turn in range(passes):
        rng = np.random.default_rng([seed, turn, 2])
        orders = [rng.permutation(np.flatnonzero(folds == fold)) for fold in range(n_folds)]
        for start in range(0, max(map(len, orders)), share):
            batches.append(np.concatenate([order[start : start + share] for order in orders]))
    return batches


def windows(batches: list[np.ndarray], length: int, keep_all: bool = False) -> list[Window]:
    """`length` batches at a time; the rows of a window in the order in which they are first used.

    With `keep_all` no row counts as finished.
    """
    n_rows = int(max(rows.max() for rows in batches)) + 1
    found = []
    for first in range(0, len(batches), length):
        part = batches[first : first + length]
        used = np.concatenate(part)
        ids = used[np.sort(np.unique(used, return_index=True)[1])]
        place = np.empty(n_rows, dtype=np.int64)
        place[ids] = np.arange(len(ids))
        window = Window(ids, [], revisited=len(used) > len(ids))
        finished = 0
        for rows in part:
            finished += 0 if window.revisited or keep_all else len(rows)
            window.batches.append(Batch(torch.from_numpy(place[rows]), rows, finished))
        found.append(window)
    return found
