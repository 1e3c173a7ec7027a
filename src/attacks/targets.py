"""Anything that can be attacked, behind one protocol."""

from collections.abc import Callable
from functools import partial
from typing import Any, Protocol

import numpy as np
from sklearn.svm import SVC, NuSVC

from models.decisions import Decision, Sign, Unreadable, decision_of

ROWS_PER_QUERY = 4096


class AdaptedTarget:
    """What an attack needs from a model, made of plain functions: numpy in, numpy out.

    A positive score means ``classes_[1]``, labels are -1 and +1 without `classes`. Without `gradients`, a function that
    gives scores and gradients, only black-box attacks apply; without `probe`, exact answers to many one-coordinate
    queries at once, they are asked one by one, in batches.
    """

    labels_only = False  # whether the scores are nothing but signs

    def __init__(
        self,
        scores: Callable[[np.ndarray], Any],
        classes: np.ndarray | None = None,
        gradients: Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]] | None = None,
        probe: Callable[[np.ndarray, np.ndarray, float], tuple[np.ndarray, np.ndarray] | None] | None = None,
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
        known = None if self._probe is None else self._probe(X, coords, h)
        return batched_queries(self.scores, X, coords, h) if known is None else known


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


# -- many classes ------------------------------------------------------------------------------------------------------
class ClassMargins(Protocol):
    """What is known of a classifier of K classes, numbered as in ``classes_``; a `Decision` with derivatives."""

    def margins(self, X: np.ndarray, code: int) -> np.ndarray: ...


class SeenScores:
    """Black box: the class of highest score, of a function (n, d) -> (n, K) whose derivatives nobody knows."""

    def __init__(self, scores: Callable[[np.ndarray], Any]) -> None:
        self.scores = scores

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        scores = np.array(self.scores(X), dtype=np.float64)
        own = scores[:, code].copy()
        scores[:, code] = -np.inf
        return own - scores.max(axis=1)


class SeenLabels:
    """Labels alone: +1 where the class is predicted, -1 elsewhere."""

    def __init__(self, predict: Callable[[np.ndarray], Any], classes: np.ndarray) -> None:
        self.predict, self.classes = predict, classes

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        return np.where(np.asarray(self.predict(X)) == self.classes[code], 1.0, -1.0)


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
        self.labels_only = isinstance(forms, SeenLabels)
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


# -- any model ---------------------------------------------------------------------------------------------------------
def as_target(model: Any) -> Any:
    """Adapt `model` to the attacks' protocol.

    Objects with ``scores``, ``scores_and_gradients`` and ``probe`` pass through. Whatever ``models.decisions`` can read
    (fitted scikit-learn SVC, NuSVC, linear classifiers, Pipelines of scalers, PCA and selectors that end in one of
    them, and searches over those) gets closed-form gradients, with two classes or more. Anything
    else with ``scores`` or ``decision_function``, and any function of X, can be attacked by the black-box attacks only;
    what has ``predict`` alone (or votes that its ``decision_function`` does not tell), by the attack that needs no more
    than labels.
    """
    if isinstance(model, type):
        raise ValueError(f"model must be a fitted object, got the class {model.__name__}")
    if callable(getattr(model, "attack_target", None)):
        return model.attack_target()
    classes = getattr(model, "classes_", None)
    several = classes is not None and len(classes) > 2
    if classes is not None and len(classes) < 2:
        raise ValueError(f"model must have two classes or more, got {len(classes)}")
    own = {name: getattr(model, name, None) for name in ("scores", "scores_and_gradients", "probe")}
    if not several and all(callable(method) for method in own.values()):
        return model
    speaks = hasattr(type(model), "decision")
    decision = _decision(model) if own["scores"] is None or speaks else None
    if decision is not None and isinstance(decision.rule, Sign):
        gradients = partial(decision.margins_and_gradients, code=1)
        return AdaptedTarget(decision.machine.scores, classes, gradients, decision.machine.probe)
    if decision is not None:
        return ManyClasses(decision, np.asarray(classes))
    if own["scores"] is not None and not several and not speaks:
        return AdaptedTarget(own["scores"], classes, own["scores_and_gradients"], own["probe"])
    if several:
        return ManyClasses(_seen_from_outside(model, np.asarray(classes)), np.asarray(classes))
    if callable(getattr(model, "decision_function", None)):
        return AdaptedTarget(model.decision_function, classes)
    if callable(getattr(model, "predict", None)):
        known = np.array([-1, 1]) if classes is None else np.asarray(classes)
        target = AdaptedTarget(lambda X: np.where(np.asarray(model.predict(X)) == known[1], 1.0, -1.0), classes)
        target.labels_only = True
        return target
    if callable(model):
        return AdaptedTarget(model)
    raise ValueError(
        f"model must have scores, decision_function or predict, or be a function; got {type(model).__name__}"
    )


def _decision(model: Any) -> Decision | None:
    """How the model decides, where its margins tell that everywhere."""
    try:
        found = decision_of(model)
    except Unreadable:
        return None
    return found if found.smooth else None


def has_gradients(target: Any) -> bool:
    """Whether white-box attacks apply."""
    return target.smooth if isinstance(target, ManyClasses) else callable(getattr(target, "scores_and_gradients", None))


def _seen_from_outside(model: Any, classes: np.ndarray) -> ClassMargins:
    """Margins of a classifier of many classes from its answers alone."""
    final = model
    while inner := _inside(final):
        (final,) = inner
    # libsvm names the class with the most votes, which need not be the one of the highest decision value.
    votes = isinstance(final, (SVC, NuSVC)) and not final.break_ties
    if callable(getattr(model, "decision_function", None)) and not votes:
        return SeenScores(model.decision_function)
    if callable(getattr(model, "predict", None)):
        return SeenLabels(model.predict, classes)
    raise ValueError(f"model {type(model).__name__} of {len(classes)} classes must have decision_function or predict")


def _inside(model: Any) -> list[Any]:
    """The classifier inside an adapter, a search or a Pipeline; nothing of a plain one."""
    for name in ("pipeline", "best_estimator_"):
        if hasattr(model, name):
            return [getattr(model, name)]
    return [model.steps[-1][1]] if hasattr(model, "steps") else []
