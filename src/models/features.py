"""Seeded random Fourier features, drawn in blocks that do not depend on each other."""

import os
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from models.kernels import Kernel

# A block is drawn in this many independent parts, side by side: drawing alone would cost a tenth of training.
_PARTS = 2


class Block(NamedTuple):
    """Features cos(scale · x @ frequencies + phases), amplitude 2/m left to the weights."""

    frequencies: Tensor  # (d, m), unit scale
    phases: Tensor  # (m,), in [0, 2π)

    def angles(self, X: Tensor, scale: float) -> Tensor:
        """z = scale · X @ frequencies + phases, shape (n, m)."""
        return torch.addmm(self.phases, X, self.frequencies, alpha=scale)

    def moves(self, coords: Tensor, size: float) -> tuple[Tensor, Tensor]:
        """cos and sin of what moving coordinate j by `size` adds to the angles, both of shape (m, len(coords))."""
        moves = self.frequencies[coords] * size
        return moves.cos().t(), moves.sin_().t()

    @property
    def n_bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in self)


class FeatureStream:
    """Blocks of random features by number: block i is a function of (seed, i) alone.

    Blocks are kept within a memory budget. A kept block and one drawn again hold the same numbers, so the budget
    changes the time and nothing else.

    Parameters
    ----------
    kernel : Kernel
    dimension : int
    n_features : int
        Features per block, m.
    seed : int
    dtype : torch.dtype
        The draws are float32 numbers in any case; a float64 model uses the same features.
    cache_mb : float
    """

    def __init__(self, kernel: Kernel, dimension: int, n_features: int, seed: int, dtype: torch.dtype, cache_mb: float):
        self.kernel = kernel
        self.dimension = dimension
        self.n_features = n_features
        self.seed = seed
        self.dtype = dtype
        self.cache_mb = cache_mb
        self._kept: dict[int, Block] = {}
        self._source: FeatureStream | None = None

    def block(self, number: int) -> Block:
        """Block `number`, from memory or drawn."""
        if number in self._kept:
            return self._kept[number]
        if self._source is not None:
            # All draws are float32 numbers: converting them is exact, and ten times as fast as drawing.
            return Block(*(part.to(self.dtype) for part in self._source.block(number)))
        block = self._draw(number)
        # Blocks are read in turn, over and over: under that pattern evicting an old block for each new one would never
        # find anything in memory.
        if (len(self._kept) + 1) * block.n_bytes <= self.cache_mb * 2**20:
            self._kept[number] = block
        return block

    def forget_except(self, numbers: Collection[int]) -> None:
        """Make room: keep only these blocks in memory."""
        self._kept = {number: block for number, block in self._kept.items() if number in numbers}

    def in_dtype(self, dtype: torch.dtype) -> "FeatureStream":
        """The same features in another precision, converted from those kept here; not kept themselves."""
        if dtype == self.dtype:
            return self
        other = FeatureStream(self.kernel, self.dimension, self.n_features, self.seed, dtype, cache_mb=0)
        other._source = self
        return other

    def _draw(self, number: int) -> Block:
        frequencies = np.empty((self.dimension, self.n_features), dtype=np.float32)
        parts = np.array_split(frequencies, _PARTS)
        # numpy draws without holding the interpreter lock, and each part has its own stream: threads change nothing.
        draws = (self._rng(number, part).standard_normal for part in range(_PARTS))
        for drawn in [_pool().submit(draw, out=rows, dtype=np.float32) for draw, rows in zip(draws, parts)]:
            drawn.result()
        rng = self._rng(number, _PARTS)
        phases = rng.random(self.n_features, dtype=np.float32) * np.float32(2 * np.pi)
        lengths = self.kernel.frequency_lengths(rng, self.n_features)
        if lengths is not None:
            frequencies *= lengths
        return Block(torch.from_numpy(frequencies).to(self.dtype), torch.from_numpy(phases).to(self.dtype))

    def _rng(self, number: int, part: int) -> np.random.Generator:
        return np.random.Generator(np.random.SFC64(np.random.SeedSequence([self.seed, number, part])))

    def __getstate__(self):
        # A pickled or copied stream draws its blocks again.
        return {**self.__dict__, "_kept": {}}


@cache
def _pool() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(_PARTS, thread_name_prefix="features")


# Threads do not survive a fork: a child that kept the pool would wait for them for ever.
os.register_at_fork(after_in_child=_pool.cache_clear)
