"""One-coordinate queries about rows that change little between calls, as those of a coordinate-wise attack do.

Everything a score depends on beyond the weights is a table of products x·ω (angles of random features) or x·s
(exponents of an RBF). When only the columns J of x changed since the last call, that table is brought up to date by a
product over J alone: with 128 of 3,072 columns a 24th of the work.
"""

from abc import ABC, abstractmethod
from typing import Any

from torch import Tensor

# Updates add their rounding errors: after this many the table is computed afresh.
_RENEW = 32
# Largest table worth keeping, in numbers: 512 MiB in float32. A larger one is made in parts, each time anew.
_MOST = 2**27


class Prober(ABC):
    """Even and odd part of f(x ± h·e_j) in h, with the products of the last call in memory.

    Parameters
    ----------
    expansion : LiveExpansion
    width : int
        Numbers the table holds per row.
    """

    def __init__(self, expansion, width: int) -> None:
        self.expansion, self.width = expansion, width
        self._rows: Tensor | None = None
        self._updates = 0

    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """As `LiveExpansion.probe`. X may be anything; it is fast when few columns differ from the last call's."""
        if len(X) * self.width > _MOST:
            self._rows = None
            return self.expansion.probe(X, coords, h)
        changed = self._changed(X)
        if changed is None:
            self._renew(X)
            self._updates = 0
        elif len(changed):
            assert self._rows is not None
            self._update(X, X.index_select(1, changed) - self._rows.index_select(1, changed), changed)
            self._updates += 1
        self._rows = X.clone()
        return self._answer(X, coords, h)

    def keep(self, rows: Tensor) -> None:
        """Only these rows (a mask) will be asked about from now on."""
        if self._rows is not None:
            self._rows = self._rows[rows]
            self._keep(rows)

    def _changed(self, X: Tensor) -> Tensor | None:
        """Columns that differ from the last call's; None when starting afresh is better."""
        if self._rows is None or self._rows.shape != X.shape or self._updates >= _RENEW:
            return None
        changed = (self._rows != X).any(0).nonzero()[:, 0]
        return changed if len(changed) <= X.shape[1] // 2 else None

    @abstractmethod
    def _renew(self, X: Tensor) -> None:
        """Compute the table for X."""

    @abstractmethod
    def _update(self, X: Tensor, difference: Tensor, changed: Tensor) -> None:
        """Bring the table up to date with X, which differs by `difference` in the columns `changed`."""

    @abstractmethod
    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd parts from the table."""

    @abstractmethod
    def _keep(self, rows: Tensor) -> None:
        """Drop the other rows of the table."""


class ForgetfulProber:
    """Asks an expansion, or a model, anew each time: for what has no such table."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def probe(self, X: Any, coords: Any, h: float) -> tuple[Any, Any]:
        """As `asked.probe`."""
        return self.asked.probe(X, coords, h)

    def keep(self, rows: Any) -> None:
        """There is nothing to keep."""
