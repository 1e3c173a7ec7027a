"""Rows and labels of a user, in memory: choose two classes, scale explicitly, split."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.data.dataset import Dataset, binary_labels, build_dataset
from pipeline.data.settings import Settings
from pipeline.data.splits import stratified_split
from pipeline.errors import UserError


@dataclass(frozen=True)
class Table:
    """Rows X (n, ...) of numbers and their labels y (n,)."""

    X: np.ndarray
    y: np.ndarray


def from_tables(settings: Settings, train: Table, test: Table | None, files: Sequence[Path]) -> Dataset:
    """A dataset of the user's rows; without test rows, a stratified part ``test_fraction`` of `train` becomes the test.

    Class choice, scaling and split follow the settings ``classes``, ``scale``, ``test_fraction``, ``split_seed``.
    """
    for part, table in (("training", train), ("test", test)):
        if table is not None:
            _check(part, table)
    rows, y, names = binary_labels(train.y, settings.get("classes"))
    if test is None:
        _check_counts(y, names)
        inside, outside = stratified_split(y, settings["test_fraction"], int(settings.get("split_seed") or 0))
        train_ids, y_train, test_ids, y_test = rows[inside], y[inside], rows[outside], y[outside]
        test = train
    else:
        train_ids, y_train = rows, y
        test_ids, y_test, _ = binary_labels(test.y, (names[1], names[0]))
    scale = _Scale.of(settings.get("scale"), train.X[train_ids])
    return build_dataset(
        name=settings["name"],
        X_train=scale(train.X[train_ids]),
        y_train=y_train,
        X_test=scale(test.X[test_ids]),
        y_test=y_test,
        image_shape=train.X.shape[1:],
        class_names=names,
        train_ids=train_ids,
        test_ids=test_ids,
        source=" and ".join(f"file {path}" for path in files),
        notes=scale.notes,
        files=files,
    )


@dataclass(frozen=True)
class _Scale:
    low: Any
    span: Any
    clip: bool
    notes: tuple[str, ...]

    @classmethod
    def of(cls, setting: Any, X: np.ndarray) -> _Scale:
        if setting is None or setting == "none":
            return cls(0.0, 1.0, False, ())
        if setting in ("minmax", "minmax_all"):
            axis = 0 if setting == "minmax" else None
            low, high = X.min(axis=axis).astype(np.float64), X.max(axis=axis).astype(np.float64)
            # A constant column becomes 0.
            span = np.where(high > low, high - low, 1.0)
            return cls(low, span, True, (f"scaled by {setting} of the training rows",))
        try:
            divisor = float(setting)
        except (TypeError, ValueError):
            divisor = 0.0
        if isinstance(setting, bool) or not np.isfinite(divisor) or divisor <= 0:
            raise UserError(
                f"dataset.scale: {setting!r}; use none, a number to divide by such as 255, "
                "minmax (each column) or minmax_all (all values together)"
            )
        return cls(0.0, divisor, False, (f"divided by {divisor:g}",))

    def __call__(self, X: np.ndarray) -> np.ndarray:
        scaled = ((X.astype(np.float64) - self.low) / self.span).reshape(len(X), -1).astype(np.float32)
        # Test rows may lie outside the range of the training rows.
        return np.clip(scaled, 0.0, 1.0, out=scaled) if self.clip else scaled


def _check(part: str, table: Table) -> None:
    if table.X.dtype.kind not in "buif":
        raise UserError(f"dataset.path: the {part} rows are of type {table.X.dtype}; they must be numbers")
    if table.X.ndim < 2 or table.X.size == 0:
        raise UserError(
            f"dataset.path: the {part} rows have shape {table.X.shape}; (rows, values) or (rows, image shape)"
        )
    if table.y.ndim != 1 or len(table.y) != len(table.X):
        raise UserError(
            f"dataset.path: {len(table.X)} {part} rows, but labels of shape {table.y.shape}; give one label per row"
        )
    if table.y.dtype.kind not in "buifUS" or (table.y.dtype.kind == "f" and not np.isfinite(table.y).all()):
        raise UserError(f"dataset.path: the {part} labels must be numbers or texts without gaps")
    if table.X.dtype.kind == "f" and not np.isfinite(table.X).all():
        raise UserError(f"dataset.path: the {part} rows hold NaN or infinite values; remove or fill them")


def _check_counts(y: np.ndarray, names: tuple[str, str]) -> None:
    for value, name in zip((-1, 1), names, strict=True):
        if np.count_nonzero(y == value) < 2:
            raise UserError(f"dataset.path: class {name} has fewer than two rows, too few for training and test")
