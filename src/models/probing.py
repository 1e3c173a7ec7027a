"""Queries about rows that change little between calls: by coordinates, as ZOO's do, or where few signs turn, as PGD's.

Everything a score depends on beyond the weights is a table of products x·ω (angles of random features) or x·s
(exponents of an RBF). When only the columns J of x changed since the last call, that table is brought up to date by a
product over J alone: with 128 of 3,072 columns a 24th of the work. When few entries changed, in every row others, by a
sparse product.
"""

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.distances import chunks, to_tensor

if TYPE_CHECKING:
    from collections.abc import Iterator

    from models.expansions.base import LiveExpansion
    from models.expansions.random_features import Block, RandomFeatureSum
    from models.kernel_sum import RBFSum

# Updates add their rounding errors: after this many the table is computed afresh.
_RENEW = 32
# What an entry of a sparse product takes, in entries of a dense one.
_SPARSE = 8
# Largest table worth keeping, in numbers: 512 MiB in float32. A larger one is made in parts, each time anew.
_MOST = 2**27


class Moves(NamedTuple):
    """cos and sin of what a step along each of some coordinates adds to the angles of m features."""

    cosines: Tensor | None  # (m, q); None where they all round to 1
    sines: Tensor  # (m, q), to be multiplied by `scale`
    scale: float = 1.0


