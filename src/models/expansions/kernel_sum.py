"""A kernel sum made ready to be evaluated again and again, as attacks do."""

import torch
from torch import Tensor

from models.expansions.base import KernelSpace, chunks, row_norms


class KernelSum:
    """Support vectors in the dtype of the evaluation, with their norms."""

    def __init__(self, space: KernelSpace, vectors: Tensor, weights: Tensor, dtype: torch.dtype):
        self.space = space
        self.vectors = vectors.to(dtype)
        self.weights = weights.to(dtype)
        self.norms = row_norms(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    def squared_distances(self, X: Tensor) -> Tensor:
        """‖x - s‖² for all pairs, shape (len(X), len(self))."""
        return self.space.squared_distances(X, self.vectors, row_norms(X), self.norms)

    def scores(self, X: Tensor) -> Tensor:
        """Shape (n, n_columns)."""
        out = torch.zeros(len(X), self.weights.shape[1], dtype=self.weights.dtype)
        for rows in chunks(len(X), len(self)):
            self.space.kernel_product(self.squared_distances(X[rows]), self.weights, out[rows])
        return out

    def scores_and_gradients(self, X: Tensor, columns: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """Shapes (n, c) and (n, c, d), for columns that all have the width `gamma`."""
        weights = self.weights[:, columns]
        across = weights.t().contiguous()
        scores = torch.empty(len(X), len(columns), dtype=weights.dtype)
        gradients = torch.empty(len(X), len(columns), X.shape[1], dtype=weights.dtype)
        for rows in chunks(len(X), len(self) * len(columns), at_least=16):
            squared = self.squared_distances(X[rows])
            values = self.space.kernel.from_squared_distance_(squared.clone(), gamma)
            slopes = self.space.kernel.slope(squared, values, gamma)[:, None, :] * across
            # Σ_s 2 w_s k'(x, s) (x - s), the two halves apart.
            torch.mul(slopes.sum(2, keepdim=True), X[rows, None, :], out=gradients[rows]).mul_(2.0)
            gradients[rows].view(-1, X.shape[1]).addmm_(slopes.view(-1, len(self)), self.vectors, alpha=-2.0)
            scores[rows] = values @ weights
        return scores, gradients
