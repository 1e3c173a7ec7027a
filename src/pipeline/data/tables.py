"""A user's rows become a dataset: classes chosen, split, scaled on the training rows, inside a box of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from models.scaler import Scaler
from pipeline.data.dataset import Dataset, is_sparse
from pipeline.data.rows import class_labels, plain_name, split_seed, stratified_split, subsample
from pipeline.data.settings import Settings, known_names
from pipeline.errors import UserError

_COLOURS = 3


@dataclass(frozen=True)
class UserRows:
    """Rows X (n, ...) of numbers, dense or sparse (CSR), their labels y (n,) and the names of the columns, if any."""

    X: Any
    y: np.ndarray
    names: tuple[str, ...] = ()


def _why_dense(settings: Settings, X_train: Any) -> str:
    """Why sparse training rows have to become dense; nothing where they stay as they are."""
    wanted, scale = settings.get("sparse"), settings.get("scale")
    if wanted is not None and not isinstance(wanted, bool):
        raise UserError(f"dataset.sparse: {wanted!r}; use true, false, or null for what takes less memory")
    if wanted is False:
        return "dataset.sparse=false"
    if scale == "standard" or (scale in ("minmax", "minmax_all") and column_ranges(X_train)[0].any()):
        if wanted:
            raise UserError(
                f"dataset.scale: {scale} moves the zeros of sparse rows; use a number, or dataset.sparse=false"
            )
        return f"dataset.scale={scale} moves their zeros"
    # A value that is not 0 takes eight bytes, its column and itself, a dense one four.
    size = X_train.nnz * 8 + X_train.shape[0] * 4
    return "" if wanted or size < 4 * X_train.shape[0] * X_train.shape[1] else "they take less memory so"


# A column that varies by less is constant: numbers this small have too few digits left to divide by.
_SPECK = float(np.finfo(np.float64).tiny)


def fit_scaler(setting: Any, X: Any) -> tuple[Scaler | None, str]:
    """The scaler of ``dataset.scale`` for the (n, d) training rows, and a note; none for ``none``."""
    n_features = X.shape[1]
    if setting is None or setting == "none":
        return None, ""
    if setting == "standard":
        dense = np.asarray(X, dtype=np.float64)
        # The spread of a constant column may be a rounding error instead of 0.
        spread = np.where(dense.min(axis=0) < dense.max(axis=0), dense.std(axis=0), 0.0)
        spread = np.where(spread >= _SPECK, spread, 1.0)
        return Scaler(dense.mean(axis=0), spread), "standardised by the training rows"
    if setting in ("minmax", "minmax_all"):
        low, high = column_ranges(X)
        if setting == "minmax_all":
            low, high = np.full(n_features, low.min()), np.full(n_features, high.max())
        # A constant column becomes 0.
        scaler = Scaler(low, np.where(high - low >= _SPECK, high - low, 1.0), clip=True)
        return scaler, f"scaled by {setting} of the training rows"
    try:
        divisor = float(setting)
    except (TypeError, ValueError):
        divisor = 0.0
    if isinstance(setting, bool) or not np.isfinite(divisor) or divisor <= 0:
        raise UserError(
            f"dataset.scale: {setting!r}; use none, a number to divide by such as 255, minmax or standard "
            "(each column), or minmax_all (all values together)"
        )
    return Scaler(np.zeros(n_features), np.full(n_features, divisor)), f"divided by {divisor:g}"


def column_ranges(X: Any) -> tuple[np.ndarray, np.ndarray]:
    """Smallest and largest value of every column, (d,) float64 each; the zeros of sparse rows count."""
    if is_sparse(X):
        low, high = (side.toarray().ravel() for side in (X.min(axis=0), X.max(axis=0)))
        return low.astype(np.float64), high.astype(np.float64)
    return X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)


def from_tables(settings: Settings, train: UserRows, test: UserRows | None, files: Sequence[Path]) -> Dataset:
    """A dataset of the user's rows; without test rows, a stratified part ``test_fraction`` of `train` becomes the test.

    Class choice, split, scaling and box follow the settings ``classes``, ``test_fraction``, ``split_seed``,
    ``max_train``, ``max_test``, ``scale``, ``box``; what an attacker may change, ``mutable`` and ``monotone``.
    """
    for part, table in (("training", train), ("test", test)):
        if table is not None:
            _check(part, table)
    rows, y, names = class_labels(train.y, settings.get("classes"))
    if test is None:
        _check_counts(y, names)
        inside, outside = stratified_split(y, settings["test_fraction"], split_seed(settings))
        train_ids, y_train, test_ids, y_test = rows[inside], y[inside], rows[outside], y[outside]
        test = train
    else:
        train_ids, y_train = rows, y
        test_ids, y_test, _ = class_labels(test.y, names if len(names) > 2 else names[::-1])
    notes = []
    kept_train, kept_test = subsample(y_train, settings, "max_train"), subsample(y_test, settings, "max_test")
    if len(kept_train) + len(kept_test) < len(y_train) + len(y_test):
        notes.append("subsample")
    train_ids, y_train, test_ids, y_test = (
        train_ids[kept_train], y_train[kept_train], test_ids[kept_test], y_test[kept_test]
    )  # fmt: skip
    shape = _image_shape(train.X.shape[1:], settings.get("image_shape"))
    X_train, X_test = train.X[train_ids], test.X[test_ids]
    if is_sparse(X_train):
        reason = _why_dense(settings, X_train)
        if reason:
            check_memory(settings, X_train.shape[0] + X_test.shape[0], X_train.shape[1])
            X_train, X_test = X_train.toarray(), X_test.toarray()
            notes.append(f"sparse rows made dense: {reason}")
    else:
        X_train, X_test = X_train.reshape(len(X_train), -1), X_test.reshape(len(X_test), -1)
    scaler, note = fit_scaler(settings.get("scale"), X_train)
    if settings.get("box") is not None and scaler is not None:
        scaler = Scaler(scaler.shift, scaler.scale)  # a box of its own: nothing has to be clipped
    if scaler is not None:
        notes.append(f"{note}; test values beyond their range are clipped" if scaler.clip else note)
        notes.append("radii are in these scaled units, unless they say raw")
    if X_train.shape[1] == X_test.shape[1] and scaler is not None:
        X_train, X_test = scaler.transform(X_train), scaler.transform(X_test)
    feature_names = tuple(plain_name(name) for name in train.names)
    box = _box(settings, scaler, X_train, X_test, feature_names)
    if np.ndim(box[0]) == 0 and box != (0.0, 1.0):
        notes.append(f"an attacker's values lie in [{box[0]:.4g}, {box[1]:.4g}]{', in scaled units' if scaler else ''}")
    elif np.ndim(box[0]) > 0:
        notes.append("an attacker's values lie in a range of each feature (dataset.box)")
    mutable = _directions(settings, "mutable", feature_names, X_train.shape[1])
    return Dataset(
        name=settings["name"],
        X_train=X_train,
        y_train=y_train,
        X_test=X_test,
        y_test=y_test,
        image_shape=shape,
        class_names=names,
        labels=_labels(train.y, names),
        train_ids=train_ids,
        test_ids=test_ids,
        source=" and ".join(f"file {path}" for path in files),
        notes=tuple(notes),
        files=tuple(files),
        box=box,
        feature_names=feature_names,
        scaler=scaler,
        mutable=None if mutable is None else mutable != 0,
        monotone=_directions(settings, "monotone", feature_names, X_train.shape[1]),
    )


def _labels(y: np.ndarray, names: Sequence[str]) -> tuple[Any, ...]:
    """The labels as in the file, in the order of the classes' names: 7 and "7" are not the same to who asks for one."""
    known = {plain_name(value): value for value in np.unique(y).tolist()}
    found = [known[name] if not isinstance(known[name], bytes) else name for name in names]
    return tuple(int(value) if isinstance(value, float) else value for value in found)


