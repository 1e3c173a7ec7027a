"""Sparse training rows for the stages: read like an array, dense only by the window."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from scipy import sparse

from pipeline.data.dataset import Dataset
from pipeline.data.settings import Settings
from pipeline.data.tables import check_memory


class SparseRows:
    """A CSR matrix whose chosen rows are dense arrays, as those of a memory map are: checks and digests read windows.

    Attributes
    ----------
    csr : (n, d) CSR matrix
        What models that take sparse rows are trained on.
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
