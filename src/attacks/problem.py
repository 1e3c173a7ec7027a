"""What one `run` of an attack sees: some rows to break, and an oracle that counts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .anchors import Anchors
from .validation import check_scores


def misclassified(scores: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Rows whose predicted class is wrong; a score of exactly 0 is ``classes_[0]``, as in scikit-learn."""
    return (scores > 0) != (signs > 0)


@dataclass(eq=False)
class Problem:
    """A chunk of correctly classified rows.

    Attributes
    ----------
    X : ndarray (n, d)
        Clean points in the attack's dtype.
    signs : int ndarray (n,)
        The margin of a point is its sign times the model's score.
    margins : float64 ndarray (n,)
        Margins of the clean points.
    rows : int ndarray (n,)
        Positions in the attacked set: seeds per example are made of these, so results don't depend on the chunks.
    box : (float, float)
    epsilon : float or None
        Radius of the ball, None for a minimum-norm attack.
    cushion : float
        Margins within this of zero may change sign with the rounding of another batch shape.
    anchors : Anchors
        Known points of the other class.
    progress : callable (fraction, broken)
    gradients : ndarray (n, d), optional
        Gradients of the clean points' scores, where they are known.
    trusted : bool
        The scores that come with gradients were seen to be the model's own.
    """

    target: Any
    X: np.ndarray
    signs: np.ndarray
    margins: np.ndarray
    rows: np.ndarray
    box: tuple[float, float]
    epsilon: float | None
    cushion: float
    anchors: Anchors
    progress: Callable[[float, int], None]
    gradients: np.ndarray | None = None
    trusted: bool = False
    queries: np.ndarray = field(init=False)
    gradient_evaluations: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.queries = np.zeros(len(self.X), dtype=np.int64)
        self.gradient_evaluations = np.zeros(len(self.X), dtype=np.int64)

    @property
    def radius(self) -> float:
        """The ball's radius, for the attacks that have one."""
        return float("inf") if self.epsilon is None else self.epsilon

    def margins_at(self, points: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Margins of `points`, which stand for the rows `index` of this problem; one query each."""
        np.add.at(self.queries, index, 1)
        return self.signs[index] * check_scores(self.target.scores(points), len(points))

    def margins_and_gradients(self, points: np.ndarray, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Margins and their gradients; one gradient evaluation each."""
        self.gradient_evaluations[index] += 1
        scores, gradients = self.target.scores_and_gradients(points)
        signs = self.signs[index]
        return signs * check_scores(scores, len(points)), flipped(gradients, signs, points.dtype)

    def clean_margins_and_gradients(self, index: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The same at the clean points themselves, free of charge where they are known."""
        if self.gradients is None:
            return self.margins_and_gradients(self.X[index], index)
        self.gradient_evaluations[index] += 1
        return self.margins[index], flipped(self.gradients[index], self.signs[index], self.X.dtype)

    def prober(self) -> Probing:
        """Asks about ``x ± h e_j``, for rows that move a few coordinates at a time."""
        return Probing(self)

    def broken(self, margins: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Whether these margins mean a wrong class."""
        return (margins < 0) | ((margins == 0) & (self.signs[index] > 0))


class Probing:
    """Coordinate-wise queries about some rows of a problem.

    A model that offers ``prober()`` may remember what the last answers were made of; one that has ``probe`` alone is
    asked anew each time.
    """

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        # Asked of the class: what stands in for another object must not hand out that object's answers.
        offers = callable(getattr(type(problem.target), "prober", None))
        self._memory = problem.target.prober() if offers else None

    def __call__(
        self, points: np.ndarray, index: np.ndarray, coords: np.ndarray, h: float
    ) -> tuple[np.ndarray, np.ndarray]:
        """Margins at ``x + h e_j`` and ``x - h e_j`` for j in `coords`; two queries per coordinate."""
        self._problem.queries[index] += 2 * len(coords)
        asked = self._problem.target if self._memory is None else self._memory
        plus, minus = asked.probe(points, coords, h)
        if not (np.isfinite(plus).all() and np.isfinite(minus).all()):
            raise ValueError(f"model gives scores that are NaN or infinite within h={h} of the points it is probed at")
        signs = self._problem.signs[index][:, None]
        return signs * plus, signs * minus

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows, given as a mask, will be asked about from now on."""
        if self._memory is not None:
            self._memory.keep(rows)


def flipped(gradients: np.ndarray, signs: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Gradients of margins from those of scores: a fresh array, for the attacks write over it."""
    wanted = torch.from_numpy(np.ascontiguousarray(gradients, dtype=dtype))
    return torch.mul(wanted, torch.from_numpy(signs.astype(dtype))[:, None]).numpy()


@dataclass(eq=False)
class Found:
    """What a `run` returns.

    Attributes
    ----------
    points : ndarray (n, d)
        The best point per row; x itself where a minimum-norm attack found nothing.
    trace : dict of arrays (n,)
        Per-example records that become `history` once the chunks are put together.
    margins : float64 ndarray (n,), optional
        Margins the oracle gave for exactly these points. The judgement asks again about every row they show broken or
        nearly so, and about all rows where there are none.
    """

    points: np.ndarray
    trace: dict[str, np.ndarray] = field(default_factory=dict)
    margins: np.ndarray | None = None
