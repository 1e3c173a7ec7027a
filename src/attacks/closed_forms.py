"""What scikit-learn's classifiers and Pipelines compute, in closed form with derivatives, in float64."""

from math import comb
from typing import Any, Protocol

import numpy as np

ROWS = 1024  # rows per block: keeps the kernel matrix of a few thousand support vectors in tens of megabytes


class ClosedForm(Protocol):
    """Scores with derivatives."""

    def scores(self, X: np.ndarray) -> np.ndarray: ...
    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]: ...
    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]: ...


def dense(values: Any) -> np.ndarray:
    """What a classifier fitted to sparse rows keeps, as an array in float64."""
    return np.asarray(values.toarray() if hasattr(values, "toarray") else values, dtype=np.float64)


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

    def __init__(self, model: Any, vectors: np.ndarray, coefficients: np.ndarray, intercept: float) -> None:
        self.vectors, self.coefficients, self.intercept = vectors, coefficients, intercept
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


class AffineStep:
    """``x ↦ scale ∘ x + shift``; the scale is taken from the scaler's own transform of 0 and of 1."""

    def __init__(self, scaler: Any, width: int) -> None:
        self.shift = scaler.transform(np.zeros((1, width)))[0]
        self.scale = scaler.transform(np.ones((1, width)))[0] - self.shift

    def forward(self, X: np.ndarray) -> np.ndarray:
        return X * self.scale + self.shift

    def pull_back(self, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        return gradients * self.scale


class LinearStep:
    """``x ↦ A x + b``: PCA, whitened or not, and feature selectors."""

    def __init__(self, transformer: Any, width: int) -> None:
        self.shift = transformer.transform(np.zeros((1, width)))[0]
        self.matrix = transformer.transform(np.eye(width)) - self.shift

    def forward(self, X: np.ndarray) -> np.ndarray:
        return X @ self.matrix + self.shift

    def pull_back(self, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        return gradients @ self.matrix.T


class NormalizeStep:
    """``x ↦ x / ‖x‖₂``; a zero row stays zero."""

    def forward(self, X: np.ndarray) -> np.ndarray:
        return X / self._norms(X)

    def pull_back(self, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        norms = self._norms(X)
        unit = X / norms
        return (gradients - (gradients * unit).sum(axis=1, keepdims=True) * unit) / norms

    @staticmethod
    def _norms(X: np.ndarray) -> np.ndarray:
        norms = np.linalg.norm(X, axis=1, keepdims=True)
        return np.where(norms == 0.0, 1.0, norms)


class Chain:
    """Differentiable steps, and what stands behind them."""

    def __init__(self, steps: list[Any], form: Any) -> None:
        self.steps, self.form = steps, form

    def forward(self, X: np.ndarray) -> list[np.ndarray]:
        inputs = [X.astype(np.float64)]
        for step in self.steps:
            inputs.append(step.forward(inputs[-1]))
        return inputs

    def pull_back(self, inputs: list[np.ndarray], gradients: np.ndarray) -> np.ndarray:
        """Gradients at what entered the first step, from those at what left the last."""
        for step, entered in zip(reversed(self.steps), reversed(inputs[:-1])):
            gradients = step.pull_back(entered, gradients)
        return gradients


class ChainForm(Chain):
    """A classifier behind such steps: the chain rule."""

    def __init__(self, steps: list[Any], form: ClosedForm) -> None:
        super().__init__(steps, form)
        # Scaling keeps coordinates apart, so the classifier's own probe still answers; a rotation mixes them.
        self.probe = self._scaled_probe if all(isinstance(step, AffineStep) for step in steps) else None

    def scores(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.form.scores(self.forward(X)[-1]))

    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inputs = self.forward(X)
        scores, gradients = self.form.scores_and_gradients(inputs[-1])
        return scores, self.pull_back(inputs, gradients)

    def _scaled_probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]:
        scale = np.prod([step.scale[coords] for step in self.steps], axis=0)
        return self.form.probe(self.forward(X)[-1], coords, h * scale)
