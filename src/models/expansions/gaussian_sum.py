"""The exact expansion of one RBF machine, made for attacks: scores, gradients and probes by matrix products."""

import math

import torch
from torch import Tensor

from models.expansions.base import chunks, row_norms
from models.expansions.probing import Prober

# Leaving columns out copies part of every point: worth it from a tenth of the columns on.
_WORTH_IT = 0.9


class GaussianSum:
    """One function f(x) = Σ_s w_s exp(-γ‖x - s‖²), laid out so that matrix products do nearly all of the work.

    The exponent is itself one product, [2γx, -γ‖x‖², 1] · [s, 1, -γ‖s‖²], and so is the gradient, (w∘k) [S, ·, ·], with
    the same table of support vectors. Between them only exp and the weights pass over the matrix.
    Columns that are 0 in all support vectors take no part: on MNIST that is a quarter of the pixels, and both products
    shrink by it, exactly.
    """

    def __init__(self, gamma: float, vectors: Tensor, weights: Tensor, dtype: torch.dtype):
        used = vectors.ne(0).any(0)
        compact = float(used.double().mean()) < _WORTH_IT
        self.gamma = gamma
        self.columns = used.nonzero()[:, 0] if compact else None
        self.weights = weights.to(dtype)
        self.vectors = vectors = vectors.to(dtype)
        if self.columns is not None:
            vectors = vectors[:, self.columns]
        one = torch.ones(len(vectors), 1, dtype=dtype)
        self.table = torch.cat([vectors, one, -gamma * row_norms(vectors)[:, None]], dim=1)

    def __len__(self) -> int:
        return len(self.weights)

    def values(self, X: Tensor) -> Tensor:
        """k(x, s) for all pairs, shape (len(X), len(self))."""
        # Rounding must not make a distance negative: far from the origin k would exceed 1 without bound.
        return self.exponents_at(X).clamp_(max=0.0).exp_()

    def exponents_at(self, X: Tensor) -> Tensor:
        """-γ‖x - s‖² for all pairs, shape (len(X), len(self))."""
        part = X if self.columns is None else X.index_select(1, self.columns)
        left = torch.empty(len(X), part.shape[1] + 2, dtype=X.dtype)
        torch.mul(part, 2.0 * self.gamma, out=left[:, :-2])
        torch.mul(row_norms(X), -self.gamma, out=left[:, -2])
        left[:, -1] = 1.0
        return left @ self.table.t()

    def probe(
        self, X: Tensor, coords: Tensor, h: float, exponents: Tensor | None = None
    ) -> tuple[Tensor, Tensor] | None:
        """Even and odd part of f(x ± h·e_j) in h, both (n, q), float64; None where its numbers would grow too large.

        k(x ± h e_j, s) = k(x, s) exp(-γh²) exp(∓(a - b)) with a = 2γh x_j, b = 2γh s_j. In cosh and sinh of a - b the
        part odd in h stands alone, and the addition theorems leave two matrix products over the support vectors.
        `exponents` are those of X, where they are known.
        """
        a = X.index_select(1, coords).double().mul_(2.0 * self.gamma * h)
        b = self.vectors.index_select(1, coords).mul_(2.0 * self.gamma * h)
        if max(float(a.abs().max()), float(b.abs().max())) > 20.0:
            return None
        table = torch.cat([b.cosh(), b.sinh()], dim=1)
        sums = torch.empty(len(X), table.shape[1], dtype=torch.float64)
        for rows in chunks(len(X), len(self)):
            values = self.values(X[rows]) if exponents is None else exponents[rows].clamp(max=0.0).exp_()
            sums[rows] = (values.mul_(self.weights) @ table).double()
        cosh_sum, sinh_sum = sums.mul_(math.exp(-self.gamma * h * h)).chunk(2, dim=1)
        cosh, sinh = a.cosh(), a.sinh()
        return cosh * cosh_sum - sinh * sinh_sum, cosh * sinh_sum - sinh * cosh_sum

    def scores(self, X: Tensor) -> Tensor:
        """Shape (n, 1)."""
        out = torch.empty(len(X), 1, dtype=self.weights.dtype)
        for rows in chunks(len(X), len(self)):
            torch.mm(self.values(X[rows]), self.weights[:, None], out=out[rows])
        return out

    def scores_and_gradients(self, X: Tensor, columns: Tensor, gamma: float) -> tuple[Tensor, Tensor]:
        """Shapes (n, 1) and (n, 1, d); there is one column and one width."""
        scores = torch.empty(len(X), 1, dtype=self.weights.dtype)
        gradients = torch.empty(len(X), 1, X.shape[1], dtype=self.weights.dtype)
        for rows in chunks(len(X), len(self), at_least=16):
            values = self.values(X[rows])
            # A product of its own: a column of the next one would be a score, too, but rounds ten times as badly.
            score = torch.mm(values, self.weights[:, None], out=scores[rows])
            pulled = values.mul_(self.weights) @ self.table
            # 2γ Σ_s w_s k(x, s) (s - x), the two halves apart.
            gradient = torch.mul(X[rows], -2.0 * self.gamma * score, out=gradients[rows, 0])
            if self.columns is None:
                gradient.add_(pulled[:, :-2], alpha=2.0 * self.gamma)
            else:
                gradient.index_add_(1, self.columns, pulled[:, :-2], alpha=2.0 * self.gamma)
        return scores, gradients


class GaussianProber(Prober):
    """Keeps the exponents of all pairs."""

    def __init__(self, expansion, ready: GaussianSum):
        super().__init__(expansion, len(ready))
        self.ready = ready
        self.exponents = torch.empty(0, len(ready))

    def _renew(self, X):
        self.exponents = self.ready.exponents_at(X)

    def _update(self, X, difference, changed):
        gamma, vectors = self.ready.gamma, self.ready.vectors
        # ‖x‖² has grown by Σ_J δ(2x - δ), for δ the difference.
        longer = (difference * (2.0 * X.index_select(1, changed) - difference)).sum(1, keepdim=True)
        self.exponents.addmm_(2.0 * gamma * difference, vectors.index_select(1, changed).t()).sub_(gamma * longer)

    def _answer(self, X, coords, h):
        found = self.ready.probe(X, coords, h, self.exponents)
        return self.expansion.probe(X, coords, h) if found is None else found

    def _keep(self, rows):
        self.exponents = self.exponents[rows]
