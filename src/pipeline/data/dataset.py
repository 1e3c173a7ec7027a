"""A dataset as the pipeline sees it, and the checks every loader's result passes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from pipeline.errors import UserError

# Part of every fingerprint: raise it when the meaning of the hashed parts changes.
_FORMAT = "advsvm-dataset-2"


def is_sparse(rows: Any) -> bool:
    """Whether rows are one of scipy's sparse matrices, asked without its import: a command that computes nothing."""
    return hasattr(rows, "tocsr")


@dataclass(frozen=True, eq=False, kw_only=True)
class Dataset:
    """Two or more classes of images, or of any rows, with a fixed split.

    Rows or labels that cannot be used (wrong shapes, NaN, values outside the box, a missing class) are a `UserError`.

    Attributes
    ----------
    X_train, X_test : (n, d) float32 arrays
        Rows in scaled units, inside ``box``. ``X_train`` may be a memory map: read it in windows of rows. Those of a
        LIBSVM file may be CSR matrices, of which `pipeline.data.windows` makes what the stages read.
    y_train, y_test : (n,) int64 arrays
        Two classes: +1 for the first-named class, -1 for the other. More: 0..k-1, numbers of ``class_names``.
    image_shape : tuple of int
        Shape of one row as an image: ``(28, 28)``, ``(3, 32, 32)``; ``(d,)`` when the rows are no images.
    class_names : tuple of str
        Names of the classes in the order of their labels: of -1 and +1, or of 0..k-1.
    labels : tuple
        The classes as the source has them, in the same order; by default their names, as numbers where all of them are
        whole numbers.
    fingerprint : str
        sha256 over rows, labels, names, split ids, box and constraints: equal content, equal fingerprint, anywhere.
        Computed here.
    source : str
        Where the content came from.
    notes : tuple of str
        What a reader of the results must know, such as ``stand-in deformations``.
    train_ids, test_ids : (n,) int64 arrays
        Row numbers in the original files.
    files : tuple of Path
        The files it was read from.
    X_train_sha256 : str
        Hash of the training pixels' bytes; given by a loader that verified it, the (large) array is not read.
    box : (low, high)
        What values an attacker may give: two floats, or two (d,) float32 arrays, in scaled units.
    feature_names : tuple of str
        Names of the d features; empty for images and arrays without names.
    scaler : object or None
        From raw rows to these: ``transform``, ``inverse_transform``, ``raw_radius``, ``to_dict`` (see `models.scaler`);
        None when the rows are as in the source.
    mutable : (d,) bool array or None
        Features an attacker may change; None means all.
    monotone : (d,) int8 array or None
        +1: an attacker may only increase the feature, -1: only decrease it, 0: both.
    """

    name: str
    X_train: Any
    y_train: np.ndarray
    X_test: Any
    y_test: np.ndarray
    image_shape: tuple[int, ...]
    class_names: tuple[str, ...]
    source: str
    train_ids: np.ndarray
    test_ids: np.ndarray
    notes: tuple[str, ...] = ()
    files: tuple[Path, ...] = ()
    X_train_sha256: str = ""
    box: tuple[Any, Any] = (0.0, 1.0)
    feature_names: tuple[str, ...] = ()
    scaler: Any = None
    mutable: np.ndarray | None = None
    monotone: np.ndarray | None = None
    labels: tuple[Any, ...] = ()
    fingerprint: str = ""

    def __post_init__(self) -> None:
        if self.fingerprint:  # checked before; its rows may be handed on in another form, see `for_stages`
            return
        put = partial(object.__setattr__, self)
        for name in ("y_train", "y_test", "train_ids", "test_ids"):
            put(name, np.asarray(getattr(self, name), dtype=np.int64))
        for name in ("class_names", "notes", "files", "feature_names"):
            put(name, tuple(getattr(self, name)))
        put("image_shape", tuple(int(n) for n in self.image_shape))
        put("labels", tuple(self.labels) or _labels_of(self.class_names))
        put("X_test", _float32(self.X_test))
        verified = bool(self.X_train_sha256)
        if not verified:
            put("X_train", _float32(self.X_train))
        _check_shapes(self)
        if not verified:
            _check_values(self.X_train, "training", self.box, self.feature_names)
            put("X_train_sha256", _sha256(self.X_train))
        _check_values(self.X_test, "test", self.box, self.feature_names)
        _check_labels(self)
        put("fingerprint", _fingerprint(self))

    @property
    def n_features(self) -> int:
        """Number of values d of a row."""
        return int(self.X_test.shape[1])

    @property
    def n_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)


build_dataset = Dataset  # what loaders of users call it


class Status(NamedTuple):
    """What the list of datasets shows of one: sizes (train, test) where known, its origin, whether and where it is."""

    sizes: tuple[int, int] | None
    origin: str
    present: bool
    where: str


