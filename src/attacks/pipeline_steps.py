"""Differentiable preprocessing in front of a classifier: the chain rule through a Pipeline."""

from __future__ import annotations

from typing import Any

import numpy as np

from .closed_forms import ClosedForm


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


class ChainForm:
    """A classifier behind differentiable steps: the chain rule."""

    def __init__(self, steps: list[Any], form: ClosedForm) -> None:
        self.steps, self.form = steps, form
        # Scaling keeps coordinates apart, so the classifier's own probe still answers; a rotation mixes them.
        self.probe = self._scaled_probe if all(isinstance(step, AffineStep) for step in steps) else None

    def _forward(self, X: np.ndarray) -> list[np.ndarray]:
        inputs = [X.astype(np.float64)]
        for step in self.steps:
            inputs.append(step.forward(inputs[-1]))
        return inputs

    def scores(self, X: np.ndarray) -> np.ndarray:
        return self.form.scores(self._forward(X)[-1])

    def scores_and_gradients(self, X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        inputs = self._forward(X)
        scores, gradients = self.form.scores_and_gradients(inputs[-1])
        for step, entered in zip(reversed(self.steps), reversed(inputs[:-1])):
            gradients = step.pull_back(entered, gradients)
        return scores, gradients

    def _scaled_probe(self, X: np.ndarray, coords: np.ndarray, h: Any) -> tuple[np.ndarray, np.ndarray]:
        scale = np.prod([step.scale[coords] for step in self.steps], axis=0)
        return self.form.probe(self._forward(X)[-1], coords, h * scale)
