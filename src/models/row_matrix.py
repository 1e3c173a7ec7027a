"""Rows of a least-squares-like problem behind three products, so that sparse rows are never made dense.

Moving rows towards the centre of a box, centring them or appending columns fills every zero, but in few directions
only: what results is A + U Vᵀ with a sparse A and thin U and V, and all products with it cost what A costs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class DenseRows:
    """A matrix of shape (n, d) as it is."""

    rows: Tensor

    @property
    def n_columns(self) -> int:
        return self.rows.shape[1]

    def times(self, W: Tensor) -> Tensor:
        """R W, shape (n, k)."""
        return self.rows @ W

    def transposed_times(self, M: Tensor) -> Tensor:
        """Rᵀ M, shape (d, k)."""
        return self.rows.T @ M

    def gram(self, weights: Tensor | None = None) -> Tensor:
        """Σ_i weight_i r_i r_iᵀ, shape (d, d)."""
        scaled = self.rows if weights is None else self.rows * weights.sqrt()[:, None]
        return scaled.T @ scaled


@dataclass(frozen=True)
class SparseRows:
    """A + U Vᵀ: A a CSR matrix of shape (n, d), U of shape (n, r), V of shape (d, r), r small."""

    A: Any
    U: np.ndarray
    V: np.ndarray

    @property
    def n_columns(self) -> int:
        return self.A.shape[1]

    def times(self, W: Tensor) -> Tensor:
        """R W, shape (n, k)."""
        return torch.from_numpy(self.A @ W.numpy() + self.U @ (self.V.T @ W.numpy()))

    def transposed_times(self, M: Tensor) -> Tensor:
        """Rᵀ M, shape (d, k)."""
        return torch.from_numpy(self.A.T @ M.numpy() + self.V @ (self.U.T @ M.numpy()))

    def gram(self, weights: Tensor | None = None) -> Tensor:
        """Σ_i weight_i r_i r_iᵀ, shape (d, d)."""
        factors = np.ones(len(self.U), dtype=self.U.dtype) if weights is None else weights.numpy()
        weighted = self.A.multiply(factors[:, None]).tocsr()
        cross = (weighted.T @ self.U) @ self.V.T
        total = (weighted.T @ self.A).toarray() + cross + cross.T
        total += self.V @ (self.U.T @ (factors[:, None] * self.U)) @ self.V.T
        return torch.from_numpy(total)
