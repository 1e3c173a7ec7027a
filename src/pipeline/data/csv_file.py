"""A user's CSV: one row per example, one column with the label, all others numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from pipeline.data.dataset import Dataset
from pipeline.data.progress import Progress
from pipeline.data.settings import Settings, did_you_mean, user_path
from pipeline.data.userdata import Table, from_tables
from pipeline.errors import UserError


def load(settings: Settings, data_dir: Path, progress: Progress | None = None) -> Dataset:
    """Two classes of ``dataset.path``, tested on ``dataset.test_path`` or on a stratified part of the rows."""
    path, test_path = user_path(settings), user_path(settings, "test_path")
    if path is None or not path.is_file():
        raise UserError("dataset.path: name your file, dataset.path=FILE.csv with a header line")
    train, columns = _read(path, settings, "path")
    if test_path is None:
        return from_tables(settings, train, None, (path,))
    test, test_columns = _read(test_path, settings, "test_path")
    if columns != test_columns:
        raise UserError(f"dataset.test_path: the columns of {test_path} are not those of {path}")
    return from_tables(settings, train, test, (path, test_path))


def _read(path: Path, settings: Settings, key: str) -> tuple[Table, list[str]]:
    import pandas as pd

    try:
        frame = pd.read_csv(path, sep=settings.get("separator") or ",")
    except (ValueError, UnicodeDecodeError, EOFError) as error:
        raise UserError(
            f"dataset.{key}: {path} cannot be read as CSV ({str(error).strip().splitlines()[0]})"
        ) from error
    except OSError as error:
        raise UserError(f"dataset.{key}: cannot read {path} ({error.strerror or error})") from error
    label = str(settings.get("label"))
    frame.columns = frame.columns.astype(str)
    if label not in frame.columns:
        raise UserError(f"dataset.label: {path} has no column {label!r}{did_you_mean(label, list(frame.columns)[:20])}")
    values = frame.drop(columns=label)
    texts = [column for column in values.columns if values[column].dtype.kind not in "buif"]
    if texts:
        raise UserError(f"dataset.{key}: column {texts[0]!r} of {path} holds texts; remove it or encode it as numbers")
    if frame[label].isna().any():
        raise UserError(f"dataset.label: column {label!r} of {path} has gaps; fill or remove those rows")
    labels = frame[label].to_numpy()
    # Texts come as objects; numpy's own text type compares and sorts.
    labels = labels if labels.dtype.kind in "buif" else np.array([str(value) for value in labels])
    return Table(values.to_numpy(), labels), list(values.columns)
