"""Which rows a dataset takes: two chosen classes or all, and stratified splits of them; and which an attack gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from pipeline.errors import UserError


def class_labels(
    labels: np.ndarray, classes: Any, names: Mapping[int, str] | None = None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Rows of the chosen classes, their labels and the names, for the setting ``dataset.classes``.

    ``all`` (with more than two in the data), or a longer tuple of names, gives labels 0..k-1 in the order of the
    names; everything else is a choice of two, see `binary_labels`.
    """
    called = {value: (names or {}).get(value, plain_name(value)) for value in np.unique(labels).tolist()}
    if classes == "all":
        classes = tuple(called.values()) if len(called) > 2 else None
    if not (isinstance(classes, tuple) and len(classes) > 2):
        return binary_labels(labels, classes, names)
    unknown = next((name for name in called.values() if name not in classes), None)
    if unknown is not None:
        listed = ", ".join(classes[:12])
        raise UserError(f"dataset.classes: there is no class {unknown} in the training rows; they hold {listed}")
    order = {name: number for number, name in enumerate(classes)}
    y = np.array([order[called[value]] for value in labels.tolist()], dtype=np.int64)
    return np.arange(len(labels)), y, classes


def binary_labels(
    labels: np.ndarray, classes: Sequence[Any] | None, names: Mapping[int, str] | None = None
) -> tuple[np.ndarray, np.ndarray, tuple[str, ...]]:
    """Rows of the two chosen classes in order, their labels -1/+1 and the names (negative, positive).

    The first of ``classes`` is +1; None is allowed when there are exactly two labels, the larger one is then +1.
    ``names`` are those of integer labels; ``classes`` may use either.
    """
    values = np.unique(labels).tolist()
    if len(values) == 1 and classes is None:
        only = plain_name(values[0])
        raise UserError(f"dataset.path: all labels are of one class ({only}); a classifier needs two")
    known = {plain_name(value): value for value in values}
    if names:
        known |= {names[int(value)]: value for value in values if int(value) in names}
    listed = ", ".join(names.values() if names else list(known)[:12])
    if classes is None:
        if len(values) != 2:
            raise UserError(
                f"dataset.classes: the labels hold {len(values)} classes ({listed}); "
                "choose two, the positive one first: dataset.classes=[A,B], or dataset.classes=all"
            )
        classes = [plain_name(value) for value in values[::-1]]
    chosen = chosen_classes(classes)
    for name in chosen:
        if name not in known:
            raise UserError(f"dataset.classes: there is no class {name} in the data; it holds {listed}")
    positive, negative = (known[name] for name in chosen)
    if positive == negative:
        raise UserError(f"dataset.classes: {chosen[0]} and {chosen[1]} are the same class; choose two")
    rows = np.flatnonzero((labels == positive) | (labels == negative))
    y = np.where(labels[rows] == positive, 1, -1).astype(np.int64)
    called = names or {}
    return rows, y, (called.get(negative, chosen[1]), called.get(positive, chosen[0]))


def chosen_classes(classes: Any, everything: Sequence[str] = ()) -> tuple[str, ...]:
    """The class names of the setting ``dataset.classes``: two, the positive one first, or ``all`` of `everything`."""
    if classes == "all" and everything:
        return tuple(everything)
    if isinstance(classes, str) or not isinstance(classes, Sequence) or len(classes) != 2:
        raise UserError(f"dataset.classes: {classes!r} does not choose two; write dataset.classes=[A,B], A is +1")
    first, second = (plain_name(value) for value in classes)
    if first == second:
        raise UserError(f"dataset.classes: {first} is named twice; choose two different classes")
    return first, second


def plain_name(value: Any) -> str:
    """Name of a label or column as a user writes it: 7 for 7.0; what would steer a terminal is escaped."""
    if isinstance(value, bytes):
        value = value.decode(errors="replace")
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return printable(str(value))


def printable(text: str) -> str:
    """The text with everything escaped that is not a visible character of one line."""
    return text if text.isprintable() else "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)


