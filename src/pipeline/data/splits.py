"""Seeded stratified choices of rows."""

from __future__ import annotations

import numpy as np

from pipeline.errors import UserError


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
