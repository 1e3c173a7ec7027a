"""Files in MNIST's format, as the tests write them."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write a uint8 array as an IDX file."""
    header = bytes([0, 0, 0x08, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(header + np.ascontiguousarray(array, dtype=np.uint8).tobytes())
