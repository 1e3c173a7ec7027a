"""Sums of kernels: the space they live in, and sums made ready for many evaluations: scores, gradients and probes."""

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from models.distances import chunks, row_norms, squared_distances
from models.kernels import Kernel
from models.probing import Asked, PlainProber, Prober

# Rows of matrices are whole vectors of the processor, 8 float32 each: products into others take half as long again.
_VECTOR = 8
# Leaving columns out copies part of every point: worth it from a tenth of the columns on.
_WORTH_IT = 0.9


@dataclass(frozen=True)
class KernelSpace:
    """Kernel, widths, input dimension and arithmetic of an expansion.

    With G widths the columns come in G consecutive groups of equal size, one per width, so that distances and X @ Ω are
    shared.
    """

    kernel: Kernel
    gammas: tuple[float, ...]
    dimension: int
    dtype: torch.dtype
    seed: int

    def squared_distances(
        self, A: Tensor, B: Tensor, norms_a: Tensor | None = None, norms_b: Tensor | None = None
    ) -> Tensor:
        """‖a - b‖² for all pairs, as exactly as the kernel needs them."""
        norms_a = row_norms(A) if norms_a is None else norms_a
        norms_b = row_norms(B) if norms_b is None else norms_b
        return squared_distances(A, B, norms_a, norms_b, refine=self.kernel.refine_distances)

    def groups(self, n_columns: int) -> Iterator[tuple[float, slice]]:
        """(gamma, columns) for each width."""
        size = n_columns // len(self.gammas)
        for number, gamma in enumerate(self.gammas):
            yield gamma, slice(number * size, (number + 1) * size)

    def gamma_of(self, columns: Tensor, n_columns: int) -> float:
        """The width that some of `n_columns` columns share."""
        size = n_columns // len(self.gammas)
        group = int(columns[0]) // size
        if bool((columns // size != group).any()):
            raise ValueError("columns of different widths have no common gradient pass")
        return self.gammas[group]

    def kernel_product(self, squared: Tensor, coefficients: Tensor, out: Tensor) -> Tensor:
        """out += k(squared) @ coefficients, each group of columns with its own width. May overwrite `squared`."""
        for gamma, group in self.groups(coefficients.shape[1]):
            distances = squared if len(self.gammas) == 1 else squared.clone()
            out[:, group].addmm_(self.kernel.from_squared_distance_(distances, gamma), coefficients[:, group])
        return out

    def quadratic_form(self, squared: Tensor, coefficients: Tensor) -> Tensor:
        """Σ_{b,b'} c_b c_b' k(x_b, x_b') for each column, shape (n_columns,), float64, from the squared distances."""
        image = torch.zeros_like(coefficients)
        for gamma, group in self.groups(coefficients.shape[1]):
            gram = self.kernel.from_squared_distance_(squared.clone(), gamma)
            image[:, group] = gram.double() @ coefficients[:, group]
        return (coefficients * image).sum(0)


class KernelSum:
    """f(x) = Σ_s w_s k(x, s) for one or more columns of weights, with any kernel, evaluated in `dtype`.

    Vectors are of shape (n_vectors, d), weights (n_vectors, n_columns).
    """

    def __init__(self, space: KernelSpace, vectors: Tensor, weights: Tensor, dtype: torch.dtype):
        self.space = space
        self.vectors = vectors.to(dtype)
        self.weights = weights.to(dtype)
        self.norms = row_norms(self.vectors)

    def __len__(self) -> int:
        return len(self.vectors)

    def scores(self, X: Tensor) -> Tensor:
        """Shape (n, n_columns)."""
        out = torch.zeros(len(X), self.weights.shape[1], dtype=self.weights.dtype)
        for rows in chunks(len(X), len(self)):
            squared = self.space.squared_distances(X[rows], self.vectors, norms_b=self.norms)
            self.space.kernel_product(squared, self.weights, out[rows])
        return out

    def scores_and_gradients(
        self, X: Tensor, columns: Tensor, gamma: float, coords: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Shapes (n, c) and (n, c, d), or `coords` of the d, for columns that all have the width `gamma`."""
        weights = self.weights[:, columns]
        across = weights.t().contiguous()
        places, vectors = (X, self.vectors) if coords is None else (X[:, coords], self.vectors[:, coords])
        scores = torch.empty(len(X), len(columns), dtype=weights.dtype)
        gradients = torch.empty(len(X), len(columns), places.shape[1], dtype=weights.dtype)
        for rows in chunks(len(X), len(self) * len(columns), at_least=16):
            squared = self.space.squared_distances(X[rows], self.vectors, norms_b=self.norms)
            values = self.space.kernel.from_squared_distance_(squared.clone(), gamma)
            slopes = self.space.kernel.slope(squared, values, gamma)[:, None, :] * across
            # Σ_s 2 w_s k'(x, s) (x - s), the two halves apart.
            torch.mul(slopes.sum(2, keepdim=True), places[rows, None, :], out=gradients[rows]).mul_(2.0)
            gradients[rows].view(-1, places.shape[1]).addmm_(slopes.flatten(0, 1), vectors, alpha=-2.0)
            scores[rows] = values @ weights
        return scores, gradients

    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd part of f(x ± h·e_j) in h, both (n, q), float64, for the first column."""
        # One coordinate moves the squared distance by ±2h(x_j - s_j) + h²; float64, because the difference counts.
        kernel, gamma = self.space.kernel, self.space.gammas[0]
        vectors, weights = self.vectors.double(), self.weights[:, 0].double()
        even = torch.empty(len(X), len(coords), dtype=torch.float64)
        odd = torch.empty_like(even)
        for rows in chunks(len(X), max(1, len(self)), at_least=1):
            points = X[rows].double()
            squared = self.space.squared_distances(points, vectors)
            for column, j in enumerate(coords.tolist()):
                move = 2.0 * h * (points[:, j, None] - vectors[:, j])
                plus, minus = (
                    kernel.from_squared_distance_((squared + sign * move + h * h).clamp_(min=0.0), gamma)
                    for sign in (1.0, -1.0)
                )
                even[rows, column] = 0.5 * (plus + minus) @ weights
                odd[rows, column] = 0.5 * (plus - minus) @ weights
        return even, odd

    def prober(self, expansion: Asked) -> Prober | PlainProber:
        """Answers `probe` again and again for rows of which few columns change in between."""
        return PlainProber(expansion)


class RBFSum(KernelSum):
    """One function f(x) = Σ_s w_s exp(-γ‖x - s‖²), laid out so that matrix products do nearly all of the work.

    The exponent is itself one product, [2γx, -γ‖x‖², 1] · [s, 1, -γ‖s‖²], and so is the gradient, (w∘k) [S, ·, ·], with
    the same table of support vectors. Between them only exp and the weights pass over the matrix.
    Columns that are 0 in all support vectors take no part: on MNIST that is a quarter of the pixels, and both products
    shrink by it, exactly.
    """

    def __init__(self, space: KernelSpace, vectors: Tensor, weights: Tensor, dtype: torch.dtype):
        super().__init__(space, vectors, weights, dtype)
        used = vectors.ne(0).any(0)
        self.gamma = space.gammas[0]
        self.columns = used.nonzero()[:, 0] if float(used.double().mean()) < _WORTH_IT else None
        compact = self.vectors if self.columns is None else self.vectors[:, self.columns]
        n, self.width = compact.shape
        self.table = torch.zeros(whole_vectors(n), whole_vectors(self.width + 2), dtype=dtype)
        self.table[:n, : self.width] = compact
        self.table[:n, self.width] = 1.0
        self.table[:n, self.width + 1] = -self.gamma * row_norms(compact)

    def values(self, X: Tensor) -> Tensor:
        """k(x, s) for all pairs, shape (len(X), len(self))."""
        # Rounding must not make a distance negative: far from the origin k would exceed 1 without bound.
        return self.exponents_at(X).clamp_(max=0.0).exp_()

    def exponents_at(self, X: Tensor) -> Tensor:
        """-γ‖x - s‖² for all pairs, shape (len(X), len(self))."""
        part = X if self.columns is None else X.index_select(1, self.columns)
        left = torch.empty(len(X), self.table.shape[1], dtype=X.dtype)
        torch.mul(part, 2.0 * self.gamma, out=left[:, : self.width])
        torch.mul(row_norms(X), -self.gamma, out=left[:, self.width])
        left[:, self.width + 1] = 1.0
        left[:, self.width + 2 :] = 0.0
        return (left @ self.table.t())[:, : len(self)]

    def scores(self, X: Tensor) -> Tensor:
        """Shape (n, 1)."""
        out = torch.empty(len(X), 1, dtype=self.weights.dtype)
        for rows in chunks(len(X), len(self)):
            torch.mm(self.values(X[rows]), self.weights, out=out[rows])
        return out

    def scores_and_gradients(
        self, X: Tensor, columns: Tensor, gamma: float, coords: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Shapes (n, 1) and (n, 1, d); there is one column and one width."""
        if coords is not None:
            return super().scores_and_gradients(X, columns, gamma, coords)
        scores = torch.empty(len(X), 1, dtype=self.weights.dtype)
        gradients = torch.empty(len(X), 1, X.shape[1], dtype=self.weights.dtype)
        for rows in chunks(len(X), len(self), at_least=16):
            self.gradients_of(self.values(X[rows]), X[rows], scores[rows], gradients[rows, 0])
        return scores, gradients

    def gradients_of(self, values: Tensor, X: Tensor, scores: Tensor, gradients: Tensor) -> None:
        """Scores (n, 1) and gradients (n, d) at X from the kernel's `values` there, which are written over."""
        # A product of its own: a column of the next one would be a score, too, but rounds ten times as badly.
        torch.mm(values, self.weights, out=scores)
        weighted = (values.mul_(self.weights[:, 0]) @ self.table[: len(self)])[:, : self.width]
        # 2γ Σ_s w_s k(x, s) (s - x), the two halves apart.
        torch.mul(X, -2.0 * self.gamma * scores, out=gradients)
        if self.columns is None:
            gradients.add_(weighted, alpha=2.0 * self.gamma)
        else:
            gradients.index_add_(1, self.columns, weighted, alpha=2.0 * self.gamma)

    def probe(self, X: Tensor, coords: Tensor, h: float, exponents: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """As for any kernel, but by matrix products; `exponents` are those of X, where they are known.

        k(x ± h e_j, s) = k(x, s) exp(-γh²) exp(∓(a - b)) with a = 2γh x_j, b = 2γh s_j. In cosh and sinh of a - b the
        part odd in h stands alone, and the addition theorems leave two matrix products over the support vectors.
        """
        a = X.index_select(1, coords).double().mul_(2.0 * self.gamma * h)
        b = self.vectors.index_select(1, coords).mul_(2.0 * self.gamma * h)
        if len(self) == 0 or max(float(a.abs().max()), float(b.abs().max())) > 20.0:
            # cosh would grow too large.
            return super().probe(X, coords, h)
        table = torch.cat([b.cosh(), b.sinh()], dim=1)
        sums = torch.empty(len(X), table.shape[1], dtype=torch.float64)
        for rows in chunks(len(X), len(self)):
            values = self.values(X[rows]) if exponents is None else exponents[rows].clamp(max=0.0).exp_()
            sums[rows] = (values.mul_(self.weights[:, 0]) @ table).double()
        cosh_sum, sinh_sum = sums.mul_(math.exp(-self.gamma * h * h)).chunk(2, dim=1)
        cosh, sinh = a.cosh(), a.sinh()
        return cosh * cosh_sum - sinh * sinh_sum, cosh * sinh_sum - sinh * cosh_sum

    def prober(self, expansion: Asked) -> Prober:
        return GaussianProber(expansion, self)


class GaussianProber(Prober):
    """Keeps the exponents of all pairs of a Gaussian sum."""

    def __init__(self, expansion: Asked, ready: RBFSum):
        super().__init__(expansion, len(ready))
        self.ready = ready
        self.exponents = torch.empty(0, len(ready))

    def _renew(self, X: Tensor) -> None:
        self.exponents = self.ready.exponents_at(X)

    def _update(self, difference: Tensor, total: Tensor, columns: Tensor) -> None:
        gamma, right = self.ready.gamma, self.ready.vectors.index_select(1, columns).t()
        longer = torch.linalg.vecdot(difference, total)  # ‖x‖² has grown by Σ (x - x')(x + x')
        self.exponents.addmm_(difference, right, alpha=2.0 * gamma).sub_(longer[:, None], alpha=gamma)

    def _answer(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        return self.ready.probe(X, coords, h, self.exponents)

    def _keep(self, rows: Tensor) -> None:
        self.exponents = self.exponents[rows]


def kernel_sum(space: KernelSpace, vectors: Tensor, weights: Tensor, dtype: torch.dtype) -> KernelSum:
    """Σ_s w_s k(·, s) made ready for many evaluations: vectors (n, d), weights (n, n_columns)."""
    kind = RBFSum if space.kernel.gaussian and weights.shape[1] == 1 else KernelSum
    return kind(space, vectors, weights, dtype)


def whole_vectors(count: int) -> int:
    """The next multiple."""
    return -(-count // _VECTOR) * _VECTOR
