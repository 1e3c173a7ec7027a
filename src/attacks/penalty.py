"""The weight c of the penalty ``‖x' - x‖² + c · max(margin + confidence, 0)``, searched per example."""

from __future__ import annotations

import numpy as np


class ConstantSearch:
    """Bisection over c: ten times larger until it succeeds, then between the largest failure and smallest success."""

    def __init__(self, initial: np.ndarray) -> None:
        self.c = initial.astype(np.float64)
        self._lower = np.zeros_like(self.c)
        self._upper = np.full_like(self.c, np.inf)

    def update(self, index: np.ndarray, succeeded: np.ndarray) -> None:
        """Move the constants of the rows `index` after a round with them."""
        c = self.c[index]
        self._upper[index] = np.where(succeeded, np.minimum(self._upper[index], c), self._upper[index])
        self._lower[index] = np.where(succeeded, self._lower[index], np.maximum(self._lower[index], c))
        middle = 0.5 * (self._lower[index] + self._upper[index])
        self.c[index] = np.where(np.isinf(self._upper[index]), 10.0 * c, middle)


class EarlyAbort:
    """Which rows have stopped getting better: compares the best loss of a window with the one before."""

    def __init__(self, n: int, window: int, factor: float) -> None:
        self._window, self._factor = window, factor
        self._best, self._before = np.full(n, np.inf), np.full(n, np.inf)

    def stalled(self, step: int, losses: np.ndarray) -> np.ndarray:
        """Take the losses of a step; (n,) bool, true for rows to leave."""
        np.minimum(self._best, losses, out=self._best)
        if step == 0 or step % self._window:
            return np.zeros(len(losses), dtype=bool)
        stalled = self._best > self._factor * self._before
        self._before = self._best.copy()
        return stalled

    def keep(self, rows: np.ndarray) -> None:
        self._best, self._before = self._best[rows], self._before[rows]
