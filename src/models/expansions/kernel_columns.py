"""Kernel values of a front's rows against each other, computed on demand, kept within a memory budget."""

from collections.abc import Iterator

import torch
from torch import Tensor

from models.expansions.base import CHUNK, Front, KernelSpace


class KernelColumns:
    """Rows of the front's kernel matrix (it is symmetric), each computed when first needed.

    With one width the kernel values themselves are kept, otherwise squared distances.
    """

    def __init__(self, space: KernelSpace, front: Front, budget: int):
        self.space = space
        self.front = front
        n = len(front)
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
        size = max(1, CHUNK // len(self.front))
        for part in found.nonzero()[:, 0].split(size):
            yield part, self.kept[self.slots[positions[part]]]
        for part in (~found).nonzero()[:, 0].split(max(size, 64)):
            yield part, self._compute(positions[part], slice(None))

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
        for part in unknown.split(max(256, CHUNK // len(positions))):
            first, last = int(part[0]), int(part[-1])
            rows = slice(first, last + 1) if last - first + 1 == len(part) else part
            target[:, rows] = self._compute(positions, rows)
        # Half of a symmetric matrix is already there.
        target[:, known] = self.kept[: self.used][:, positions].t()
        self.owners[slots] = positions
        self.slots[positions] = torch.arange(slots.start, slots.stop)
        self.used = slots.stop

    def _compute(self, positions: Tensor, rows: Tensor | slice) -> Tensor:
        front = self.front
        squared = self.space.squared_distances(
            front.X[positions], front.X[rows], front.norms[positions], front.norms[rows]
        )
        if len(self.space.gammas) > 1:
            return squared
        return self.space.kernel.from_squared_distance_(squared, self.space.gammas[0])
