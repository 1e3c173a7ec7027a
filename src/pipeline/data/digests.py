"""A number per row of pixels: equal rows, equal numbers."""

from __future__ import annotations

import numpy as np

_WINDOW = 4096


def row_digests(X: np.ndarray) -> np.ndarray:
    """Digest of the content of every row, (n,) uint64.

    A random multilinear hash of the float32 bits modulo 2^64: two different rows agree with chance about 2^-32. It reads
    a memory map in windows and is fast enough to be computed in every run.
    """
    weights = np.random.default_rng(0).integers(1, 2**64, size=X.shape[1], dtype=np.uint64, endpoint=False) | np.uint64(1)
    digests = np.empty(len(X), dtype=np.uint64)
    for start in range(0, len(X), _WINDOW):
        rows = np.ascontiguousarray(X[start : start + _WINDOW], dtype=np.float32)
        # Adding 0 turns the negative zero into the positive one: equal numbers, equal bits.
        bits = (rows + np.float32(0)).view(np.uint32).astype(np.uint64)
        digests[start : start + _WINDOW] = bits @ weights
    return digests
