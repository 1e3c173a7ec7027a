"""Known points of either class: where a search may end, whatever the scores do on the way."""

from typing import Any

import numpy as np

from attacks.geometry import row_norms

MOST = 4096


class Anchors:
    """Known points the model puts on either side.

    An RBF score vanishes far from the data, so an unbounded attack can wander off to where the score is tiny and its
    sign never changes. A segment that ends in the other class has to cross the boundary. Of many points evenly spaced
    subsets of 4096 per side are kept.
    """

    def __init__(self, points: np.ndarray, scores: np.ndarray) -> None:
        self._sides: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        for sign in (-1, 1):
            side = np.flatnonzero((scores > 0) == (sign > 0))
            if len(side) > MOST:
                side = side[np.linspace(0, len(side) - 1, MOST).astype(int)]
            self._sides[sign] = (points[side], np.abs(scores[side]))

    def exist(self, sign: int) -> bool:
        """Whether a point predicted as the opposite of `sign` is known."""
        return len(self._sides[-sign][0]) > 0

    def distances(self, X: np.ndarray, signs: np.ndarray) -> np.ndarray:
        """L2 distance from every row to the nearest point of the other class; a twentieth of √d when none is known."""
        distances = np.full(len(X), 0.05 * np.sqrt(X.shape[1]))
        for sign in (-1, 1):
            rows = np.flatnonzero(signs == sign)
            if len(rows) and self.exist(sign):
                distances[rows] = row_norms(self.nearest(X[rows], sign, 1)[:, 0] - X[rows])
        return distances

    def nearest(self, X: np.ndarray, sign: int, k: int, depth: float = 0.0) -> np.ndarray:
        """The nearest points on the other side of rows labelled `sign`, nearest first: (n, k', d) with k' <= k.

        Points at least `depth` deep in the other class are used when there are any.
        """
        points, depths = self._sides[-sign]
        if (depths >= depth).any():
            points = points[depths >= depth]
        k = min(k, len(points))
        squares = np.einsum("ij,ij->i", points, points) - 2.0 * (X @ points.T)
        order = np.argpartition(squares, k - 1, axis=1)[:, :k]
        by_distance = np.argsort(np.take_along_axis(squares, order, axis=1), axis=1, kind="stable")
        return points[np.take_along_axis(order, by_distance, axis=1)]


def guesses(X: np.ndarray, box: tuple[Any, Any], seed: int, count: int = 64) -> np.ndarray:
    """Points to try when no point of the other class is known: extremes, negatives of the images, noise."""
    lowest, highest = (np.clip(np.asarray(edge, dtype=float), X.min() - 1.0, X.max() + 1.0) for edge in box)
    d = X.shape[1]
    rng: Any = np.random.default_rng([seed, 7])
    flat = np.linspace(lowest + np.zeros(d), highest + np.zeros(d), 5)
    negatives = lowest + highest - X[:count]
    noise = rng.uniform(lowest, highest, size=(count, d))
    return np.clip(np.concatenate([flat, negatives, noise]), *box).astype(X.dtype)
