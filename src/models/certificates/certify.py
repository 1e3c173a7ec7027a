"""Certify any fitted model: cheap bounds for all points, costly ones for what they leave open."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from models.certificates.contest import Contest, Quick
from models.certificates.forms import contest_of
from models.certificates.region import Region
from models.distances import dense
from models.threat import Box, Threat, box_of

Observer = Callable[..., None]

# Rows at once, and the most rounds of a bisection, which ends when a radius is known to one part in ten thousand.
_ROWS, _ROUNDS, _CLOSE = 1024, 40, 1 + 1e-4


@dataclass(frozen=True)
class Question:
    """Rows, the numbers of their labels, and the threat, put to how a model decides."""

    contest: Contest
    X: np.ndarray  # (n, d)
    numbers: np.ndarray  # (n,)
    right: np.ndarray  # (n,), where the model itself predicts the label: no other row is certified, whatever is proved
    norm: str
    box: Box

    @classmethod
    def of(cls, model: Any, X: Any, y: Any, norm: str, box: Box) -> "Question":
        """What is asked of a fitted model; one of ours checks the rows as it does before a prediction."""
        given = X
        if hasattr(model, "_validate_rows") and not isinstance(model, type):
            X = model._validate_rows(X)
        X = dense(X)
        if X.dtype == np.float16:
            raise ValueError("X is float16, in which scalers compute: no certificate is known; give float32 or float64")
        contest = contest_of(model, X.dtype == np.float32)
        numbers = contest.numbers(y)
        if X.ndim != 2:
            raise ValueError(f"X must have two dimensions, got {X.ndim}")
        if len(numbers) != len(X):
            raise ValueError(f"X has {len(X)} rows, but y has {len(numbers)} labels")
        right = np.ones(len(X), dtype=bool)
        if len(X) and hasattr(model, "predict"):
            right = contest.numbers(model.predict(given)) == numbers
        return cls(contest, X, numbers, right, norm, box)

    def __len__(self) -> int:
        return len(self.X)

    def of_rows(self, rows: Any) -> "Question":
        """The same about some of the rows."""
        part = {"X": self.X[rows], "numbers": self.numbers[rows], "right": self.right[rows]}
        return replace(self, box=box_of(self.box, rows), **part)

    def region(self, epsilon: float | np.ndarray) -> Region:
        """Where the model may see the points."""
        return self.contest.region(self.X, epsilon, self.norm, self.box)


def certify(
    model: Any,
    X: Any,
    y: Any,
    epsilon: float | Threat,
    norm: str = "l2",
    box: Box = (0.0, 1.0),
    seconds: float | None = None,
    observer: Observer | None = None,
) -> np.ndarray:
    """Whether no point of the box within `epsilon` of a row changes its label y, shape (n,), bool.

    False where the label is wrong already, and where it could not be proved: an attack may tell the two apart
    (``attacks.bracket``).

    Parameters
    ----------
    model : fitted model
        One of ours, or any that ``models.decisions`` can read.
    X : array of shape (n, d), inside the box
    y : array of shape (n,)
        Labels out of ``model.classes_``.
    epsilon : float or Threat
        Radius in `norm`, in units of X; or the whole threat, which then says norm, box and constraints, too.
    norm : {"l2", "linf"}
    box : (low, high) or None
        Smallest and largest value: numbers, arrays of shape (d,), or of shape (n, d) where rows differ, as with
        features that may not change or only grow (``attacks.Constraints.region``).
    seconds : float, optional
        When to stop trying: the cheapest bound is always evaluated, what is then still open counts as not certified.
    observer : callable, optional
        ``observer("certify", done, n, certified=)``, where `done` counts decided points.
    """
    if isinstance(epsilon, Threat):
        threat = epsilon
        epsilon, norm, box = threat.epsilon, threat.norm, threat.limits(dense(X))
    return certified(Question.of(model, X, y, norm, box), epsilon, seconds, observer)


def certified(
    asked: Question, epsilon: float | np.ndarray, seconds: float | None, observer: Observer | None = None
) -> np.ndarray:
    """`certify` at a radius of all rows or of each."""
    run = _Run(asked.contest, asked.right, seconds, observer)
    sizes = np.broadcast_to(np.asarray(epsilon, dtype=np.float64), (len(asked),))
    # The cheap bound of everything first, then the next one, so that running out of time costs the dearest proofs.
    for stage in range(1 + max(len(form.stages) for form in asked.contest.forms)):
        for start in range(0, len(asked), _ROWS):
            rows = np.flatnonzero(run.undecided[start : start + _ROWS]) + start
            if len(rows) and (stage == 0 or not run.late):
                part = asked.of_rows(rows)
                run.stage(stage, rows, part.region(sizes[rows]), part.numbers)
    run.report(final=True)
    return run.certified


class _Run:
    """Which comparisons of which rows are still open."""

    def __init__(self, contest: Contest, right: np.ndarray, seconds: float | None, observer: Observer | None):
        self.contest, self.observer = contest, observer
        self.until = np.inf if seconds is None else time.perf_counter() + seconds
        n_rows, rivals = len(right), max(len(comparisons) for comparisons in contest.comparisons)
        self.open = np.ones((n_rows, rivals), dtype=bool)
        self.margins = np.full((n_rows, rivals), np.inf)
        self.tried = np.zeros((n_rows, rivals), dtype=int)  # how many of a comparison's stages
        self.lost = ~right
        self._said = 0.0

    @property
    def late(self) -> bool:
        return time.perf_counter() > self.until

    @property
    def undecided(self) -> np.ndarray:
        return ~self.lost & self.open.any(1)

    @property
    def certified(self) -> np.ndarray:
        return ~self.lost & ~self.open.any(1)

    def stage(self, number: int, rows: np.ndarray, where: Region, labels: np.ndarray) -> None:
        """One proof for the open comparisons of these rows: the cheap ones many rows at once, the others row by row."""
        if number and not self.contest.is_batched(number):
            return self._one_by_one(number, rows, where, labels)
        for place in range(self.open.shape[1]):
            for form_number, members in self._forms_at(place, labels).items():
                form = self.contest.forms[form_number]
                if number > len(form.stages):
                    continue
                mine = np.flatnonzero(np.isin(labels, list(members)))
                asked = mine[self.open[rows[mine], place] & ~self.lost[rows[mine]]]
                prove, at_once = form.stages[number - 1] if number else (None, _ROWS)
                for start in range(0, len(asked), at_once):
                    if prove is not None and self.late:
                        return
                    part = asked[start : start + at_once]
                    signs = np.array([members[label] for label in labels[part]])
                    if prove is not None:
                        proved = prove(where.take(part), signs)
                    else:
                        margins, proves = form.quick(where.X[part], signs)
                        self.margins[rows[part], place] = margins
                        self.lost[rows[part]] |= ~(margins > 0)
                        proved = proves(where.take(part))
                    self.open[rows[part], place] = ~proved
                    self.tried[rows[part], place] = number
                    self.report()

    def _forms_at(self, place: int, labels: np.ndarray) -> dict[int, dict[int, float]]:
        """The forms of the classes' comparisons number `place`, each with the classes it serves and their signs.

        Both classes of a machine of two share its form, and what a proof prepares for it.
        """
        found: dict[int, dict[int, float]] = {}
        for label in np.unique(labels).tolist():
            for form_number, sign in self.contest.comparisons[label][place : place + 1]:
                found.setdefault(form_number, {})[label] = sign
        return found

    def _one_by_one(self, number: int, rows: np.ndarray, where: Region, labels: np.ndarray) -> None:
        """The proofs up to this one for one row after another, the likeliest first.

        A row counts only with all its comparisons, so the one with the nearest rival comes first: while that one is
        open the others can wait, and time is spent on whole rows.
        """
        nearest = np.where(self.open[rows], self.margins[rows], np.inf).min(1)
        for place in np.argsort(-nearest):
            row = rows[place]
            comparisons = self.contest.comparisons[labels[place]]
            for rival in np.argsort(self.margins[row])[: len(comparisons)]:
                form_number, sign = comparisons[rival]
                stages = self.contest.forms[form_number].stages
                while self.open[row, rival] and self.tried[row, rival] < min(number, len(stages)):
                    if self.late:
                        return
                    prove, _ = stages[self.tried[row, rival]]
                    self.open[row, rival] = not prove(where.take([place]), np.array([sign]))[0]
                    self.tried[row, rival] += 1
                if self.open[row, rival]:
                    break
            self.report()

    def report(self, final: bool = False) -> None:
        now = time.perf_counter()
        if self.observer is not None and (final or now > self._said + 0.2):
            self._said = now
            certified = self.certified
            done = len(certified) if final else int((certified | self.lost).sum())
            self.observer("certify", done, len(certified), certified=float(certified.mean()) if len(certified) else 0.0)


def certified_radius(
    model: Any,
    X: Any,
    y: Any,
    norm: str = "l2",
    box: Box = None,
    seconds: float | None = 0.0,
    observer: Observer | None = None,
) -> np.ndarray:
    """Radius in `norm` within which the label of each row cannot change, shape (n,).

    0 where the label y is wrong already, ``inf`` where no point of the box has another label. Found by bisection: a
    proof at a radius covers all smaller ones, so every radius that passes counts.

    Parameters
    ----------
    seconds : float, optional
        For the dearer proofs, which search on from the radius of the cheapest to within 3 %; none by default, and as
        long as it takes if None. Whenever they stop, what they have proved holds.
    """
    asked = Question.of(model, X, y, norm, box)
    starts = range(0, len(asked), _ROWS)
    found = [np.zeros(0), *(_radii(asked.of_rows(slice(start, start + _ROWS))) for start in starts)]
    low, high = np.concatenate(found), np.full(len(asked), np.inf)
    if seconds == 0 or not any(form.stages for form in asked.contest.forms):
        return low
    # The radii of the cheapest bound, doubled while the dearer ones hold, then bisected.
    until = None if seconds is None else time.perf_counter() + seconds
    for _ in range(24):
        rows = np.flatnonzero((low > 0) & np.isfinite(low) & (high > 1.03 * low))
        left = None if until is None else until - time.perf_counter()
        if len(rows) == 0 or (left is not None and left <= 0):
            break
        tried = np.where(np.isfinite(high[rows]), 0.5 * (low[rows] + high[rows]), 2 * low[rows])
        passed = certified(asked.of_rows(rows), tried, left, observer)
        low[rows], high[rows] = np.where(passed, tried, low[rows]), np.where(passed, high[rows], tried)
    return low


def _radii(asked: Question) -> np.ndarray:
    """By the cheapest bound."""
    found = np.zeros(len(asked))
    for label in np.unique(asked.numbers):
        rows = np.flatnonzero(asked.numbers == label)
        mine = asked.of_rows(rows)
        X = np.asarray(mine.X, dtype=np.float64)
        comparisons = [
            (mine.contest.forms[number], np.full(len(rows), sign)) for number, sign in mine.contest.comparisons[label]
        ]
        quick = [form.quick(X, signs) for form, signs in comparisons]
        right = mine.right & np.all([one.margins > 0 for one in quick], axis=0)

        def holds(radius: np.ndarray, mine: Question = mine, quick: list[Quick] = quick) -> np.ndarray:
            where = mine.region(radius)
            return np.all([one.proves(where) for one in quick], axis=0)

        found[rows] = np.where(right, _largest(holds, _widest(X, mine.box), right), 0.0)
    return found


def _widest(X: np.ndarray, box: Box) -> np.ndarray:
    """A radius no point of the box is beyond, in either norm; without a box one that certifies as good as nothing."""
    if box is None:
        return np.full(len(X), 1e6 * (1 + np.abs(X).max(initial=0.0)))
    low, high = (np.asarray(edge, dtype=np.float64) for edge in box)
    return np.linalg.norm(np.broadcast_to(high - low, X.shape), axis=1) * (1 + 1e-9)


def _largest(holds: Callable[[np.ndarray], np.ndarray], widest: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """A radius that holds, per row wanted, with one a little larger that does not; inf if the widest does."""
    everywhere = holds(widest)
    low, high = np.zeros(len(widest)), widest
    for step in range(_ROUNDS):
        if np.all((high <= _CLOSE * low) | (high <= 1e-12 * widest) | everywhere | ~wanted):
            break
        # Downwards by decades while nothing holds, so that small radii keep their relative accuracy.
        middle = np.where(low > 0, 0.5 * (low + high), high * 10.0 ** -min(step + 1, 8))
        passed = holds(middle)
        low, high = np.where(passed, middle, low), np.where(passed, high, middle)
    return np.where(everywhere, np.inf, low)


class Certifiable:
    """The two questions as methods of a model that says how it decides, by ``decision``."""

    certify = certify
    certified_radius = certified_radius
