"""Rows read by the window: sparse training rows, dense only there, and a number per row for equal content."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from pipeline.data.dataset import Dataset
from pipeline.data.settings import Settings
from pipeline.data.tables import check_memory

_WINDOW = 128


class SparseRows:
    """A CSR matrix whose chosen rows are dense arrays, as those of a memory map are: checks and digests read windows.

    Models that take sparse rows are trained on ``csr`` itself.
    """

    def __init__(self, csr: Any):
        self.csr = sparse.csr_matrix(csr)

    @property
    def shape(self) -> tuple[int, int]:
        return self.csr.shape

    @property
    def dtype(self) -> Any:
        return self.csr.dtype

    def __len__(self) -> int:
        return int(self.csr.shape[0])

    def __getitem__(self, rows: Any) -> np.ndarray:
        return self.csr[rows].toarray()


def training_rows(data: Dataset) -> Any:
    """The training rows as a model's ``fit`` takes them: an array or a CSR matrix."""
    rows: Any = data.X_train
    return rows.csr if isinstance(rows, SparseRows) else rows


def for_stages(data: Dataset, settings: Settings, model: str, takes_sparse: bool) -> Dataset:
    """The dataset as the stages use it; where sparse rows must become dense, a note says so and max_gb bounds it.

    Test rows are dense: attackers may change any of their values. Training rows stay sparse for a model that takes
    them; `model` is its name.
    """
    if not sparse.issparse(data.X_test):
        return data
    train: Any = data.X_train
    test: Any = data.X_test
    (n_train, d), n_test = train.shape, test.shape[0]
    check_memory(settings, n_test + (0 if takes_sparse else n_train), d)
    share = train.nnz / max(1, n_train * d)
    kept = f"training rows stay sparse ({share:.2g} of the values are not 0)"
    notes = [kept if takes_sparse else f"training rows made dense: model={model} takes no sparse ones"]
    notes.append("test rows made dense: an attacker may change any of their values")
    rows: Any = SparseRows(train) if takes_sparse else train.toarray()
    return replace(data, X_train=rows, X_test=test.toarray(), notes=(*data.notes, *notes))


def row_digests(X: Any) -> np.ndarray:
    """Digest of the content of every row, (n,) uint64.

    A random multilinear hash of the float32 bits modulo 2^64: two different rows agree with chance about 2^-40. It
    reads a memory map in windows and is fast enough to be computed in every run.
    """
    pairs = (X.shape[1] + 1) // 2
    weights = np.random.default_rng(0).integers(0, 2**64, size=pairs, dtype=np.uint64) | np.uint64(1)
    digests = np.empty(len(X), dtype=np.uint64)
    # Two buffers for all windows, which stay in the processor's cache.
    buffer = np.zeros((_WINDOW, 2 * pairs), dtype=np.float32)
    folded = np.empty((_WINDOW, pairs), dtype=np.uint64)
    for start in range(0, len(X), _WINDOW):
        part = X[start : start + _WINDOW]
        rows, fold = buffer[: len(part)], folded[: len(part)]
        # Adding 0 turns the negative zero into the positive one: equal numbers, equal bits.
        np.add(part, np.float32(0), out=rows[:, : X.shape[1]], casting="same_kind")
        bits = rows.view(np.uint64)
        # Floats such as 0.5 and 1 have no low bits; without this fold they would reach the top bits of the sum only.
        np.right_shift(bits, np.uint64(32), out=fold)
        np.bitwise_xor(bits, fold, out=fold)
        np.matmul(fold, weights, out=digests[start : start + len(part)])
    return digests