class Prober(ABC):
    """Even and odd part of f(x ± h·e_j) in h, with the products of the last call in memory: `width` numbers a row."""

    def __init__(self, expansion: "LiveExpansion", width: int) -> None:
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

    def scores_and_gradients(self, X: Tensor) -> tuple[Tensor, Tensor]:
        """As `LiveExpansion.scores_and_gradients`. X may be anything; it is fast when few entries have changed."""
        if len(X) * self.width > _MOST:
            self._rows = None
            return self.expansion.scores_and_gradients(X)
        self._follow(X)
        scores = torch.zeros(len(X), 1, dtype=X.dtype)
        gradients = torch.zeros(len(X), 1, X.shape[1], dtype=X.dtype)
        self._add_gradients(X, scores, gradients)
        return scores, gradients

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
            columns, entries = changed.any(0).nonzero()[:, 0], int(changed.count_nonzero())
            by_columns, by_entries = len(columns) * len(changed), _SPARSE * entries
            if min(by_columns, by_entries) > changed.numel() // 2:
                return False
        if entries and by_columns <= by_entries:
            new, old = X.index_select(1, columns), known.index_select(1, columns)
            self._update(new - old, new + old, columns)
        elif entries:
            self._update((X - known).to_sparse(), X + known, None)
        self._updates += entries > 0
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
    def _update(self, difference: Tensor, total: Tensor, columns: Tensor | None) -> None:
        """Bring the table up to date: new - old rows are `difference`, new + old `total`, in the columns that changed.

        Or in all of them, where `columns` is None: `difference` is sparse then.
        """

    @abstractmethod
    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd parts from the table."""

    @abstractmethod
    def _add_gradients(self, X: Tensor, scores: Tensor, gradients: Tensor) -> None:
        """Add scores (n, 1) and gradients (n, 1, d) from the table."""

    @abstractmethod
    def _keep(self, rows: Tensor) -> None:
        """Drop the other rows of the table."""


class GaussianProber(Prober):
    """Keeps the exponents of all pairs of a Gaussian sum."""

    def __init__(self, expansion: "LiveExpansion", ready: "RBFSum"):
        super().__init__(expansion, len(ready))
        self.ready = ready
        self.exponents = torch.empty(0, len(ready))

    def _renew(self, X: Tensor) -> None:
        self.exponents = self.ready.exponents_at(X)

    def _update(self, difference: Tensor, total: Tensor, columns: Tensor | None) -> None:
        gamma = self.ready.gamma
        # ‖x‖² has grown by Σ (x - x')(x + x').
        if columns is None:
            right, longer = self.ready.across, torch.sparse.sum(difference * total, 1).to_dense()
        else:
            right, longer = self.ready.vectors.index_select(1, columns).t(), torch.linalg.vecdot(difference, total)
        self.exponents.addmm_(difference, right, alpha=2.0 * gamma).sub_(longer[:, None], alpha=gamma)

    def _add_gradients(self, X: Tensor, scores: Tensor, gradients: Tensor) -> None:
        for rows in chunks(len(X), self.width, at_least=16):
            values = self.exponents[rows].clamp(max=0.0).exp_()
            self.ready.gradients_of(values, X[rows], scores[rows], gradients[rows, 0])

    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        return self.ready.probe(X, coords, h, self.exponents)

    def _keep(self, rows: Tensor) -> None:
        self.exponents = self.exponents[rows]


class FeatureProber(Prober):
    """Keeps the angles of all random features in use."""

    expansion: "RandomFeatureSum"

    def __init__(self, expansion: "RandomFeatureSum"):
        self.scale = expansion.space.kernel.frequency_scale(expansion.space.gammas[0])
        self.panels = [(numbers, weights[:, 0]) for numbers, weights in expansion.live_panels()]
        self.angles: list[Tensor] = []
        self._moves: tuple[Tensor, float, list[Moves]] | None = None
        super().__init__(expansion, sum(len(weights) for _, weights in self.panels))

    def _features(self) -> "Iterator[Block]":
        # Asked for each time: the stream keeps what its memory allows.
        return (self.expansion.stream.panel(numbers) for numbers, _ in self.panels)

    def _renew(self, X: Tensor) -> None:
        self.angles = [block.angles(X, self.scale) for block in self._features()]

    def _update(self, difference: Tensor, total: Tensor, columns: Tensor | None) -> None:
        for block, angles in zip(self._features(), self.angles):
            right = block.frequencies if columns is None else block.frequencies[columns]
            angles.addmm_(difference, right, alpha=self.scale)

    def _add_gradients(self, X: Tensor, scores: Tensor, gradients: Tensor) -> None:
        for block, angles, (_, weights) in zip(self._features(), self.angles, self.panels):
            for rows in chunks(len(X), len(weights), at_least=16):
                at, by = angles[rows].clone(), weights[:, None]
                add_gradients(at, by, block.frequencies, self.scale, scores[rows], gradients[rows])

    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        even = torch.zeros(len(X), len(coords), dtype=torch.float64)
        odd = torch.zeros_like(even)
        for angles, (_, weights), moves in zip(self.angles, self.panels, self._moves_of(coords, h)):
            for rows in chunks(len(X), len(weights)):
                add_probes(angles[rows].clone(), moves, weights, even[rows], odd[rows])
        return even, odd

    def _anew(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        return self.expansion.probe(X, coords, h, self._moves_of(coords, h))

    def _moves_of(self, coords: Tensor, h: float) -> list[Moves]:
        """What a step along `coords` adds to the angles; short rows are asked about whole, each time the same."""
        if self._moves is None or self._moves[1] != h or not torch.equal(self._moves[0], coords):
            moves = [block.moves(coords, self.scale * h) for block in self._features()]
            self._moves = (coords.clone(), h, moves)
        return self._moves[2]

    def _keep(self, rows: Tensor) -> None:
        self.angles = [angles[rows] for angles in self.angles]


def add_gradients(
    angles: Tensor, weights: Tensor, frequencies: Tensor, scale: float, scores: Tensor, gradients: Tensor
) -> None:
    """Add Σ_k w_k cos z_k, (n, c), and its gradients, (n, c, d), for z_k = scale · ω_k·x + …; writes over `angles`."""
    slopes = torch.sin(angles)[:, None, :] * -weights.t().contiguous()
    gradients.view(-1, gradients.shape[2]).addmm_(slopes.view(-1, len(weights)), frequencies.t(), alpha=scale)
    scores.addmm_(angles.cos_(), weights)


def add_probes(angles: Tensor, moves: Moves, weights: Tensor, even: Tensor, odd: Tensor) -> None:
    """Add the parts of Σ_k w_k cos(z_k ± hω_kj) even and odd in h; writes over `angles`.

    cos(z ± hω) = cos z · cos hω ∓ sin z · sin hω: exact, and the odd part is never a difference of scores. With the
    usual tiny h every cos hω rounds to 1, and the even part is the score itself whatever the coordinate.
    """
    odd.sub_(torch.sin(angles).mul_(weights) @ moves.sines, alpha=moves.scale)
    if moves.cosines is None:
        even += angles.cos_().mv(weights)[:, None]
    else:
        even += angles.cos_().mul_(weights) @ moves.cosines


class PlainProber:
    """Asks an expansion, or a model, anew each time: for what has no such table."""

    def __init__(self, asked: Any) -> None:
        self.asked = asked

    def probe(self, X: Any, coords: Any, h: float) -> tuple[Any, Any]:
        """As `asked.probe`."""
        found: tuple[Any, Any] = self.asked.probe(X, coords, h)
        return found

    def scores_and_gradients(self, X: Any) -> tuple[Any, Any]:
        """As `asked.scores_and_gradients`."""
        found: tuple[Any, Any] = self.asked.scores_and_gradients(X)
        return found

    def keep(self, rows: Any) -> None:
        """There is nothing to keep."""


class ModelProber:
    """What ``model.prober()`` returns: NumPy in and NumPy out, `offset` added to the scores."""

    def __init__(self, expansion: "LiveExpansion", offset: float = 0.0):
        self._prober, self._dtype, self._offset = expansion.prober(), expansion.space.dtype, offset

    def probe(self, X: np.ndarray, coords: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores at x + h·e_j and x - h·e_j for each j in `coords`, both of shape (n, q), float64."""
        columns = torch.as_tensor(np.ascontiguousarray(coords, dtype=np.int64))
        even, odd = (part.numpy() for part in self._prober.probe(to_tensor(X, self._dtype), columns, float(h)))
        return even + self._offset + odd, even + self._offset - odd

    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """f(x), shape (n,), float64, and ∇f(x), shape (n, d)."""
        scores, gradients = self._prober.scores_and_gradients(to_tensor(X, self._dtype))
        return scores[:, 0].double().numpy() + self._offset, gradients[:, 0].numpy()

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows of the last X, given as a mask, will be asked about from now on."""
        self._prober.keep(torch.from_numpy(rows))