def _box(settings: Settings, scaler: Scaler | None, X_train: Any, X_test: Any, names: Sequence[str]) -> tuple[Any, Any]:
    """Lowest and highest value an attacker may give each feature, in scaled units: floats, or one for each feature.

    ``dataset.box`` is null, ``common`` (one range that holds all rows), ``data`` (the range of each feature), or in
    the file's own units [low, high] or {name: [low, high]}, with the range of the rows for the other features.
    """
    setting = settings.get("box")
    if (setting is None and settings.get("scale") != "standard") or X_train.shape[1] != X_test.shape[1]:
        return 0.0, 1.0
    ranges = [column_ranges(X) for X in (X_train, X_test)]
    low, high = np.minimum(ranges[0][0], ranges[1][0]), np.maximum(ranges[0][1], ranges[1][1])
    if setting is None or setting == "common":
        return float(np.float32(low.min())), float(np.float32(high.max()))
    given = setting.items() if isinstance(setting, Mapping) else [] if setting == "data" else [(None, setting)]
    for name, limits in given:
        try:
            bounds = np.array(limits, dtype=np.float64)
        except (TypeError, ValueError):
            bounds = np.empty(0)
        if bounds.shape != (2,) or not np.isfinite(bounds).all() or bounds[0] >= bounds[1]:
            raise UserError(
                f"dataset.box: {limits!r} is not [low, high]; write common, data, [low,high] or {{name:[low,high]}}, "
                "the last two in the units of the file"
            )
        chosen = slice(None) if name is None else [feature_number(str(name), names, X_train.shape[1], "box")]
        scaled = bounds[:, None] if scaler is None else (bounds[:, None] - scaler.shift) / scaler.scale
        low[chosen], high[chosen] = np.broadcast_to(scaled, (2, len(low)))[:, chosen]
    low, high = low.astype(np.float32), high.astype(np.float32)
    if np.ptp(low) == 0 and np.ptp(high) == 0:
        return float(low[0]), float(high[0])
    return low, high


