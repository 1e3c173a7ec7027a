"""Real-valued functions that fitted classifiers compute, several outputs at once, with derivatives, in float64."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import comb
from typing import Any, Self

import numpy as np

# Rows per block: keeps the kernel matrix of a few thousand support vectors in tens of megabytes.
ROWS = 1024

# From scores (n, m) to what of them is differentiated, row by row: coefficients (n, m).
Weigh = Callable[[np.ndarray], np.ndarray]
Probes = tuple[np.ndarray, np.ndarray]


class Machine(ABC):
    """m functions f_1 … f_m of the rows."""

    @property
    @abstractmethod
    def n_outputs(self) -> int:
        """m."""

    @abstractmethod
    def scores(self, X: np.ndarray) -> np.ndarray:
        """Shape (n, m)."""

    @abstractmethod
    def scores_and_gradients(self, X: np.ndarray, weigh: Weigh) -> tuple[np.ndarray, np.ndarray]:
        """Scores (n, m), and the gradients (n, d) of Σ_k c_k f_k for the coefficients c that `weigh` gives each row."""

    @property
    def smooth(self) -> bool:
        """Whether it gives gradients."""
        return True

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes | None:
        """f_1 at x + h·e_j and x - h·e_j, both (n, q), exactly; None where only asking point by point would do."""
        return None


@dataclass(frozen=True)
class Linear(Machine):
    """W x + b."""

    weights: np.ndarray  # (m, d)
    intercepts: np.ndarray  # (m,)
    # Of a kernel sum: what its terms add up to without their signs, (m, d), and how many there are.
    mass: np.ndarray | None = None
    terms: int = 0
    float32: bool = False  # whether float32 rows are multiplied in float32
    allowance: float = 0.0  # what rounding takes between an output and the label, beyond that of the sum itself

    @property
    def n_outputs(self) -> int:
        return len(self.weights)

    def rescaled(self, slope: float, shift: float, allowance: float) -> "Linear":
        """slope·f + shift, which the model computes from its f."""
        mass = None if self.mass is None else abs(slope) * self.mass
        weights, intercepts = slope * self.weights, slope * self.intercepts + shift
        return replace(self, weights=weights, intercepts=intercepts, mass=mass, allowance=allowance)

    def scores(self, X: np.ndarray) -> np.ndarray:
        return X.astype(np.float64) @ self.weights.T + self.intercepts

    def scores_and_gradients(self, X: np.ndarray, weigh: Weigh) -> tuple[np.ndarray, np.ndarray]:
        scores = self.scores(X)
        return scores, weigh(scores) @ self.weights

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes:
        even, odd = self.scores(X)[:, :1], (h * self.weights[0, coords])[None, :]
        return even + odd, even - odd


@dataclass(frozen=True)
class KernelMachine(Machine):
    """Σ_i a_i k(x, s_i) + b for every column a of the weights."""

    vectors: np.ndarray  # (S, d)
    weights: np.ndarray  # (S, m)
    intercepts: np.ndarray  # (m,)
    gamma: float
    degree: int = 3
    coef0: float = 0.0
    float32: bool = False  # whether float32 rows are scored in float32
    allowance: float = 0.0  # what rounding takes between an output and the label, beyond that of the sum itself

    @property
    def n_outputs(self) -> int:
        return self.weights.shape[1]

    def rescaled(self, slope: float, shift: float, allowance: float) -> Self:
        """slope·f + shift, which the model computes from its f."""
        weights, intercepts = slope * self.weights, slope * self.intercepts + shift
        return replace(self, weights=weights, intercepts=intercepts, allowance=allowance)

    @abstractmethod
    def _values(self, X: np.ndarray) -> np.ndarray:
        """Kernel values, (n, S)."""

    @abstractmethod
    def _gradients(self, X: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Σ_i weights_i ∇k(x, s_i), (n, d), for weights (n, S)."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        blocks = (X[i : i + ROWS].astype(np.float64) for i in range(0, len(X), ROWS))
        parts = [self._values(block) @ self.weights for block in blocks]
        return (np.concatenate(parts) if parts else np.empty((0, self.n_outputs))) + self.intercepts

    def scores_and_gradients(self, X: np.ndarray, weigh: Weigh) -> tuple[np.ndarray, np.ndarray]:
        scores, gradients = np.empty((len(X), self.n_outputs)), np.empty(X.shape)
        for i in range(0, len(X), ROWS):
            block = slice(i, i + ROWS)
            rows = X[block].astype(np.float64)
            values = self._values(rows)
            scores[block] = values @ self.weights + self.intercepts
            gradients[block] = self._gradients(rows, values, weigh(scores[block]) @ self.weights.T)
        return scores, gradients


class Gaussian(KernelMachine):
    """``exp(-γ‖x - s‖²)``."""

    @cached_property
    def _squares(self) -> np.ndarray:
        return (self.vectors * self.vectors).sum(axis=1)

    def _values(self, X: np.ndarray) -> np.ndarray:
        squares = (X * X).sum(axis=1)[:, None] + self._squares
        return np.exp(-self.gamma * np.maximum(squares - 2.0 * (X @ self.vectors.T), 0.0))

    def _gradients(self, X: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        weighted = values * weights
        return 2.0 * self.gamma * (weighted @ self.vectors - weighted.sum(axis=1)[:, None] * X)

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes:
        # k(x ± h e_j, s) = k(x, s) exp(∓2γh(x_j - s_j) - γh²); cosh and sinh of the difference split into
        # products of a factor of x and a factor of s, which makes every answer a matrix product.
        weighted = self._values(X.astype(np.float64)) * self.weights[:, 0]
        at_vectors = 2.0 * self.gamma * h * self.vectors[:, coords]
        cosh_part, sinh_part = weighted @ np.cosh(at_vectors), weighted @ np.sinh(at_vectors)
        at_rows = 2.0 * self.gamma * h * X[:, coords].astype(np.float64)
        cosh_rows, sinh_rows = np.cosh(at_rows), np.sinh(at_rows)
        shrink = np.exp(-self.gamma * np.square(h))
        even = shrink * (cosh_rows * cosh_part - sinh_rows * sinh_part) + self.intercepts[0]
        odd = shrink * (cosh_rows * sinh_part - sinh_rows * cosh_part)
        return even + odd, even - odd


class Polynomial(KernelMachine):
    """``(γ x·s + c)^p``."""

    def _inner(self, X: np.ndarray) -> np.ndarray:
        return self.gamma * (X @ self.vectors.T) + self.coef0

    def _values(self, X: np.ndarray) -> np.ndarray:
        return self._inner(X) ** self.degree

    def _gradients(self, X: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        slopes = self.degree * self.gamma * self._inner(X) ** max(self.degree - 1, 0)
        return (slopes * weights) @ self.vectors

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes:
        inner, shift = self._inner(X.astype(np.float64)), self.gamma * h * self.vectors[:, coords]
        parts = [np.zeros((len(X), len(coords))), np.zeros((len(X), len(coords)))]
        for k in range(self.degree + 1):  # the binomial theorem, even and odd powers of h apart
            parts[k % 2] += comb(self.degree, k) * ((self.weights[:, 0] * inner ** (self.degree - k)) @ shift**k)
        even, odd = parts[0] + self.intercepts[0], parts[1]
        return even + odd, even - odd


class Sigmoid(KernelMachine):
    """``tanh(γ x·s + c)``."""

    def _values(self, X: np.ndarray) -> np.ndarray:
        return np.tanh(self.gamma * (X @ self.vectors.T) + self.coef0)

    def _gradients(self, X: np.ndarray, values: np.ndarray, weights: np.ndarray) -> np.ndarray:
        return (self.gamma * (1.0 - values * values) * weights) @ self.vectors

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes:
        # tanh does not factor, but one coordinate moves every inner product by a known amount.
        inner = self.gamma * (X.astype(np.float64) @ self.vectors.T) + self.coef0
        shift = self.gamma * h * self.vectors[:, coords]
        sides = [[np.tanh(inner + sign * column) @ self.weights[:, 0] for column in shift.T] for sign in (1.0, -1.0)]
        plus, minus = (np.stack(side, axis=1) + self.intercepts[0] for side in sides)
        return plus, minus


class Ours(Machine):
    """A model of ours of two classes: it has ``scores``, ``scores_and_gradients`` and ``probe`` itself."""

    n_outputs = 1

    def __init__(self, model: Any) -> None:
        self.model = model

    @property
    def smooth(self) -> bool:
        return hasattr(self.model, "scores_and_gradients")

    def scores(self, X: np.ndarray) -> np.ndarray:
        return np.asarray(self.model.scores(X), dtype=np.float64)[:, None]

    def scores_and_gradients(self, X: np.ndarray, weigh: Weigh) -> tuple[np.ndarray, np.ndarray]:
        scores, gradients = self.model.scores_and_gradients(X)
        scores = np.asarray(scores, dtype=np.float64)[:, None]
        return scores, weigh(scores) * gradients

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes:
        found: Probes = self.model.probe(X, coords, h)
        return found


@dataclass(frozen=True)
class Stacked(Machine):
    """Machines of one output each, side by side."""

    machines: Sequence[Machine]

    @property
    def n_outputs(self) -> int:
        return len(self.machines)

    @property
    def smooth(self) -> bool:
        return all(one.smooth for one in self.machines)

    def scores(self, X: np.ndarray) -> np.ndarray:
        return np.concatenate([one.scores(X) for one in self.machines], axis=1)

    def scores_and_gradients(self, X: np.ndarray, weigh: Weigh) -> tuple[np.ndarray, np.ndarray]:
        scores = self.scores(X)
        chosen, gradients = weigh(scores), np.zeros(X.shape)
        for place, one in enumerate(self.machines):
            rows = np.flatnonzero(chosen[:, place])
            if len(rows):
                weighed = partial(_given, chosen[rows, place : place + 1])
                gradients[rows] += one.scores_and_gradients(X[rows], weighed)[1]
        return scores, gradients


def _given(coefficients: np.ndarray, scores: np.ndarray) -> np.ndarray:
    """Coefficients that do not depend on the machine's own scores."""
    return coefficients


