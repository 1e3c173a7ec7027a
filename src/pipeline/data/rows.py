"""Rows of pixels that stay on disk: written in a stream, read in windows."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

# Larger views are handed out as they are: copying them would defeat the purpose.
_COPY_LIMIT_BYTES = 64 << 20


class MappedRows(np.memmap):
    """A read-only memory map whose rows come as copies, after which their pages are given back.

    A plain memory map counts every page ever touched as resident memory, so one pass over the data would end with
    all of it. It is an ordinary float32 array to everyone else; ``np.asarray`` of it is the plain map.
    """

    @classmethod
    def open(cls, path: Path, n_columns: int) -> MappedRows:
        """Map a file of little-endian float32 rows."""
        n_rows = path.stat().st_size // (4 * n_columns)
        return cls(path, dtype="<f4", mode="r", shape=(n_rows, n_columns))

    def __getitem__(self, key: Any) -> Any:
        taken = self.view(np.ndarray)[key]
        mapped = getattr(self, "_mmap", None)
        if mapped is None or not isinstance(taken, np.ndarray):
            return taken
        if taken.base is not None:
            if taken.nbytes > _COPY_LIMIT_BYTES:
                return taken
            taken = taken.copy()
        if hasattr(mmap, "MADV_DONTNEED"):
            mapped.madvise(mmap.MADV_DONTNEED)
        return taken


def write_rows(path: Path, windows: Iterable[np.ndarray]) -> str:
    """Append windows of byte pixels as float32 in [0, 1]; returns the sha256 of the file."""
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for window in windows:
            scaled = window.astype("<f4")
            scaled /= np.float32(255)
            data = scaled.reshape(-1).view(np.uint8).data
            digest.update(data)
            out.write(data)
    return digest.hexdigest()
