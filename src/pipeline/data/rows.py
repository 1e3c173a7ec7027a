"""Rows of pixels that stay on disk: written in a stream, read in windows."""

from __future__ import annotations

import hashlib
import mmap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

# Larger slices are handed out as views: copying them would defeat the purpose.
_COPY_LIMIT_BYTES = 64 << 20


class MappedRows(np.memmap):
    """A read-only memory map of float32 rows that does not grow resident when it is read in windows.

    A plain memory map counts every page ever touched as resident memory, and a touched page brings its neighbours
    along, so one pass over the data ends with all of it. Here ``X[a:b]`` copies the rows and gives the pages back,
    ``X[indices]`` reads just these rows. To everyone else it is an ordinary array; ``np.asarray(X)`` is the plain map.
    """

    @classmethod
    def open(cls, path: Path, n_columns: int) -> MappedRows:
        """Map a file of little-endian float32 rows."""
        n_rows = path.stat().st_size // (4 * n_columns)
        return cls(path, dtype="<f4", mode="r", shape=(n_rows, n_columns))

    def __getitem__(self, key: Any) -> Any:
        # Views made of this array (transposed, reshaped) no longer have the file's layout.
        mapped: Any = self.base
        whole = isinstance(mapped, mmap.mmap)
        if whole and isinstance(key, (list, np.ndarray)) and np.ndim(key) == 1:
            return self._read(np.arange(len(self))[key])
        taken = self.view(np.ndarray)[key]
        if whole and isinstance(taken, np.ndarray) and taken.nbytes <= _COPY_LIMIT_BYTES:
            taken = taken.copy()
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)
        return taken

    def _read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        with open(str(self.filename), "rb", buffering=0) as file:
            stride = self.strides[0]
            for target, row in zip(out, rows.tolist(), strict=True):
                file.seek(row * stride)
                if file.readinto(target) != stride:
                    raise OSError(f"{self.filename} ends within row {row}")
        return out


def write_rows(path: Path, windows: Iterable[np.ndarray]) -> str:
    """Write windows of byte pixels as float32 in [0, 1]; returns the sha256 of the file."""
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for window in windows:
            scaled = window.astype("<f4")
            scaled /= np.float32(255)
            data = scaled.reshape(-1).view(np.uint8).data
            digest.update(data)
            out.write(data)
    return digest.hexdigest()