def stratified_split(y: np.ndarray, test_fraction: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Split row numbers into (train, test), each class in the same proportion, both in ascending order."""
    if not isinstance(test_fraction, (int, float)) or not 0.0 < test_fraction < 1.0:
        raise UserError(f"dataset.test_fraction: {test_fraction!r} is not between 0 and 1")
    rng = np.random.default_rng(seed)
    test = []
    for value in np.unique(y):
        rows = rng.permutation(np.flatnonzero(y == value))
        test.append(rows[: n_test_rows(len(rows), test_fraction)])
    chosen = np.sort(np.concatenate(test))
    return np.setdiff1d(np.arange(len(y)), chosen), chosen


def n_test_rows(n_rows: int, test_fraction: float) -> int:
    """Test rows of a class with `n_rows`; both parts keep at least one row of every class that has two."""
    return min(max(1, round(test_fraction * n_rows)), n_rows - 1)


def split_seed(settings: Mapping[str, Any]) -> int:
    """The seed of splits and choices, ``dataset.split_seed``."""
    seed = settings.get("split_seed") or 0
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise UserError(f"dataset.split_seed: {seed!r} is not a whole number from 0 to {2**32 - 1}")
    return seed


def most_rows(settings: Mapping[str, Any], key: str) -> int | None:
    """How many rows ``dataset.max_train`` or ``dataset.max_test`` allows; None for all."""
    size = settings.get(key)
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < 2):
        raise UserError(f"dataset.{key}: {size!r} is not a number of rows; use 2 or more, or null for all")
    return size


def subsample(y: np.ndarray, settings: Mapping[str, Any], key: str) -> np.ndarray:
    """Rows that ``dataset.max_train`` or ``dataset.max_test`` leaves: all, or a seeded stratified choice."""
    size = most_rows(settings, key)
    if size is None or size >= len(y):
        return np.arange(len(y))
    return stratified_subsample(y, size, split_seed(settings))


def stratified_subsample(y: np.ndarray, size: int, seed: int) -> np.ndarray:
    """`size` row numbers in ascending order, the classes in proportion and each with at least one row."""
    values, counts = np.unique(y, return_counts=True)
    rng = np.random.default_rng(seed)
    quota = np.maximum(1, np.floor(counts * (size / len(y))).astype(int))
    # What rounding down left goes to the largest remainders.
    order = np.argsort(quota - counts * (size / len(y)), kind="stable")
    for k in order[: max(0, size - int(quota.sum()))]:
        quota[k] += 1
    rows = [rng.permutation(np.flatnonzero(y == value))[:n] for value, n in zip(values, quota, strict=True)]
    return np.sort(np.concatenate(rows))


# Of more test rows than the first, the second are enough: an accuracy is then known to 0.7 points (standard error), and
# an attack of 100 steps on all test rows of covtype (145,253) would take hours.
MANY, PART = 10_000, 5_000


def choose_rows(y: np.ndarray, limit: int | None) -> np.ndarray:
    """At most ``limit`` rows, the same for every model and seed, with the classes in their proportion.

    None takes all of up to `MANY` rows, and `PART` of more.
    """
    if limit is None:
        limit = len(y) if len(y) <= MANY else PART
    if limit >= len(y):
        return np.arange(len(y))
    from sklearn.model_selection import train_test_split

    labels, classes, counts = np.unique(y, return_inverse=True, return_counts=True)
    if min(limit, len(y) - limit) < len(labels) or counts.min() < 2:
        # Too few for scikit-learn, which wants every class on both sides: the first rows of every class, in proportion.
        rank = np.array([np.count_nonzero(classes[:row] == own) for row, own in enumerate(classes)])
        return np.sort(np.argsort((rank + 0.5) / counts[classes], kind="stable")[:limit])
    rows, _ = train_test_split(np.arange(len(y)), train_size=limit, stratify=y, random_state=0)
    return np.sort(rows)
