"""Random Fourier features in seeded blocks: block i is a function of (seed, i) alone."""

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from threading import Thread
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.kernel_sums import KernelSpace

# A block is drawn in this many independent parts, side by side: drawing alone would cost a tenth of training.
_PARTS = 2


class Moves(NamedTuple):
    """cos and sin of what a step along each of some coordinates adds to the angles of m features."""

    cosines: Tensor | None  # (m, q); None where they all round to 1
    sines: Tensor  # (m, q), to be multiplied by `scale`
    scale: float = 1.0


class Block(NamedTuple):
    """Features cos(scale · x @ frequencies + phases), amplitude 2/m left to the weights."""

    frequencies: Tensor  # (d, m), unit scale
    phases: Tensor  # (m,), in [0, 2π)

    def angles(self, X: Tensor, scale: float) -> Tensor:
        """z = scale · X @ frequencies + phases, shape (n, m)."""
        return torch.addmm(self.phases, X, self.frequencies, alpha=scale)

    def moves(self, coords: Tensor, size: float) -> Moves:
        """cos and sin of what moving coordinate j by `size` adds to the angles, both of shape (m, len(coords))."""
        d = len(self.frequencies)
        # All of them in order: the frequencies as they are, without a second table to read.
        whole = len(coords) == d and torch.equal(coords, torch.arange(d))
        slopes = self.frequencies if whole else self.frequencies[coords]
        # Where a²/2 is within an eps, cos a is 1 and sin a is a, as exactly as the angles themselves are known.
        largest = max(map(abs, torch.aminmax(slopes))) * size if len(coords) else 0.0
        if float(largest) ** 2 <= 2.0 * torch.finfo(slopes.dtype).eps:
            return Moves(None, slopes.t(), size)
        moves = slopes * size
        return Moves(moves.cos().t(), moves.sin_().t())

    @property
    def n_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self)


class FeatureStream:
    """Blocks of random features by number: block i is a function of (seed, i) alone.

    Blocks are kept within a memory budget. A kept block and one drawn again hold the same numbers, so the budget
    changes the time and nothing else. The draws are float32 numbers whatever the space's dtype: a float64 model uses
    the same features.
    """

    def __init__(self, space: KernelSpace, n_features: int, cache_mb: float, sampling: str = "gaussian"):
        self.space, self.n_features, self.cache_mb, self.sampling = space, n_features, cache_mb, sampling
        self._kept: dict[int, Block] = {}
        self._panels: dict[tuple[int, ...], Block] = {}
        self._source: FeatureStream | None = None

    def block(self, number: int) -> Block:
        """Block `number`, from memory or drawn."""
        if number in self._kept:
            return self._kept[number]
        if self._source is not None:
            # All draws are float32 numbers: converting them is exact, and ten times as fast as drawing.
            return Block(*(part.to(self.space.dtype) for part in self._source.block(number)))
        block = self._draw(number)
        # Blocks are read in turn, over and over: under that pattern evicting an old block for each new one would never
        # find anything in memory.
        if self._has_room(block):
            self._kept[number] = block
        return block

    def panel(self, numbers: tuple[int, ...]) -> Block:
        """Several blocks side by side, as one that is wider."""
        if len(numbers) == 1:
            return self.block(numbers[0])
        if numbers in self._panels:
            return self._panels[numbers]
        if self._source is not None:
            return Block(*(part.to(self.space.dtype) for part in self._source.panel(numbers)))
        blocks = [self.block(number) for number in numbers]
        panel = Block(torch.cat([b.frequencies for b in blocks], dim=1), torch.cat([b.phases for b in blocks]))
        if self._has_room(panel):
            self._panels[numbers] = panel
        return panel

    def _has_room(self, block: Block) -> bool:
        kept = sum(one.n_bytes for one in (*self._kept.values(), *self._panels.values()))
        return kept + block.n_bytes <= self.cache_mb * 2**20

    def forget_except(self, numbers: Collection[int]) -> None:
        """Make room: keep only these blocks in memory."""
        self._kept = {number: block for number, block in self._kept.items() if number in numbers}
        self._panels = {}

    def in_dtype(self, dtype: torch.dtype) -> "FeatureStream":
        """The same features in another precision, converted from those kept here; not kept themselves."""
        if dtype == self.space.dtype:
            return self
        other = FeatureStream(replace(self.space, dtype=dtype), self.n_features, 0, self.sampling)
        other._source = self
        return other

    def _draw(self, number: int) -> Block:
        frequencies = np.empty((self.space.dimension, self.n_features), dtype=np.float32)
        # numpy draws without holding the interpreter lock, and each part has its own stream: threads change nothing.
        first, *others = (
            partial(self._rng(number, part).standard_normal, out=rows, dtype=np.float32)
            for part, rows in enumerate(np.array_split(frequencies, _PARTS))
        )
        # Daemons that end by themselves: a thread of a pool that a signal cuts off while it starts would wait for ever,
        # and the process with it.
        helpers = [Thread(target=draw, name="features", daemon=True) for draw in others]
        for helper in helpers:
            helper.start()
        first()
        for helper in helpers:
            helper.join()
        if self.sampling == "orthogonal":
            frequencies = orthogonalised(frequencies)
        rng = self._rng(number, _PARTS)
        phases = rng.random(self.n_features, dtype=np.float32) * np.float32(2 * np.pi)
        lengths = self.space.kernel.frequency_lengths(rng, self.n_features)
        if lengths is not None:
            frequencies *= lengths
        return Block(*(torch.from_numpy(drawn).to(self.space.dtype) for drawn in (frequencies, phases)))

    def _rng(self, number: int, part: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.space.seed, number, part])))

    def __getstate__(self) -> dict[str, Any]:
        # A pickled or copied stream draws its blocks again.
        return {**self.__dict__, "_kept": {}, "_panels": {}}


def orthogonalised(normals: np.ndarray) -> np.ndarray:
    """Columns of normal draws (d, m) made orthogonal, d at a time, each with its own length (Yu et al. 2016).

    A column's direction among those before it is uniform and independent of its length, so that every single one is
    still a standard normal vector: the features approximate the same kernel, with less variance. In float64, so that
    what LAPACK rounds hardly ever shows in float32.
    """
    found = np.empty_like(normals)
    for start in range(0, normals.shape[1], len(normals)):
        group = normals[:, start : start + len(normals)].astype(np.float64)
        directions, triangle = np.linalg.qr(group)
        # Of the two directions of a line LAPACK takes any: that of the draw is uniform.
        lengths = np.linalg.norm(group, axis=0) * np.where(np.diag(triangle) < 0, -1.0, 1.0)
        found[:, start : start + len(normals)] = directions * lengths
    return found
