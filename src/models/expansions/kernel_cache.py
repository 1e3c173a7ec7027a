"""Kernel values of a view's rows against each other, computed on required_margin, kept within a memory budget."""

from collections.abc import Iterator

import torch
from torch import Tensor

from models.batches import BatchView
from models.distances import CHUNK, leading_coordinates
from models.kernel_sums import KernelSpace

# Collecting a scattered row costs about as much as this many kernel values: a few new columns are cheaper in full.
_GATHERING = 64


class KernelColumns:
    """Rows of the view's kernel matrix (it is symmetric), each computed when first needed.

    With one width the kernel values themselves are kept, otherwise squared distances. With a `rank` these come from so
    many coordinates of the rows, see `leading_coordinates`.
    """

    def __init__(self, space: KernelSpace, view: BatchView, budget: int, rank: int | None = None):
        self.space = space
        self.view = view
        self.rank = rank
        self.X = view.X if rank is None else leading_coordinates(view.X, rank, space.seed)
        n = len(view)
        capacity = min(n, budget // (n * space.dtype.itemsize))
        # Untouched pages of an empty tensor cost nothing: memory grows with the rows in use.
        self.kept = torch.empty(capacity, n, dtype=space.dtype)
        self.owners = torch.empty(capacity, dtype=torch.int64)
        self.slots = torch.full((n,), -1, dtype=torch.int64)
        self.used = 0

    def parts(self, positions: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """(which of `positions`, their matrix rows (·, n)), a cache-sized part at a time."""
        self._fill(positions[self.slots[positions] < 0])
        found = self.slots[positions] >= 0
        size = max(1, CHUNK // len(self.view))
        for part in found.nonzero()[:, 0].split(size):
            yield part, self.kept[_as_slice(self.slots[positions[part]])]
        for part in (~found).nonzero()[:, 0].split(max(size, 64)):
            yield part, self._own(self._compute(positions[part], slice(None)), positions[part])

    def among(self, positions: Tensor) -> Tensor:
        """The square part of the matrix between `positions`."""
        self._fill(positions[self.slots[positions] < 0])
        slots = self.slots[positions]
        if bool((slots >= 0).all()):
            return self.kept[slots[:, None], positions]
        return self._own(self._compute(positions, positions), torch.arange(len(positions)))

    def kernel_values(self, values: Tensor, gamma: float) -> Tensor:
        """Kernel values for one width from what is kept."""
        return (
            values if len(self.space.gammas) == 1 else self.space.kernel.from_squared_distance_(values.clone(), gamma)
        )

    def _fill(self, positions: Tensor) -> None:
        positions = positions[: len(self.kept) - self.used]
        if len(positions) == 0:
            return
        slots = slice(self.used, self.used + len(positions))
        known = self.owners[: self.used]
        target = self.kept[slots]
        unknown = (self.slots < 0).nonzero()[:, 0]
        # Rows stand in the order of their first use, so on the first pass most unknown rows are one tail of the view.
        gaps = (unknown.diff() > 1).nonzero()[:, 0]
        tail = int(gaps[-1]) + 1 if len(gaps) else 0
        size = max(256, CHUNK // len(positions))
        # A few coordinates are multiplied sooner than a column is collected.
        if self.rank is not None or len(known) * len(positions) < _GATHERING * tail:
            unknown, tail = torch.arange(len(self.view)), 0
        else:
            # The rest of a symmetric matrix is already there.
            target.index_copy_(1, known, self.kept[: self.used, _as_slice(positions)].t().contiguous())
        for part in (*unknown[:tail].split(size), *unknown[tail:].split(size)):
            rows = _as_slice(part)
            target[:, rows] = self._compute(positions, rows)
        self._own(target, positions)
        self.owners[slots] = positions
        self.slots[positions] = torch.arange(slots.start, slots.stop)
        self.used = slots.stop

    def _own(self, values: Tensor, places: Tensor) -> Tensor:
        """Put right what every row has with itself: of a row, what is left beyond `rank` is not orthogonal to it."""
        if self.rank is not None:
            values[torch.arange(len(places)), places] = 1.0 if len(self.space.gammas) == 1 else 0.0
        return values

    def _compute(self, positions: Tensor, rows: Tensor | slice) -> Tensor:
        norms = self.view.norms
        squared = self.space.squared_distances(self.X[positions], self.X[rows], norms[positions], norms[rows])
        if len(self.space.gammas) > 1:
            return squared
        return self.space.kernel.from_squared_distance_(squared, self.space.gammas[0])


def _as_slice(positions: Tensor) -> Tensor | slice:
    """The same positions as a slice if they are consecutive: a view instead of a copy."""
    span = int(positions[-1]) - int(positions[0]) + 1 if len(positions) else 0
    if span > 0 and span == len(positions) and bool((positions.diff() == 1).all()):
        return slice(int(positions[0]), int(positions[-1]) + 1)
    return positions
