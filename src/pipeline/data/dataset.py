"""A binary dataset as the pipeline sees it, and the checks every loader's result passes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pipeline.errors import UserError

# Part of every fingerprint: raise it when the meaning of the hashed parts changes.
_FORMAT = "advsvm-dataset-1"


@dataclass(frozen=True, eq=False)
class Dataset:
    """Two classes of images (or of any rows scaled into [0, 1]) with a fixed split.

    Attributes
    ----------
    X_train, X_test : (n, d) float32 arrays
        Pixels in [0, 1]. ``X_train`` may be a memory map: read it in windows of rows.
    y_train, y_test : (n,) int64 arrays
        +1 for the first-named class, -1 for the other.
    image_shape : tuple of int
        Shape of one row as an image: ``(28, 28)``, ``(3, 32, 32)``; ``(d,)`` when the rows are no images.
    class_names : (str, str)
        Names of the classes -1 and +1, in this order.
    fingerprint : str
        sha256 over pixels, labels, split ids and shapes: equal content, equal fingerprint, on any machine.
    source : str
        Where the content came from.
    notes : tuple of str
        What a reader of the results must know, such as ``stand-in deformations``.
    train_ids, test_ids : (n,) int64 arrays
        Row numbers in the original files.
    files : tuple of Path
        The files it was read from.
    X_train_sha256 : str
        Hash of the training pixels' bytes.
    """

    name: str
    X_train: np.ndarray
    y_train: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray
    image_shape: tuple[int, ...]
    class_names: tuple[str, str]
    fingerprint: str
    source: str
    notes: tuple[str, ...]
    train_ids: np.ndarray
    test_ids: np.ndarray
    files: tuple[Path, ...] = ()
    X_train_sha256: str = ""

    @property
    def n_features(self) -> int:
        """Number of pixels d of a row."""
        return int(self.X_test.shape[1])


def build_dataset(
    *,
    name: str,
    X_train: np.ndarray,
    y_train: np.ndarray,
    X_test: np.ndarray,
    y_test: np.ndarray,
    image_shape: Sequence[int],
    class_names: tuple[str, str],
    train_ids: np.ndarray,
    test_ids: np.ndarray,
    source: str,
    notes: Sequence[str] = (),
    files: Sequence[Path] = (),
    X_train_sha256: str | None = None,
) -> Dataset:
    """Check the parts and put them together with their fingerprint.

    Parameters
    ----------
    X_train_sha256 : str, optional
        Hash of the training pixels' bytes when the loader verified it already; the (large) array is then not read.

    Raises
    ------
    UserError
        When rows, labels or pixels cannot be used: wrong shapes, NaN, values outside [0, 1], a missing class.
    """
    y_train, y_test = (np.asarray(y, dtype=np.int64) for y in (y_train, y_test))
    train_ids, test_ids = (np.asarray(ids, dtype=np.int64) for ids in (train_ids, test_ids))
    X_test = np.ascontiguousarray(X_test, dtype=np.float32)
    if X_train_sha256 is None:
        X_train = np.ascontiguousarray(X_train, dtype=np.float32)
        check_pixels(X_train, "training")
        X_train_sha256 = _sha256(X_train)
    check_pixels(X_test, "test")
    if X_train.shape[1] != X_test.shape[1] or X_test.shape[1] != int(np.prod(image_shape)):
        raise UserError(
            f"dataset.path: training rows have {X_train.shape[1]} values, test rows {X_test.shape[1]}, "
            f"the image shape is {tuple(image_shape)}; all three must agree"
        )
    for part, X, y, ids in (("training", X_train, y_train, train_ids), ("test", X_test, y_test, test_ids)):
        if not len(X) == len(y) == len(ids):
            raise UserError(f"dataset.path: {len(X)} {part} rows, but {len(y)} labels; give one label per row")
        if set(np.unique(y)) != {-1, 1}:
            raise UserError(
                f"dataset.classes: the {part} rows do not hold both classes {class_names[1]} and {class_names[0]}; "
                "choose two classes that are in the data (and enough rows for both parts)"
            )
    parts = {
        "format": _FORMAT,
        "image_shape": [int(n) for n in image_shape],
        "X_train": X_train_sha256,
        "X_test": _sha256(X_test),
        "y_train": _sha256(y_train),
        "y_test": _sha256(y_test),
        "train_ids": _sha256(train_ids),
        "test_ids": _sha256(test_ids),
    }
    return Dataset(
        name=name,
        X_train=X_train,
        y_train=y_train,
        X_test=X_test,
        y_test=y_test,
        image_shape=tuple(int(n) for n in image_shape),
        class_names=class_names,
        fingerprint=hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest(),
        source=source,
        notes=tuple(notes),
        train_ids=train_ids,
        test_ids=test_ids,
        files=tuple(files),
        X_train_sha256=X_train_sha256,
    )


def check_pixels(X: np.ndarray, part: str) -> None:
    """Refuse rows that are no (n, d) array of finite numbers in [0, 1]."""
    if X.ndim != 2 or X.shape[0] == 0 or X.shape[1] == 0:
        raise UserError(f"dataset.path: the {part} rows have shape {X.shape}; (rows, values) with at least one each")
    low, high = float(X.min()), float(X.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise UserError(f"dataset.path: the {part} rows hold NaN or infinite values; remove or fill them")
    if low < 0.0 or high > 1.0:
        raise UserError(
            f"dataset.scale: the {part} values run from {low:g} to {high:g}, outside [0, 1]; "
            "set dataset.scale=255 to divide by 255, or dataset.scale=minmax"
        )


def _sha256(array: np.ndarray) -> str:
    # Little-endian bytes, so that the fingerprint is the same on any machine.
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return hashlib.sha256(little.reshape(-1).view(np.uint8).data).hexdigest()


def binary_labels(
    labels: np.ndarray, classes: Sequence[Any] | None, names: Mapping[int, str] | None = None
) -> tuple[np.ndarray, np.ndarray, tuple[str, str]]:
    """Rows of the two chosen classes, their labels -1/+1 and the names (negative, positive).

    Parameters
    ----------
    labels : (n,) array
        Integers, floats or strings.
    classes : two names or values, the first is +1
        None is allowed when there are exactly two labels; the larger one is then +1.
    names : mapping, optional
        Names of integer labels; ``classes`` may use either.

    Returns
    -------
    rows : (m,) int64 array of row numbers, in order
    y : (m,) int64 array in {-1, +1}
    class_names : (str, str)
    """
    values = np.unique(labels)
    known = {plain_name(value): value for value in values.tolist()}
    if names:
        known |= {names[int(value)]: value for value in values.tolist() if int(value) in names}
    listed = ", ".join(list(known)[:12]) if not names else ", ".join(names.values())
    if classes is None:
        if len(values) != 2:
            raise UserError(
                f"dataset.classes: the labels hold {len(values)} classes ({listed}); "
                "choose two, the positive one first: dataset.classes=[A,B]"
            )
        classes = [plain_name(values[1].item()), plain_name(values[0].item())]
    chosen = chosen_classes(classes)
    for name in chosen:
        if name not in known:
            raise UserError(f"dataset.classes: there is no class {name} in the data; it holds {listed}")
    positive, negative = (known[name] for name in chosen)
    if positive == negative:
        raise UserError(f"dataset.classes: {chosen[0]} and {chosen[1]} are the same class; choose two")
    rows = np.flatnonzero((labels == positive) | (labels == negative))
    y = np.where(labels[rows] == positive, 1, -1).astype(np.int64)
    return rows, y, (chosen[1], chosen[0])


def chosen_classes(classes: Any) -> tuple[str, str]:
    """The two class names of the setting ``dataset.classes``, the positive one first."""
    if isinstance(classes, str) or not isinstance(classes, Sequence) or len(classes) != 2:
        raise UserError(f"dataset.classes: {classes!r} is no choice of two; write dataset.classes=[A,B], A is +1")
    first, second = (plain_name(value) for value in classes)
    if first == second:
        raise UserError(f"dataset.classes: {first} is named twice; choose two different classes")
    return first, second


def plain_name(value: Any) -> str:
    """Name of a label as a user writes it: 7 for 7.0."""
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
