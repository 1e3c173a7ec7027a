"""A kernel sum made ready to be evaluated again and again, as attacks do."""

import torch
from torch import Tensor

from models.expansions.base import KernelSpace, row_norms

# Leaving columns out copies part of every point: worth it from a tenth of the columns on.
_WORTH_IT = 0.9


class KernelSum:
    """Support vectors in the dtype of the evaluation, with their norms, without columns that are 0 in all of them.

    On MNIST a quarter of the pixels is black in every support vector: both matrix products shrink by it, exactly.
    """

    def __init__(self, space: KernelSpace, vectors: Tensor, weights: Tensor, dtype: torch.dtype):
        self.space = space
        used = vectors.ne(0).any(0)
        # The Laplacian recomputes close pairs from their differences, which needs all columns.
        compact = space.kernel.name == "rbf" and float(used.double().mean()) < _WORTH_IT and len(vectors) > 0
        self.columns = used.nonzero()[:, 0] if compact else None
        self.vectors = (vectors if self.columns is None else vectors[:, self.columns]).to(dtype)
        self.weights = weights.to(dtype)
        self.norms = row_norms(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    def squared_distances(self, X: Tensor) -> Tensor:
        """‖x - s‖² for all pairs, shape (len(X), len(self))."""
        part = X if self.columns is None else X[:, self.columns]
        return self.space.squared_distances(part, self.vectors, row_norms(X), self.norms)

    def pull(self, slopes: Tensor, gradients: Tensor) -> None:
        """gradients -= 2 · slopes @ vectors, for slopes of shape (n, len(self)) and gradients of shape (n, d)."""
        if self.columns is None:
            gradients.addmm_(slopes, self.vectors, alpha=-2.0)
        else:
            gradients.index_add_(1, self.columns, slopes @ self.vectors, alpha=-2.0)