def feature_number(name: str, names: Sequence[str], n_features: int, key: str) -> int:
    """Column of a feature given by its name, or by its number from 0 where there are no names."""
    if name in names:
        return list(names).index(name)
    if not names and name.isdigit() and int(name) < n_features:
        return int(name)
    known = known_names(name, list(names)[:20]) if names else f"; use a number from 0 to {n_features - 1}"
    raise UserError(f"dataset.{key}: there is no feature {name!r}{known}")


def _directions(settings: Settings, key: str, names: Sequence[str], n_features: int) -> np.ndarray | None:
    """The features that ``dataset.mutable`` or ``dataset.monotone`` lists, (d,) int8: 1, -1 for ``-name``, else 0."""
    listed = settings.get(key)
    if listed is None:
        return None
    if isinstance(listed, (str, Mapping)) or not isinstance(listed, Sequence) or not listed:
        raise UserError(f"dataset.{key}: {listed!r} is not a list of features; write dataset.{key}=[name,name]")
    directions = np.zeros(n_features, dtype=np.int8)
    for name in map(plain_name, listed):
        plain = name if name in names or key == "mutable" else name.lstrip("+-")
        number, way = feature_number(plain, names, n_features, key), -1 if name.startswith("-") and plain != name else 1
        if directions[number] == -way:
            raise UserError(f"dataset.{key}: {plain} cannot only grow and only shrink; dataset.mutable leaves it out")
        directions[number] = way
    return directions


def _image_shape(shape: tuple[int, ...], setting: Any) -> tuple[int, ...]:
    """Shape of a row: an image (h, w), (3, h, w) or (h, w, 3), else (d,); axes of length one say nothing."""
    n_features = int(np.prod(shape))
    if setting is not None:
        try:
            given = tuple(int(n) for n in setting)
        except (TypeError, ValueError):
            given = ()
        if not 1 <= len(given) <= 3 or int(np.prod(given)) != n_features or min(given) < 1:
            raise UserError(f"dataset.image_shape: {setting!r} does not hold the {n_features} values of a row")
        shape = given
    plain = tuple(int(n) for n in shape if n != 1)
    is_image = len(plain) == 2 or (len(plain) == 3 and _COLOURS in (plain[0], plain[2]))
    return plain if is_image else (n_features,)


def max_bytes(settings: Settings) -> float:
    """How much memory the rows may take: ``dataset.max_gb``."""
    limit = settings.get("max_gb", 4)
    if isinstance(limit, bool) or not isinstance(limit, (int, float)) or not limit > 0:
        raise UserError(f"dataset.max_gb: {limit!r} is not a number of gigabytes above 0")
    return limit * 1e9


def check_memory(settings: Settings, n_rows: int, n_features: int) -> None:
    """Refuse dense rows that would take more than ``dataset.max_gb``."""
    needed = 4.0 * n_rows * n_features
    if needed > max_bytes(settings):
        raise UserError(
            f"dataset.max_gb: {n_rows:,} dense rows of {n_features:,} values take {needed / 1e9:.1f} GB, more than "
            f"{settings.get('max_gb', 4):g}; raise it, or take fewer rows with dataset.max_train and dataset.max_test"
        )


def _check(part: str, table: UserRows) -> None:
    X, y = table.X, table.y
    if X.dtype.kind not in "buif":
        raise UserError(f"dataset.path: the {part} rows are of type {X.dtype}; they must be numbers")
    if X.ndim < 2 or 0 in X.shape:
        raise UserError(f"dataset.path: the {part} rows have shape {X.shape}; (rows, values) or (rows, image shape)")
    if y.ndim != 1 or len(y) != X.shape[0]:
        raise UserError(
            f"dataset.path: {X.shape[0]} {part} rows, but labels of shape {y.shape}; give one label per row"
        )
    if y.dtype.kind not in "buifUS" or (y.dtype.kind == "f" and not np.isfinite(y).all()):
        raise UserError(f"dataset.path: the {part} labels must be numbers or texts without gaps")
    if y.dtype.kind == "f" and (y != np.rint(y)).any():
        some = ", ".join(f"{value:g}" for value in y[y != np.rint(y)][:3])
        raise UserError(
            f"dataset.path: the {part} labels hold decimals ({some}): a quantity, not classes; "
            "choose the labels' column or turn them into classes"
        )
    values = X.data if is_sparse(X) else X
    if X.dtype.kind == "f" and not np.isfinite(values).all():
        row = int(np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))[0])
        wrong = ~np.isfinite(np.ravel(values[row]))
        place = (
            f", first column {plain_name(table.names[int(wrong.argmax())])!r} of row {row + 1}" if table.names else ""
        )
        raise UserError(f"dataset.path: the {part} rows hold NaN or infinite values{place}; remove or fill them")


def _check_counts(y: np.ndarray, names: Sequence[str]) -> None:
    for value, name in zip(np.unique(y), names, strict=True):
        if np.count_nonzero(y == value) < 2:
            raise UserError(f"dataset.path: class {name} has fewer than two rows, too few for training and test")
