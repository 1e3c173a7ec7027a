"""Classifiers of many classes as one margin per class: positive exactly where that class is predicted."""

from collections.abc import Callable
from functools import partial
from itertools import combinations
from typing import Any, Protocol

import numpy as np

from attacks.closed_forms import ROWS, Chain, ClosedForm, KernelForm, LinearForm, dense


class ClassMargins(Protocol):
    """What is known of a classifier of K classes, numbered as in ``classes_``."""

    def margins(self, X: np.ndarray, code: int) -> np.ndarray: ...


class SmoothMargins(ClassMargins, Protocol):
    """The same with derivatives."""

    def margins_and_gradients(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]: ...


class Highest:
    """Black box: the class of highest score, of a function (n, d) -> (n, K) whose derivatives nobody knows."""

    def __init__(self, scores: Callable[[np.ndarray], Any]) -> None:
        self.scores = scores

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        return _lead(np.array(self.scores(X), dtype=np.float64), code)[0]


def _lead(scores: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
    """By how much a class leads its strongest rival, and who that is; `scores` (n, K) are written to."""
    own = scores[:, code].copy()
    scores[:, code] = -np.inf
    rivals = scores.argmax(axis=1)
    return own - scores[np.arange(len(scores)), rivals], rivals


class Labels:
    """Labels alone: +1 where the class is predicted, -1 elsewhere."""

    def __init__(self, predict: Callable[[np.ndarray], Any], classes: np.ndarray) -> None:
        self.predict, self.classes = predict, classes

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        return np.where(np.asarray(self.predict(X)) == self.classes[code], 1.0, -1.0)


class HighestScore:
    """The class of highest score: one-vs-rest, multinomial. The margin is the score less the strongest rival's."""

    def __init__(self, forms: list[ClosedForm]) -> None:
        self.forms = forms

    def _rivals(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        return _lead(np.stack([form.scores(X) for form in self.forms], axis=1), code)

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        return self._rivals(X, code)[0]

    def margins_and_gradients(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        margins, rivals = self._rivals(X, code)
        gradients = np.array(self.forms[code].scores_and_gradients(X)[1], dtype=np.float64)
        for rival in np.unique(rivals):
            rows = rivals == rival
            gradients[rows] -= self.forms[rival].scores_and_gradients(X[rows])[1]
        return margins, gradients


class MostVotes:
    """The class with the most votes in duels of two, the first of them when several have as many: libsvm's SVC.

    Against a rival r, class c is ahead by a count of duels won: its own against every class, and those r lost. Lower
    all these decision values by t and the count falls; the margin against r is the t at which r is ahead. It is one of
    the values, the one where their sorted weights (the duel of c and r counts twice) pass K - 1, so it is continuous,
    has the gradient of that duel, and its sign is the vote, ties included. The margin of c is the least over r.

    There is a duel for every pair (i, j) with i < j, in the order (0, 1), (0, 2), …; positive is a vote for i.
    """

    def __init__(self, duels: list[ClosedForm], n_classes: int) -> None:
        self.duels, self.n_classes = duels, n_classes
        self._place = {pair: place for place, pair in enumerate(combinations(range(n_classes), 2))}
        self._known: dict[int, tuple[np.ndarray, ...]] = {}

    def _values(self, X: np.ndarray) -> np.ndarray:
        """Decision values of all duels, (n, K (K - 1) / 2)."""
        return np.stack([duel.scores(X) for duel in self.duels], axis=1)

    def _duel(self, i: int, j: int) -> tuple[int, float]:
        """Where the duel of i against j stands, and the sign that makes positive a vote for i."""
        return (self._place[i, j], 1.0) if i < j else (self._place[j, i], -1.0)

    def _contests(self, code: int) -> tuple[np.ndarray, ...]:
        """For every rival, in rows: the duels that count, their signs and weights, and the weight that decides."""
        if code not in self._known:
            places, signs, weights, decisive = [], [], [], []
            classes = range(self.n_classes)
            for rival in (k for k in classes if k != code):
                duels = [self._duel(code, k) for k in classes if k != code]
                duels += [self._duel(k, rival) for k in classes if k not in (code, rival)]
                places.append([place for place, _ in duels])
                signs.append([sign for _, sign in duels])
                weights.append([2 if k == rival else 1 for k in classes if k != code] + [1] * (self.n_classes - 2))
                # The first class wins a tie: a later rival has to be ahead by one more vote.
                decisive.append(self.n_classes - 1 - (rival > code))
            self._known[code] = (np.array(places), np.array(signs), np.array(weights), np.array(decisive))
        return self._known[code]

    def _deciding(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Margins, and the duel and sign each of them comes from."""
        places, signs, weights, decisive = self._contests(code)
        ahead = self._values(X)[:, places] * signs
        order = np.argsort(-ahead, axis=2, kind="stable")
        rivals, n = np.arange(len(places)), np.arange(len(X))
        passed = np.cumsum(weights[rivals[:, None], order], axis=2) > decisive[:, None]
        chosen = np.take_along_axis(order, passed.argmax(axis=2)[:, :, None], axis=2)
        margins = np.take_along_axis(ahead, chosen, axis=2)[:, :, 0]
        rival = margins.argmin(axis=1)
        duel = chosen[n, rival, 0]
        return margins[n, rival], places[rival, duel], signs[rival, duel]

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        return self._deciding(X, code)[0]

    def margins_and_gradients(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        margins, places, signs = self._deciding(X, code)
        gradients = np.empty(X.shape)
        for place in np.unique(places):
            rows = places == place
            gradients[rows] = signs[rows, None] * self.duels[place].scores_and_gradients(X[rows])[1]
        return margins, gradients


class KernelVotes(MostVotes):
    """The duels of an SVC: they share the kernel values of all support vectors."""

    def __init__(self, kind: type[KernelForm], model: Any) -> None:
        ends = np.cumsum(model.n_support_)
        parts = [np.arange(end - count, end) for end, count in zip(ends, model.n_support_)]
        vectors, dual = dense(model.support_vectors_), dense(model.dual_coef_)
        self.matrix = np.zeros((ends[-1], len(model.intercept_)))
        duels: list[ClosedForm] = []
        for place, (i, j) in enumerate(combinations(range(len(parts)), 2)):
            self.matrix[parts[i], place], self.matrix[parts[j], place] = dual[j - 1, parts[i]], dual[i, parts[j]]
            own = np.concatenate([parts[i], parts[j]])
            duels.append(kind(model, vectors[own], self.matrix[own, place], float(model.intercept_[place])))  # type: ignore[arg-type]
        self.whole = kind(model, vectors, self.matrix[:, 0], 0.0)
        self.intercepts = np.asarray(model.intercept_, dtype=np.float64)
        super().__init__(duels, len(parts))

    def _values(self, X: np.ndarray) -> np.ndarray:
        blocks = [self.whole._values(X[i : i + ROWS].astype(np.float64)) @ self.matrix for i in range(0, len(X), ROWS)]
        return np.concatenate(blocks) + self.intercepts


class Behind(Chain):
    """Many classes behind differentiable preprocessing."""

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        return self.form.margins(self.forward(X)[-1], code)

    def margins_and_gradients(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        inputs = self.forward(X)
        margins, gradients = self.form.margins_and_gradients(inputs[-1], code)
        return margins, self.pull_back(inputs, gradients)


def linear_forms(weights: np.ndarray, intercepts: np.ndarray) -> list[ClosedForm]:
    """One form for each row of weights."""
    intercepts = np.broadcast_to(np.ravel(intercepts), len(weights))
    return [LinearForm(row.astype(np.float64), float(b)) for row, b in zip(weights, intercepts)]


class OneClass:
    """One class against all others: what the attacks see of a classifier of many. Positive is that class."""

    classes_ = np.array([-1, 1])

    def __init__(self, forms: Any, code: int, smooth: bool) -> None:
        self.scores = partial(forms.margins, code=code)
        if smooth:
            self.scores_and_gradients = partial(forms.margins_and_gradients, code=code)


class ManyClasses:
    """A target of more than two classes: its margins per class, see :meth:`against`."""

    def __init__(self, forms: ClassMargins, classes: np.ndarray) -> None:
        self.forms, self.classes_ = forms, np.asarray(classes)
        self.labels_only = isinstance(forms, Labels)
        self.smooth = callable(getattr(forms, "margins_and_gradients", None))

    def against(self, code: int) -> OneClass:
        """The binary target of one class, numbered as in ``classes_``."""
        return OneClass(self.forms, code, self.smooth)

    def margins(self, X: np.ndarray, codes: np.ndarray) -> np.ndarray:
        """Margins of every row's own class."""
        margins = np.empty(len(X))
        for code in np.unique(codes):
            margins[codes == code] = self.forms.margins(X[codes == code], int(code))
        return margins

    def codes(self, y: Any, name: str) -> np.ndarray:
        """Labels as their numbers in ``classes_``."""
        labels = np.asarray(y)
        strangers = ~np.isin(labels, self.classes_)
        if strangers.any():
            raise ValueError(
                f"{name} must be one of the model's classes {self.classes_.tolist()}, "
                f"got {np.unique(labels[strangers])[:5].tolist()}"
            )
        order = np.argsort(self.classes_)
        return order[np.searchsorted(self.classes_, labels, sorter=order)]
