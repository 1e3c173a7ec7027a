"""Anything that can be attacked, behind one protocol."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

import numpy as np

from .sklearn_targets import closed_form

ROWS_PER_QUERY = 4096


@runtime_checkable
class Target(Protocol):
    """What an attack needs from a model: numpy in, numpy out."""

    def scores(self, X: np.ndarray) -> np.ndarray:
        """Decision values, (n,) float64; positive means ``classes_[1]``."""

    def probe(self, X: np.ndarray, coords: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores at ``x + h e_j`` and at ``x - h e_j`` for every j in `coords`: two (n, q) float64 arrays."""


class AdaptedTarget:
    """A target made of plain functions.

    Parameters
    ----------
    scores : callable (n, d) -> (n,)
    classes : array of two labels, or None when labels are -1 and +1
    gradients : callable (n, d) -> ((n,), (n, d)), optional
        Scores and their gradients; without it only black-box attacks apply.
    probe : callable, optional
        Exact answers to many one-coordinate queries at once; without it they are asked one by one, in batches.
    """

    def __init__(
        self,
        scores: Callable[[np.ndarray], Any],
        classes: np.ndarray | None = None,
        gradients: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
        probe: Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray]] | None = None,
    ) -> None:
        self._scores = scores
        self._probe = probe
        if classes is not None:
            self.classes_ = np.asarray(classes)
        if gradients is not None:
            self.scores_and_gradients = gradients

    def scores(self, X: np.ndarray) -> np.ndarray:
        values = [np.asarray(self._scores(X[i : i + ROWS_PER_QUERY])) for i in range(0, len(X), ROWS_PER_QUERY)]
        scores = np.concatenate(values) if values else np.empty(0)
        if scores.shape not in ((len(X),), (len(X), 1)):
            raise ValueError(f"model must give one score per row, got shape {scores.shape} for {len(X)} rows")
        return scores.reshape(len(X)).astype(np.float64)

    def probe(self, X: np.ndarray, coords: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        if self._probe is not None:
            return self._probe(X, coords, h)
        return batched_queries(self.scores, X, coords, h)


def batched_queries(
    scores: Callable[[np.ndarray], np.ndarray],
    X: np.ndarray,
    coords: np.ndarray,
    h: float,
    rows_per_query: int = ROWS_PER_QUERY,
) -> tuple[np.ndarray, np.ndarray]:
    """Answer a probe by asking for every perturbed row, at most `rows_per_query` at a time."""
    n, q = len(X), len(coords)
    answers = np.empty((2, n * q))
    base = np.asarray(X, dtype=np.float64)
    for start in range(0, n * q, rows_per_query):
        index = np.arange(start, min(start + rows_per_query, n * q))
        row, column = index // q, np.asarray(coords)[index % q]
        for side, step in enumerate((h, -h)):
            queries = base[row]
            queries[np.arange(len(index)), column] += step
            answers[side, index] = scores(queries)
    return answers[0].reshape(n, q), answers[1].reshape(n, q)


def as_target(model: Any) -> Any:
    """Adapt `model` to the attacks' protocol.

    Objects with ``scores``, ``scores_and_gradients`` and ``probe`` pass through. Fitted scikit-learn SVC, NuSVC,
    linear classifiers, Pipelines of scalers, PCA and selectors that end in one of them, and searches over those get
    closed-form gradients. Anything else with ``scores`` or ``decision_function``, and any function of X, can be
    attacked by the black-box attacks only.
    """
    if isinstance(model, type):
        raise ValueError(f"model must be a fitted object, got the class {model.__name__}")
    classes = getattr(model, "classes_", None)
    if classes is not None and len(classes) != 2:
        raise ValueError(f"model must be a binary classifier, got {len(classes)} classes")
    if callable(getattr(model, "scores", None)):
        if callable(getattr(model, "probe", None)) and callable(getattr(model, "scores_and_gradients", None)):
            return model
        return AdaptedTarget(
            model.scores, classes, getattr(model, "scores_and_gradients", None), getattr(model, "probe", None)
        )
    form = closed_form(model)
    if form is not None:
        return AdaptedTarget(form.scores, classes, form.scores_and_gradients, form.probe)
    if callable(getattr(model, "decision_function", None)):
        return AdaptedTarget(model.decision_function, classes)
    if callable(model):
        return AdaptedTarget(model)
    raise ValueError(f"model must have scores or decision_function, or be a function of X; got {type(model).__name__}")


def has_gradients(target: Any) -> bool:
    """Whether white-box attacks apply."""
    return callable(getattr(target, "scores_and_gradients", None))
