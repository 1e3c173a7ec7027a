"""Rows of the data as tensors, and in which order training sees them."""

import numpy as np
import torch
from torch import Tensor

from models.expansions import Front


class RowSource:
    """Rows of X by number, converted a window at a time: X may be a memory map of any real dtype."""

    def __init__(self, X: np.ndarray, dtype: torch.dtype):
        self.X = X
        self.dtype = dtype

    def __len__(self) -> int:
        return len(self.X)

    def front(self, ids: np.ndarray) -> Front:
        return Front(to_tensor(self.X[ids], self.dtype), ids)


def to_tensor(X: np.ndarray, dtype: torch.dtype) -> Tensor:
    """A contiguous tensor of the numbers in X; a copy unless X already is what is asked for."""
    array = np.ascontiguousarray(X, dtype=np.float64 if dtype == torch.float64 else np.float32)
    # torch cannot promise not to write to a read-only array, and warns.
    return torch.from_numpy(array if array.flags.writeable else array.copy())


def shuffled_batches(n_rows: int, batch_size: int, passes: int, seed: int) -> list[np.ndarray]:
    """Row numbers of every batch: each pass is a seeded permutation cut into batches, the last of them smaller."""
    batches: list[np.ndarray] = []
    for number in range(passes):
        order = np.random.default_rng([seed, number, 1]).permutation(n_rows)
        batches += [order[start : start + batch_size] for start in range(0, n_rows, batch_size)]
    return batches
