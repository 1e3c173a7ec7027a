"""Queries about rows of which few columns change between calls, as ZOO's do.

Everything a score depends on beyond the weights is a table of products x·ω (angles of random features) or x·s
(exponents of an RBF). When only the columns J of x changed since the last call, that table is brought up to date by a
product over J alone: with 128 of 3,072 columns a 24th of the work.
"""

from abc import ABC, abstractmethod
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor

from models.distances import to_tensor

# Updates add their rounding errors: after this many the table is computed afresh.
_RENEW = 32
# Largest table worth keeping, in numbers: 512 MiB in float32. A larger one is made in parts, each time anew.
_MOST = 2**27


class Asked(Protocol):
    """What is asked about rows again and again: a ``LiveExpansion``."""

    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]: ...


class Prober(ABC):
    """Even and odd part of f(x ± h·e_j) in h, with the products of the last call in memory: `width` numbers a row."""

    def __init__(self, expansion: Asked, width: int) -> None:
        self.expansion, self.width = expansion, width
        self._rows: Tensor | None = None
        self._updates = 0

    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """As `LiveExpansion.probe`. X may be anything; it is fast when few columns differ from the last call's."""
        if len(X) * self.width > _MOST or len(coords) > X.shape[1] // 2:
            # Too large a table, or one of which all will have changed by the next call: in parts that stay in cache.
            self._rows = None
            return self._anew(X, coords, h)
        self._follow(X)
        return self._answer(X, coords, h)

    def _follow(self, X: Tensor) -> None:
        """Bring the table up to date with X, or compute it afresh where that takes less."""
        if not self._catch_up(X):
            self._renew(X)
            self._updates = 0
        self._rows = X.clone()

    def _catch_up(self, X: Tensor) -> bool:
        known = self._rows
        if known is None or known.shape != X.shape or self._updates >= _RENEW:
            return False
        # Some rows first: where much of them has changed, the others need not be looked at.
        for rows in (slice(None, None, max(1, len(X) // 8)), slice(None)):
            changed = X[rows] != known[rows]
            columns = changed.any(0).nonzero()[:, 0]
            if len(columns) > X.shape[1] // 2:
                return False
        if len(columns):
            new, old = X.index_select(1, columns), known.index_select(1, columns)
            self._update(new - old, new + old, columns)
            self._updates += 1
        return True

    def keep(self, rows: Tensor) -> None:
        """Only these rows (a mask) will be asked about from now on."""
        if self._rows is not None:
            self._rows = self._rows[rows]
            self._keep(rows)

    def _anew(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd parts without the table."""
        return self.expansion.probe(X, coords, h)

    @abstractmethod
    def _renew(self, X: Tensor) -> None:
        """Compute the table for X."""

    @abstractmethod
    def _update(self, difference: Tensor, total: Tensor, columns: Tensor) -> None:
        """Bring the table up to date: in these columns new - old rows are `difference`, new + old `total`."""

    @abstractmethod
    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd parts from the table."""

    @abstractmethod
    def _keep(self, rows: Tensor) -> None:
        """Drop the other rows of the table."""


class PlainProber:
    """Asks an expansion, or a model, anew each time: for what has no such table."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def probe(self, X: Any, coords: Any, h: float) -> tuple[Any, Any]:
        """As `asked.probe`."""
        found: tuple[Any, Any] = self.asked.probe(X, coords, h)
        return found

    def keep(self, rows: Any) -> None:
        """There is nothing to keep."""


class ModelProber:
    """What ``model.prober()`` returns: NumPy in and NumPy out, `offset` added to the scores."""

    def __init__(self, prober: "Prober | PlainProber", dtype: torch.dtype, offset: float = 0.0):
        self._prober, self._dtype, self._offset = prober, dtype, offset

    def probe(self, X: np.ndarray, coords: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores at x + h·e_j and x - h·e_j for each j in `coords`, both of shape (n, q), float64."""
        columns = torch.as_tensor(np.ascontiguousarray(coords, dtype=np.int64))
        even, odd = (part.numpy() for part in self._prober.probe(to_tensor(X, self._dtype), columns, float(h)))
        return even + self._offset + odd, even + self._offset - odd

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows of the last X, given as a mask, will be asked about from now on."""
        self._prober.keep(torch.from_numpy(rows))