def _check_shapes(data: Dataset) -> None:
    for part, X in (("training", data.X_train), ("test", data.X_test)):
        if X.ndim != 2 or 0 in X.shape:
            raise UserError(f"dataset.path: the {part} rows have shape {X.shape}; (rows, values), at least one each")
    if data.X_train.shape[1] != data.n_features or data.n_features != int(np.prod(data.image_shape)):
        raise UserError(
            f"dataset.path: training rows have {data.X_train.shape[1]} values, test rows {data.n_features}, "
            f"the image shape is {data.image_shape}; all three must agree"
        )


def _check_labels(data: Dataset) -> None:
    names = data.class_names
    numbers = (-1, 1) if len(names) == 2 else range(len(names))
    train, test = (data.X_train, data.y_train, data.train_ids), (data.X_test, data.y_test, data.test_ids)
    for part, (X, y, ids) in {"training": train, "test": test}.items():
        if not X.shape[0] == len(y) == len(ids):
            raise UserError(f"dataset.path: {X.shape[0]} {part} rows, but {len(y)} labels; give one label per row")
        for label, its_name in zip(numbers, names, strict=True):
            if not (y == label).any() or not np.isin(y, numbers).all():
                raise UserError(
                    f"dataset.classes: the {part} rows lack class {its_name} of {', '.join(names[::-1][:12])}; "
                    "choose classes that are in the data (and enough rows for both parts)"
                )
            if part == "training" and np.count_nonzero(y == label) < 2:
                raise UserError(
                    f"dataset.max_train: class {its_name} has one training row; every class needs two or more"
                )


def _fingerprint(data: Dataset) -> str:
    parts: dict[str, Any] = {
        "format": _FORMAT,
        "image_shape": list(data.image_shape),
        "class_names": list(data.class_names),
        "X_train": data.X_train_sha256,
        "box": [np.asarray(side, dtype=np.float64).tolist() for side in data.box],
        "feature_names": list(data.feature_names),
        "scaler": None if data.scaler is None else data.scaler.to_dict(),
        "constraints": [None if limit is None else limit.tolist() for limit in (data.mutable, data.monotone)],
    }
    parts |= {name: _sha256(getattr(data, name)) for name in ("X_test", "y_train", "y_test", "train_ids", "test_ids")}
    plain = _labels_of(data.class_names)
    if data.labels != plain or {*map(type, data.labels)} != {*map(type, plain)}:
        parts["labels"] = [[type(label).__name__, label] for label in data.labels]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _labels_of(names: Sequence[str]) -> tuple[Any, ...]:
    whole = all(name.lstrip("-").isdecimal() and str(int(name)) == name for name in names)
    return tuple(int(name) if whole else name for name in names)


def _float32(X: Any) -> Any:
    if is_sparse(X):
        from scipy.sparse import csr_matrix

        rows = csr_matrix(X, dtype=np.float32)
        rows.sum_duplicates()
        rows.eliminate_zeros()
        return rows
    return np.ascontiguousarray(X, dtype=np.float32)


def _check_values(X: Any, part: str, box: tuple[Any, Any], names: Sequence[str]) -> None:
    """Refuse rows that are not finite or leave their box."""
    low, high = float(X.min()), float(X.max())
    if not (np.isfinite(low) and np.isfinite(high)):
        raise UserError(f"dataset.path: the {part} rows hold NaN or infinite values; remove or fill them")
    if np.ndim(box[0]) == 0 and np.ndim(box[1]) == 0:
        if low < box[0] or high > box[1]:
            pixels = not names and low >= 0 and high <= 255
            ways = (
                "dataset.scale=255 to divide by 255, minmax or standard"
                if pixels
                else "dataset.scale=standard or minmax, each column by itself"
            )
            raise UserError(
                f"dataset.scale: the {part} values run from {low:g} to {high:g}, outside [{box[0]:g}, {box[1]:g}]; "
                f"set {ways}, or dataset.box=data to keep the units of the file"
            )
        return
    lows, highs = (side.toarray().ravel() if is_sparse(side) else side for side in (X.min(axis=0), X.max(axis=0)))
    outside = np.flatnonzero((lows < box[0]) | (highs > box[1]))
    if len(outside):
        k = outside[0]
        name = names[k] if len(names) else f"number {k}"
        raise UserError(
            f"dataset.box: feature {name} of the {part} rows runs from {lows[k]:g} to {highs[k]:g} (scaled), "
            f"outside [{np.broadcast_to(box[0], lows.shape)[k]:g}, {np.broadcast_to(box[1], lows.shape)[k]:g}]"
        )


def _sha256(array: Any) -> str:
    if is_sparse(array):
        shape = np.array(array.shape, dtype=np.int64)
        pieces = (shape, array.indptr.astype(np.int64), array.indices.astype(np.int64), array.data)
        return hashlib.sha256("".join(map(_sha256, pieces)).encode()).hexdigest()
    # Little-endian bytes, so that the fingerprint is the same on any machine.
    little = np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<"))
    return hashlib.sha256(little.reshape(-1).view(np.uint8).data).hexdigest()