@dataclass(frozen=True)
class Behind(Machine):
    """A machine behind differentiable steps: the chain rule."""

    steps: Sequence["Step"]
    machine: Machine

    @property
    def n_outputs(self) -> int:
        return self.machine.n_outputs

    @property
    def smooth(self) -> bool:
        return self.machine.smooth

    def _forward(self, X: np.ndarray) -> list[np.ndarray]:
        inputs = [X.astype(np.float64)]
        for step in self.steps:
            inputs.append(step.forward(inputs[-1]))
        return inputs

    def scores(self, X: np.ndarray) -> np.ndarray:
        return self.machine.scores(self._forward(X)[-1])

    def scores_and_gradients(self, X: np.ndarray, weigh: Weigh) -> tuple[np.ndarray, np.ndarray]:
        inputs = self._forward(X)
        scores, gradients = self.machine.scores_and_gradients(inputs[-1], weigh)
        for step, entered in zip(reversed(self.steps), reversed(inputs[:-1])):
            gradients = step.pull_back(entered, gradients)
        return scores, gradients

    def probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> Probes | None:
        # Scaling keeps coordinates apart, so the machine's own probe still answers; a rotation mixes them.
        if not all(isinstance(step, Scale) for step in self.steps):
            return None
        scale = np.prod([step.scale[coords] for step in self.steps], axis=0)  # type: ignore[attr-defined]
        return self.machine.probe(self._forward(X)[-1], coords, h * scale)


class Step(ABC):
    """What is done to the rows before a machine sees them."""

    @abstractmethod
    def forward(self, X: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def pull_back(self, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        """Gradients at what entered the step, from those at what left it."""


@dataclass(frozen=True)
class Scale(Step):
    """``x ↦ scale ∘ x + shift``."""

    scale: np.ndarray  # (d,)
    shift: np.ndarray  # (d,)

    def forward(self, X: np.ndarray) -> np.ndarray:
        return X * self.scale + self.shift

    def pull_back(self, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        return gradients * self.scale


@dataclass(frozen=True)
class Project(Step):
    """``x ↦ x A + b``: PCA, whitened or not, and feature selectors."""

    matrix: np.ndarray  # (d, d')
    shift: np.ndarray  # (d',)

    def forward(self, X: np.ndarray) -> np.ndarray:
        return X @ self.matrix + self.shift

    def pull_back(self, X: np.ndarray, gradients: np.ndarray) -> np.ndarray:
        return gradients @ self.matrix.T


class Normalise(Step):
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
