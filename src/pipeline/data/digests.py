"""A number per row of pixels: equal rows, equal numbers."""

from __future__ import annotations

from typing import Any

import numpy as np

_WINDOW = 128


def row_digests(X: Any) -> np.ndarray:
    """Digest of the content of every row, (n,) uint64.

    A random multilinear hash of the float32 bits modulo 2^64: two different rows agree with chance about 2^-40. It
    reads a memory map in windows and is fast enough to be computed in every run.
    """
    pairs = (X.shape[1] + 1) // 2
    weights = np.random.default_rng(0).integers(0, 2**64, size=pairs, dtype=np.uint64) | np.uint64(1)
    digests = np.empty(len(X), dtype=np.uint64)
    # Two buffers for all windows, which stay in the processor's cache.
    buffer = np.zeros((_WINDOW, 2 * pairs), dtype=np.float32)
    folded = np.empty((_WINDOW, pairs), dtype=np.uint64)
    for start in range(0, len(X), _WINDOW):
        part = X[start : start + _WINDOW]
        rows, fold = buffer[: len(part)], folded[: len(part)]
        # Adding 0 turns the negative zero into the positive one: equal numbers, equal bits.
        np.add(part, np.float32(0), out=rows[:, : X.shape[1]], casting="same_kind")
        bits = rows.view(np.uint64)
        # Floats such as 0.5 and 1 have no low bits; without this fold they would reach the top bits of the sum only.
        np.right_shift(bits, np.uint64(32), out=fold)
        np.bitwise_xor(bits, fold, out=fold)
        np.matmul(fold, weights, out=digests[start : start + len(part)])
    return digests
