"""Stand-ins for three files that SVM users know: their shape, sparsity and share of positives, not their content."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from scipy import sparse
from sklearn.datasets import dump_svmlight_file

# Rows and features of the published files, and the share of their first class.
SHAPES = {"a9a": (32_561, 123), "ijcnn1": (49_990, 22), "covtype": (581_012, 54)}


def _one_hot(rng: np.random.Generator, n: int, sizes: tuple[int, ...]) -> sparse.csr_matrix:
    """One feature of each group is 1: what a table of categories becomes."""
    groups = [sparse.csr_matrix((np.ones(n), (np.arange(n), rng.integers(0, k, n))), (n, k)) for k in sizes]
    return sparse.csr_matrix(sparse.hstack(groups))


def rows(name: str, n: int | None = None, seed: int = 0) -> tuple[sparse.csr_matrix, np.ndarray]:
    """`n` rows (by default as many as the file has) with labels -1 and +1; a boundary that no hyperplane gives."""
    rng = np.random.default_rng(seed)
    full, d = SHAPES[name]
    n = full if n is None else n
    if name == "a9a":  # 14 categories, nothing else
        X, positives = _one_hot(rng, n, (5, 8, 5, 16, 5, 7, 14, 6, 5, 2, 2, 2, 5, 41)), 0.24
    elif name == "ijcnn1":  # one of 10, and 12 numbers
        X, positives = sparse.hstack([_one_hot(rng, n, (10,)), sparse.csr_matrix(rng.random((n, 12)))]), 0.10
    else:  # 10 numbers, one of 4, one of 40
        X, positives = sparse.hstack([sparse.csr_matrix(rng.random((n, 10))), _one_hot(rng, n, (4, 40))]), 0.51
    X = sparse.csr_matrix(X)
    assert X.shape == (n, d)
    score = X @ rng.normal(size=d) + np.abs(X @ rng.normal(size=d)) + 0.3 * rng.normal(size=n)
    return X, np.where(score > np.quantile(score, 1 - positives), 1, -1)


def write(path: Path, name: str, n: int | None = None) -> Path:
    """The stand-in as a LIBSVM file."""
    dump_svmlight_file(*rows(name, n), str(path), zero_based=False)
    return path
