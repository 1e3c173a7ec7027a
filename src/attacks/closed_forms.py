"""Closed forms of what scikit-learn's linear and kernel classifiers compute, in float64."""

from __future__ import annotations

from math import comb
from typing import Any, Protocol

import numpy as np

ROWS = 1024  # rows per block: keeps the kernel matrix of a few thousand support vectors in tens of megabytes


class ClosedForm(Protocol):
    """Scores with derivatives."""

    def scores(self, X: np.ndarray) -> np.ndarray: ...
    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]: ...


class LinearForm:
    """``w · x + b``."""

    def __init__(self, weights: np.ndarray, intercept: float) -> None:
        self.weights, self.intercept = weights, intercept

    def scores(self, X: np.ndarray) -> np.ndarray:
        return X.astype(np.float64) @ self.weights + self.intercept

    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return self.scores(X), np.broadcast_to(self.weights, X.shape)

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]:
        even, odd = self.scores(X)[:, None], (h * self.weights[coords])[None, :]
        return even + odd, even - odd


class KernelForm:
    """``Σ_i a_i k(x, s_i) + b`` over the support vectors of an SVC; subclasses know the kernel."""

    def __init__(self, model: Any) -> None:
        vectors = model.support_vectors_
        self.vectors = np.asarray(vectors.toarray() if hasattr(vectors, "toarray") else vectors, dtype=np.float64)
        coefficients = model.dual_coef_
        dense = coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients
        self.coefficients = np.asarray(dense, dtype=np.float64)[0]
        self.intercept = float(model.intercept_[0])
        self.gamma, self.degree, self.coef0 = float(model._gamma), int(model.degree), float(model.coef0)

    def _values(self, X: np.ndarray) -> np.ndarray:
        """Kernel values, (n, S)."""
        raise AssertionError("abstract")

    def scores(self, X: np.ndarray) -> np.ndarray:
        blocks = (X[i : i + ROWS].astype(np.float64) for i in range(0, len(X), ROWS))
        parts = [self._values(block) @ self.coefficients for block in blocks]
        return (np.concatenate(parts) if parts else np.empty(0)) + self.intercept

    def _weighted(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        raise AssertionError("abstract")

    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, gradients = np.empty(len(X)), np.empty(X.shape)
        for i in range(0, len(X), ROWS):
            block = slice(i, i + ROWS)
            scores[block], gradients[block] = self._weighted(X[block].astype(np.float64))
        return scores + self.intercept, gradients


class RBFForm(KernelForm):
    """``exp(-γ‖x - s‖²)``."""

    def _values(self, X: np.ndarray) -> np.ndarray:
        squares = (X * X).sum(axis=1)[:, None] + (self.vectors * self.vectors).sum(axis=1)
        distances = np.maximum(squares - 2.0 * (X @ self.vectors.T), 0.0)
        return np.exp(-self.gamma * distances)

    def _weighted(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        weighted = self._values(X) * self.coefficients
        scores = weighted.sum(axis=1)
        return scores, 2.0 * self.gamma * (weighted @ self.vectors - scores[:, None] * X)

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]:
        # k(x ± h e_j, s) = k(x, s) exp(∓2γh(x_j - s_j) - γh²); cosh and sinh of the difference split into
        # products of a factor of x and a factor of s, which makes every answer a matrix product.
        weighted = self._values(X.astype(np.float64)) * self.coefficients
        at_vectors = 2.0 * self.gamma * h * self.vectors[:, coords]
        cosh_part, sinh_part = weighted @ np.cosh(at_vectors), weighted @ np.sinh(at_vectors)
        at_rows = 2.0 * self.gamma * h * X[:, coords].astype(np.float64)
        cosh_rows, sinh_rows = np.cosh(at_rows), np.sinh(at_rows)
        shrink = np.exp(-self.gamma * np.square(h))
        even = shrink * (cosh_rows * cosh_part - sinh_rows * sinh_part) + self.intercept
        odd = shrink * (cosh_rows * sinh_part - sinh_rows * cosh_part)
        return even + odd, even - odd


class PolynomialForm(KernelForm):
    """``(γ x·s + c)^p``."""

    def _inner(self, X: np.ndarray) -> np.ndarray:
        return self.gamma * (X @ self.vectors.T) + self.coef0

    def _values(self, X: np.ndarray) -> np.ndarray:
        return self._inner(X) ** self.degree

    def _weighted(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inner = self._inner(X)
        slopes = self.degree * self.gamma * self.coefficients * inner ** max(self.degree - 1, 0)
        return (inner**self.degree) @ self.coefficients, slopes @ self.vectors

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]:
        inner, shift = self._inner(X.astype(np.float64)), self.gamma * h * self.vectors[:, coords]
        parts = [np.zeros((len(X), len(coords))), np.zeros((len(X), len(coords)))]
        for k in range(self.degree + 1):  # the binomial theorem, even and odd powers of h apart
            parts[k % 2] += comb(self.degree, k) * ((self.coefficients * inner ** (self.degree - k)) @ shift**k)
        even, odd = parts[0] + self.intercept, parts[1]
        return even + odd, even - odd


class SigmoidForm(KernelForm):
    """``tanh(γ x·s + c)``."""

    def _values(self, X: np.ndarray) -> np.ndarray:
        return np.tanh(self.gamma * (X @ self.vectors.T) + self.coef0)

    def _weighted(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values = self._values(X)
        slopes = self.gamma * self.coefficients * (1.0 - values * values)
        return values @ self.coefficients, slopes @ self.vectors

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]:
        # tanh does not factor, but one coordinate moves every inner product by a known amount.
        inner = self.gamma * (X.astype(np.float64) @ self.vectors.T) + self.coef0
        shift = self.gamma * h * self.vectors[:, coords]
        plus, minus = np.empty((len(X), len(coords))), np.empty((len(X), len(coords)))
        for j in range(len(coords)):
            plus[:, j] = np.tanh(inner + shift[:, j]) @ self.coefficients
            minus[:, j] = np.tanh(inner - shift[:, j]) @ self.coefficients
        return plus + self.intercept, minus + self.intercept
