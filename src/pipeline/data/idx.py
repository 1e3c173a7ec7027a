"""The IDX format of MNIST: a big-endian header, then bytes."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np

from pipeline.data.checksums import open_plain

_UNSIGNED_BYTES = 0x08


def read_idx(path: Path) -> np.ndarray:
    """Read an IDX file of unsigned bytes (plain or ``.gz``) as a uint8 array of its shape.

    Raises
    ------
    ValueError
        When the header is no IDX header or the length differs from it.
    """
    with open_plain(path) as stream:
        data = stream.read()
    shape, start = idx_shape(data[:64], path.name)
    if len(data) - start != math.prod(shape):
        raise ValueError(f"{path.name} holds {len(data) - start} bytes where its header says {math.prod(shape)}")
    return np.frombuffer(data, dtype=np.uint8, offset=start).reshape(shape)


def idx_shape(header: bytes, name: str) -> tuple[tuple[int, ...], int]:
    """Shape of the array and the length of the header, from a file's first bytes."""
    if len(header) < 4 or header[:2] != b"\0\0" or header[2] != _UNSIGNED_BYTES or not 1 <= header[3] <= 8:
        raise ValueError(f"{name} is no IDX file of bytes")
    start = 4 + 4 * header[3]
    if len(header) < start:
        raise ValueError(f"{name} ends within its header")
    return tuple(int(n) for n in np.frombuffer(header[4:start], dtype=">u4")), start


def write_idx(path: Path, array: np.ndarray) -> None:
    """Write a uint8 array as an IDX file."""
    header = bytes([0, 0, _UNSIGNED_BYTES, array.ndim]) + np.array(array.shape, dtype=">u4").tobytes()
    path.write_bytes(header + np.ascontiguousarray(array, dtype=np.uint8).tobytes())
