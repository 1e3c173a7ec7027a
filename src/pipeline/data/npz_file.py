"""A user's ``.npz``: X, y, or X_train, y_train, X_test, y_test."""

from __future__ import annotations

import zipfile
import zlib
from pathlib import Path

import numpy as np

from pipeline.data.dataset import Dataset
from pipeline.data.progress import Progress
from pipeline.data.settings import Settings, user_path
from pipeline.data.userdata import Table, from_tables
from pipeline.errors import UserError

_SPLIT = ("X_train", "y_train", "X_test", "y_test")


def load(settings: Settings, data_dir: Path, progress: Progress | None = None) -> Dataset:
    """Two classes of the arrays in ``dataset.path``; images (n, h, w) keep their shape for the figures."""
    path = user_path(settings)
    if path is None or not path.is_file():
        raise UserError(
            "dataset.path: name your file, dataset.path=FILE.npz with X, y or X_train, y_train, X_test, y_test"
        )
    arrays = _read(path)
    if all(key in arrays for key in _SPLIT):
        train, test = Table(arrays["X_train"], arrays["y_train"]), Table(arrays["X_test"], arrays["y_test"])
        return from_tables(settings, train, test, (path,))
    if "X" in arrays and "y" in arrays:
        return from_tables(settings, Table(arrays["X"], arrays["y"]), None, (path,))
    held = ", ".join(arrays) or "nothing"
    raise UserError(f"dataset.path: {path} holds {held}; it must hold X, y or X_train, y_train, X_test, y_test")


def _read(path: Path) -> dict[str, np.ndarray]:
    try:
        held = np.load(path, allow_pickle=False)
        if not isinstance(held, np.lib.npyio.NpzFile):
            raise ValueError("it holds a single array")
        with held:
            if not any(key in held.files for key in (*_SPLIT, "X", "y")):
                return dict.fromkeys(held.files, np.empty(0))  # for the names in the message
            return {key: held[key] for key in held.files if key in (*_SPLIT, "X", "y")}
    except (ValueError, EOFError, zipfile.BadZipFile, zlib.error, KeyError) as error:
        raise UserError(
            f"dataset.path: {path} is no npz of plain arrays or is damaged ({_short(error)}); write it with np.savez"
        ) from error
    except OSError as error:
        raise UserError(f"dataset.path: cannot read {path} ({error.strerror or error})") from error


def _short(error: Exception) -> str:
    return str(error).splitlines()[0] if str(error) else type(error).__name__
