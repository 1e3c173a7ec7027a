"""Rows as tensors, distances between them by matrix products, and how to cut such products into cache-sized parts."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from scipy import sparse
from torch import Tensor

# Numbers a temporary matrix may hold: 4 MiB in float32, so that it is still in cache when it is read again.
CHUNK = 2**20


def dense(X: Any) -> np.ndarray:
    """The rows of X, which may be sparse, as an array: for some rows at a time, or where the caller bounds the size."""
    return X.toarray() if sparse.issparse(X) else np.asarray(X)


def to_tensor(X: Any, dtype: torch.dtype) -> Tensor:
    """A contiguous dense tensor of the numbers in X; a copy unless X already is what is asked for."""
    array = np.ascontiguousarray(dense(X), dtype=np.float64 if dtype == torch.float64 else np.float32)
    # torch cannot promise not to write to a read-only array, and warns.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def row_norms(X: Tensor) -> Tensor:
    """Squared norms of the rows, shape (n,)."""
    return torch.linalg.vecdot(X, X)  # einsum takes ten times as long


def squared_distances(A: Tensor, B: Tensor, norms_a: Tensor, norms_b: Tensor, refine: bool = False) -> Tensor:
    """‖a - b‖² for all pairs, shape (len(A), len(B)), by one matrix product and the squared norms of the rows.

    `refine` computes close pairs again, from their differences. ‖a‖² + ‖b‖² - 2a·b loses about 1e-7 (‖a‖² + ‖b‖²) in
    float32, which is nothing in exp(-gamma r²) but not in exp(-gamma r), where the root magnifies it near r = 0.
    """
    squared = torch.addmm(norms_b, A, B.t(), alpha=-2.0).add_(norms_a[:, None]).clamp_(min=0.0)
    if refine:
        tolerance = 1e4 * torch.finfo(A.dtype).eps
        close = (squared < tolerance * (norms_a[:, None] + norms_b)).nonzero()
        for part in close.split(max(1, 2**22 // A.shape[1])):
            rows, columns = part[:, 0], part[:, 1]
            squared[rows, columns] = (A[rows] - B[columns]).square_().sum(1)
    return squared


def pair_distances(A: Any, B: Any, refine: bool = False) -> Tensor:
    """‖a - b‖² for all pairs of rows, shape (len(A), len(B)), float64; of sparse rows by their sparse product.

    What is stored is the result and, of sparse rows, what is not 0: the number of columns costs no memory.
    """
    if not sparse.issparse(A):
        first, second = to_tensor(A, torch.float64), to_tensor(B, torch.float64)
        return squared_distances(first, second, first.square().sum(1), second.square().sum(1), refine)
    A, B = A.astype(np.float64), B.astype(np.float64)
    norms_a, norms_b = (np.asarray(X.multiply(X).sum(axis=1)).ravel() for X in (A, B))
    squared = (A @ B.T).toarray()
    squared *= -2.0
    squared += norms_a[:, None]
    squared += norms_b
    np.maximum(squared, 0.0, out=squared)
    if refine:
        close = np.argwhere(squared < 1e4 * np.finfo(np.float64).eps * (norms_a[:, None] + norms_b))
        for part in np.array_split(close, len(close) // 4096 + 1):
            apart = A[part[:, 0]] - B[part[:, 1]]
            squared[part[:, 0], part[:, 1]] = np.asarray(apart.multiply(apart).sum(axis=1)).ravel()
    return torch.from_numpy(squared)


def leading_coordinates(X: Tensor, rank: int, seed: int) -> Tensor:
    """The rows of X in an orthonormal basis of `rank` directions that hold most of them, shape (n, rank).

    The directions are the leading singular ones of 2·rank + 100 rows. With x = z + r, r the part beyond them,
    ‖x - x'‖² = ‖z‖² + ‖z'‖² - 2z·z' + ‖r‖² + ‖r'‖² - 2r·r', and all but the last term is known from z and the rows'
    own lengths. Leaving that one out, which is small where the rows differ, changes a squared distance by at most
    2‖r‖‖r'‖.
    """
    rank = min(rank, *X.shape)
    some = torch.from_numpy(np.random.default_rng([seed, 4]).permutation(len(X))[: 2 * rank + 100])
    sample = X[some].double()
    squared, left = torch.linalg.eigh(sample @ sample.t())
    # Smaller ones are rounding, and so would be their directions.
    kept = squared > squared[-1] * torch.finfo(torch.float64).eps * len(sample)
    kept[: len(kept) - rank] = False
    return X @ (sample.t() @ (left[:, kept] / squared[kept].sqrt())).to(X.dtype)


def chunks(n_rows: int, width: int, at_least: int = 64) -> Iterator[slice]:
    """Slices of rows such that a chunk × width matrix stays in cache."""
    size = max(at_least, CHUNK // max(1, width))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
