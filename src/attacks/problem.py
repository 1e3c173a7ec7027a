"""The attacked set: what the whole call knows of it, and what one `run` sees of it, with an oracle that counts."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch

from attacks.anchors import Anchors, guesses
from attacks.geometry import Limit, rows_of
from attacks.validation import check_scores

Observer = Callable[..., None]


def misclassified(scores: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """Rows whose predicted class is wrong; a score of exactly 0 is ``classes_[0]``, as in scikit-learn."""
    return (scores > 0) != (signs > 0)


@dataclass(frozen=True, eq=False)
class Request:
    """The rows to attack and how, as an attack is called with them."""

    X: np.ndarray
    y: np.ndarray
    epsilons: list[float] | None = None
    observer: Observer | None = None
    reference: np.ndarray | None = None
    targets: np.ndarray | None = None


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
    box : pair of floats or of arrays (n, d)
        Smallest and largest values of the features.
    epsilon : float or None
        Radius of the ball, None for a minimum-norm attack.
    tolerance : float
        Margins within this of zero may change sign with the rounding of another batch shape.
    anchors : Anchors
        Known points of the other class.
    progress : callable (fraction, broken)
    gradients : ndarray (n, d), optional
        Gradients of the clean points' scores, where they are known.
    """

    target: Any
    X: np.ndarray
    signs: np.ndarray
    margins: np.ndarray
    rows: np.ndarray
    box: tuple[Limit, Limit]
    epsilon: float | None
    tolerance: float
    anchors: Anchors
    progress: Callable[[float, int], None]
    gradients: np.ndarray | None = None
    queries: np.ndarray = field(init=False)
    gradient_evaluations: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.queries = np.zeros(len(self.X), dtype=np.int64)
        self.gradient_evaluations = np.zeros(len(self.X), dtype=np.int64)

    @property
    def radius(self) -> float:
        """The ball's radius, for the attacks that have one."""
        return float("inf") if self.epsilon is None else self.epsilon

    def limits(self, index: np.ndarray) -> tuple[Limit, Limit]:
        """Smallest and largest values the features of these rows may take."""
        return rows_of(self.box[0], index), rows_of(self.box[1], index)

    def by_known_side(self, index: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
        """(sign, places in `index`) of the rows that a point of the other class is known for."""
        for sign in (-1, 1):
            place = np.flatnonzero(self.signs[index] == sign)
            if len(place) and self.anchors.exist(sign):
                yield sign, place

    def take(self, index: np.ndarray, **changes: Any) -> "Problem":
        """Some of the rows as a problem of their own; :meth:`charge` brings its counts back."""
        mine = {name: getattr(self, name)[index] for name in ("X", "signs", "margins", "rows")}
        gradients = None if self.gradients is None else self.gradients[index]
        return replace(self, **mine, gradients=gradients, box=self.limits(index), **changes)

    def charge(self, index: np.ndarray, part: "Problem") -> None:
        """Add what was spent on a part of the rows."""
        self.queries[index] += part.queries
        self.gradient_evaluations[index] += part.gradient_evaluations

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

    def broken(self, margins: np.ndarray, index: np.ndarray) -> np.ndarray:
        """Whether these margins mean a wrong class."""
        return (margins < 0) | ((margins == 0) & (self.signs[index] > 0))


class Probing:
    """Queries about rows of a problem that move a few coordinates at a time, and about ``x ± h e_j``.

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
class RunResult:
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


@dataclass(eq=False)
class AttackState:
    """The attacked set as the whole call sees it: validated rows, clean scores, where to report."""

    target: Any
    X: np.ndarray
    signs: np.ndarray
    scores: np.ndarray
    observer: Observer | None
    reference: np.ndarray | None
    limits: tuple[Limit, Limit]
    # Gradients of the clean scores, and how far the scores that came with them are from the model's own.
    gradients: np.ndarray | None = None
    score_error: float = 0.0
    notes: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.already = misclassified(self.scores, self.signs)
        self.tolerance = 1e-6 * float(np.abs(self.scores).max())

    @property
    def gradient_tolerance(self) -> float:
        """Margins beyond this stand by the scores that come with gradients; infinite where these are other scores."""
        if self.gradients is None or self.score_error > 1e-3 * float(np.abs(self.scores).max()):
            return float("inf")
        return max(self.tolerance, 8.0 * self.score_error)

    def scores_at(self, points: np.ndarray) -> np.ndarray:
        """The model's scores, checked."""
        return check_scores(self.target.scores(points), len(points))

    def anchors(self, box: tuple[Any, Any], seed: int) -> Anchors:
        """Points of either class: the attacked set's own, then the reference's, then guesses."""
        points, scores = self.X, self.scores
        if self.reference is not None:
            points = np.concatenate([points, self.reference])
            scores = np.concatenate([scores, self.scores_at(self.reference)])
        anchors = Anchors(points, scores)
        wanted = {int(sign) for sign in np.unique(self.signs[~self.already])}
        if all(anchors.exist(sign) for sign in wanted):
            return anchors
        tried = guesses(self.X, box, seed)
        anchors = Anchors(np.concatenate([points, tried]), np.concatenate([scores, self.scores_at(tried)]))
        if not all(anchors.exist(sign) for sign in wanted):
            self.notes.append(
                "the model predicts one class for every point tried, so there may be no adversarial example: "
                "pass points of the other class as reference"
            )
        return anchors


class Records:
    """Counts and per-example records of a search, over all rows of X."""

    def __init__(self, n: int) -> None:
        self.queries = np.zeros(n, dtype=np.int64)
        self.gradient_evaluations = np.zeros(n, dtype=np.int64)
        # Where no row was attacked there is nothing of any kind.
        self.trace: dict[str, np.ndarray] = defaultdict(lambda: np.zeros(n, dtype=np.int64))

    def record(self, rows: np.ndarray, problem: Problem, found: RunResult) -> None:
        self.queries[rows] = problem.queries
        self.gradient_evaluations[rows] = problem.gradient_evaluations
        for key, values in found.trace.items():
            column = self.trace.setdefault(key, np.zeros(len(self.queries), dtype=values.dtype))
            column[rows] = values

    def carry(self, spent: "Records", broken: np.ndarray) -> None:
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


def shared(observer: Observer | None, position: int, count: int) -> Observer | None:
    """What one of `count` searches in a row may tell an observer: its part of the whole."""
    if observer is None:
        return None

    def watch(event: str, step: int, total: int, **values: Any) -> None:
        observer(event, position * total + step, count * total, **values)

    return watch
