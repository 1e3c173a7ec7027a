"""The support vectors that still matter, kept current while training goes on."""

import torch
from torch import Tensor

from models.expansions.base import negligible


class LiveSet:
    """Rows with a weight that still moves a score; the others are left out for good.

    A decay multiplies all weights alike and new terms only add to their total, so what is negligible once stays so, and
    each window costs only as much as the rows that are live. Everything left out so far, at its present weight, stays
    below half an eps of the total (see `negligible`).

    Attributes
    ----------
    rows : tensor of shape (n,)
        Numbers of the live rows among all support vectors.
    X : tensor of shape (n, d)
    weights : tensor of shape (n, n_columns), float64
    """

    def __init__(self, n_columns: int, dimension: int, dtype: torch.dtype):
        self.rows = torch.zeros(0, dtype=torch.int64)
        self.X = torch.zeros(0, dimension, dtype=dtype)
        self.weights = torch.zeros(0, n_columns, dtype=torch.float64)
        self.left_out = torch.zeros(1, n_columns, dtype=torch.float64)

    def take_in(self, vectors: list[Tensor], members: Tensor, coefficients: Tensor, decay: Tensor) -> None:
        """Shrink by `decay`, add `coefficients` to the rows `members`, and leave out what has faded.

        Parameters
        ----------
        vectors : list of tensors (·, d)
            All support vectors so far.
        members : tensor of shape (n_entries,)
        coefficients : tensor of shape (n_entries, n_columns)
            At their present weight.
        decay : tensor of shape (n_columns,)
            Product of the decays since the last call.
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

    def _leave_out(self) -> None:
        # What was left out before counts as one more term, and as the first to stay out.
        faded = negligible(torch.cat([self.weights, self.left_out]), self.X.dtype)
        if not bool(faded[-1]):
            return
        faded = faded[:-1]
        self.left_out += self.weights[faded].abs().sum(0)
        self.rows, self.X, self.weights = self.rows[~faded], self.X[~faded], self.weights[~faded]


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
