"""The whole attacked set: clean scores, points of the other class, counts and progress."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .anchors import Anchors, guesses
from .problem import Found, Problem, misclassified
from .validation import check_scores

Observer = Callable[..., None]


class Scene:
    """The attacked set as the whole call sees it: validated rows, clean scores, where to report."""

    def __init__(
        self,
        target: Any,
        X: np.ndarray,
        signs: np.ndarray,
        scores: np.ndarray,
        observer: Observer | None,
        reference: np.ndarray | None,
    ) -> None:
        self.target, self.X, self.signs, self.scores = target, X, signs, scores
        # Gradients of the clean scores, and how far the scores that came with them are from the model's own.
        self.gradients: np.ndarray | None = None
        self.doubt = 0.0
        self.observer, self.reference = observer, reference
        self.already = misclassified(scores, signs)
        self.cushion = 1e-6 * float(np.abs(scores).max())
        self.notes: list[str] = []

    @property
    def cushion_of_gradients(self) -> float:
        """Margins beyond this stand by the scores that come with gradients; infinite where these are other scores."""
        if self.gradients is None or self.doubt > 1e-3 * float(np.abs(self.scores).max()):
            return float("inf")
        return max(self.cushion, 8.0 * self.doubt)

    def anchors(self, box: tuple[float, float], seed: int) -> Anchors:
        """Points of either class: the attacked set's own, then the reference's, then guesses."""
        points, scores = self.X, self.scores
        if self.reference is not None:
            points = np.concatenate([points, self.reference])
            scores = np.concatenate([scores, check_scores(self.target.scores(self.reference), len(self.reference))])
        anchors = Anchors(points, scores)
        wanted = {int(sign) for sign in np.unique(self.signs[~self.already])}
        if all(anchors.exist(sign) for sign in wanted):
            return anchors
        tried = guesses(self.X, box, seed)
        more = check_scores(self.target.scores(tried), len(tried))
        anchors = Anchors(np.concatenate([points, tried]), np.concatenate([scores, more]))
        if not all(anchors.exist(sign) for sign in wanted):
            self.notes.append(
                "the model predicts one class for every point tried, so there may be no adversarial example: "
                "pass points of the other class as reference"
            )
        return anchors


class Search:
    """Counts and per-example records of a search, over all rows of X."""

    def __init__(self, n: int) -> None:
        self.queries = np.zeros(n, dtype=np.int64)
        self.gradient_evaluations = np.zeros(n, dtype=np.int64)
        self.trace: dict[str, np.ndarray] = {}

    def record(self, rows: np.ndarray, problem: Problem, found: Found) -> None:
        self.queries[rows] = problem.queries
        self.gradient_evaluations[rows] = problem.gradient_evaluations
        for key, values in found.trace.items():
            column = self.trace.setdefault(key, np.zeros(len(self.queries), dtype=values.dtype))
            column[rows] = values

    def carry(self, spent: Search, broken: np.ndarray) -> None:
        """Add the cost of the smaller balls, and take over the records of the rows they broke."""
        self.queries += spent.queries
        self.gradient_evaluations += spent.gradient_evaluations
        for key, values in spent.trace.items():
            column = self.trace.setdefault(key, np.zeros_like(values))
            column[broken] = values[broken]


class Progress:
    """Turns chunk-wise progress into at most a hundred calls of an observer."""

    def __init__(self, observer: Observer | None, n: int, broken: int) -> None:
        self._observer, self._n = observer, n
        self._last, self._broken = -1, broken

    def chunk(self, start: float, share: float) -> Callable[[float, int], None]:
        before = self._broken

        def report(fraction: float, broken: int) -> None:
            self._broken = before + broken
            self._emit(int(100 * (start + share * min(fraction, 1.0))))

        return report

    def finish(self) -> None:
        self._emit(100)

    def _emit(self, percent: int) -> None:
        if self._observer is None or percent <= self._last:
            return
        self._last = percent
        self._observer("attack", percent, 100, robust_accuracy=1.0 - self._broken / self._n)
