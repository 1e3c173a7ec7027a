"""How a fitted classifier decides: a machine, and a rule that makes labels of its outputs.

`decision_of` reads it off a fitted model; nothing is fitted again. Attacks take margins and gradients from it,
certificates their forms. A new kind of model is one function registered with `read`.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from functools import cache, partial, singledispatch
from itertools import combinations, pairwise
from typing import Any

import numpy as np
from sklearn.calibration import CalibratedClassifierCV
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectorMixin
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.svm import SVC, NuSVC
from sklearn.utils.validation import check_is_fitted

from models.distances import dense
from models.machines import (
    Behind,
    Gaussian,
    KernelMachine,
    Linear,
    Machine,
    Normalise,
    Polynomial,
    Project,
    Scale,
    Sigmoid,
    Stacked,
    Step,
)
from models.rounding import UNIT32, UNIT64


class Unreadable(ValueError):
    """Nothing is known about such a model beyond its answers."""


# -- rules -------------------------------------------------------------------------------------------------------------
class Rule(ABC):
    """Which class wins; classes by their numbers."""

    smooth = True  # whether margins decide the class everywhere

    @abstractmethod
    def weigh(self, scores: np.ndarray, code: int) -> np.ndarray:
        """Coefficients (n, m) of the scores whose sum is the margin of a class: positive exactly where it wins."""


class Sign(Rule):
    """Two classes and one output, positive for the second."""

    def weigh(self, scores: np.ndarray, code: int) -> np.ndarray:
        return np.full(scores.shape, 1.0 if code else -1.0)


class Highest(Rule):
    """The class of highest score: one-vs-rest, multinomial. The margin is the score less the strongest rival's."""

    def weigh(self, scores: np.ndarray, code: int) -> np.ndarray:
        others = scores.copy()
        others[:, code] = -np.inf
        chosen = np.zeros(scores.shape)
        chosen[:, code] = 1.0
        chosen[np.arange(len(scores)), others.argmax(axis=1)] = -1.0
        return chosen


@dataclass(frozen=True)
class MostVotes(Rule):
    """The class with the most votes in comparisons of two, the first of them when several have as many: libsvm's SVC.

    Against a rival r, class c is ahead by a count of comparisons won: its own with every class, and those r lost. Lower
    all these decision values by t and the count falls; the margin against r is the t at which r is ahead. It is one of
    the values, the one where their sorted weights (that of c and r counts twice) pass K - 1, so it is continuous, has
    the gradient of that comparison, and its sign is the vote, ties included. The margin of c is the least over r.

    There is an output for every pair (i, j) with i < j, in the order (0, 1), (0, 2), …; positive is a vote for i.
    """

    n_classes: int
    smooth: bool = True  # False where ties are broken by confidence instead

    def weigh(self, scores: np.ndarray, code: int) -> np.ndarray:
        places, signs, weights, decisive = _comparisons(self.n_classes, code)
        ahead = scores[:, places] * signs
        order = np.argsort(-ahead, axis=2, kind="stable")
        rivals, n = np.arange(len(places)), np.arange(len(scores))
        passed = np.cumsum(weights[rivals[:, None], order], axis=2) > decisive[:, None]
        chosen = np.take_along_axis(order, passed.argmax(axis=2)[:, :, None], axis=2)
        rival = np.take_along_axis(ahead, chosen, axis=2)[:, :, 0].argmin(axis=1)
        comparison = chosen[n, rival, 0]
        found = np.zeros(scores.shape)
        found[n, places[rival, comparison]] = signs[rival, comparison]
        return found


@cache
def _comparisons(n_classes: int, code: int) -> tuple[np.ndarray, ...]:
    """For every rival, in rows: the comparisons that count, their signs and weights, and the weight that decides."""
    place = {pair: number for number, pair in enumerate(combinations(range(n_classes), 2))}
    places, signs, weights, decisive = [], [], [], []
    for rival in (k for k in range(n_classes) if k != code):
        others = [k for k in range(n_classes) if k != code]
        comparisons = [(code, k) for k in others] + [(k, rival) for k in others if k != rival]
        places.append([place[min(pair), max(pair)] for pair in comparisons])
        signs.append([1.0 if i < j else -1.0 for i, j in comparisons])
        weights.append([2 if k == rival else 1 for k in others] + [1] * (n_classes - 2))
        # The first class wins a tie: a later rival has to be ahead by one more vote.
        decisive.append(n_classes - 1 - (rival > code))
    return np.array(places), np.array(signs), np.array(weights), np.array(decisive)


# -- decisions ---------------------------------------------------------------------------------------------------------
@dataclass(frozen=True)
class Decision:
    """A machine and its rule."""

    classes: np.ndarray  # (k,)
    machine: Machine
    rule: Rule

    @property
    def smooth(self) -> bool:
        """Whether margins have gradients, and decide the class everywhere."""
        return self.rule.smooth and self.machine.smooth

    def margins(self, X: np.ndarray, code: int) -> np.ndarray:
        """Of a class, by its number: positive exactly where it is predicted, shape (n,)."""
        scores = self.machine.scores(X)
        return (self.rule.weigh(scores, code) * scores).sum(axis=1)

    def margins_and_gradients(self, X: np.ndarray, code: int) -> tuple[np.ndarray, np.ndarray]:
        """The same and their gradients, shape (n, d)."""
        weigh = partial(self.rule.weigh, code=code)
        scores, gradients = self.machine.scores_and_gradients(X, weigh)
        return (weigh(scores) * scores).sum(axis=1), gradients

    def behind(self, steps: list[Step]) -> "Decision":
        """The same classifier, fed with prepared rows."""
        return replace(self, machine=Behind(steps, self.machine)) if steps else self


def decision_of(model: Any) -> Decision:
    """How a fitted model decides; Unreadable, in one line, where that is not known."""
    # Asked of the class: what stands in for another object must not hand out that object's answers.
    if callable(getattr(type(model), "decision", None)):
        check_is_fitted(model)
        found: Decision = model.decision()
        return found
    if hasattr(model, "best_estimator_"):  # a search of any library
        return decision_of(model.best_estimator_)
    return read(model)


@singledispatch
def read(model: Any) -> Decision:
    """How a fitted scikit-learn classifier decides; register a function for classes of your own."""
    raise Unreadable(f"{type(model).__name__}")


@read.register
def _(model: Pipeline) -> Decision:
    steps = [(name, step) for name, step in model.steps[:-1] if step is not None and step != "passthrough"]
    return decision_of(model.steps[-1][1]).behind([step_of(name, transformer) for name, transformer in steps])


@read.register
def _(model: LinearClassifierMixin) -> Decision:
    check_is_fitted(model)
    weights = np.atleast_2d(dense(model.coef_))  # a RidgeClassifier of two classes has one row
    intercepts = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(weights))
    machine = Linear(weights.astype(np.float64), intercepts, float32=weights.dtype == np.float32)
    return Decision(np.asarray(model.classes_), machine, Sign() if len(weights) == 1 else Highest())


@read.register
def _(model: OneVsRestClassifier) -> Decision:
    check_is_fitted(model)
    if model.multilabel_:
        raise Unreadable("several labels a row (OneVsRestClassifier, multilabel)")
    if not all(hasattr(one, "decision_function") for one in model.estimators_):
        raise Unreadable("a OneVsRestClassifier of constant or probability machines")
    machines = [decision_of(one).machine for one in model.estimators_]
    if len(machines) == 1:
        return Decision(np.asarray(model.classes_), machines[0], Sign())
    return Decision(np.asarray(model.classes_), Stacked(machines), Highest())


@read.register
def _(model: CalibratedClassifierCV) -> Decision:
    """Two classes and one sigmoid, 1 / (1 + exp(a·f + b)): the second class wins where a·f + b is negative."""
    check_is_fitted(model)
    inside = model.calibrated_classifiers_
    if len(inside) != 1 or len(model.classes_) != 2 or model.method != "sigmoid":
        raise Unreadable("a CalibratedClassifierCV but for two classes, ensemble=False and method='sigmoid'")
    found, (sigmoid,) = decision_of(inside[0].estimator), inside[0].calibrators
    steps: list[Step] = []
    machine = found.machine
    while isinstance(machine, Behind):
        steps, machine = [*steps, *machine.steps], machine.machine
    if not isinstance(machine, (Linear, KernelMachine)):
        raise Unreadable(f"a CalibratedClassifierCV around a {type(inside[0].estimator).__name__}")
    slope, shift = -float(sigmoid.a_), -float(sigmoid.b_)
    # a·f + b rounds by a few units of its terms, and the sigmoid is one half within a few units of 1 of zero.
    largest = np.abs(machine.weights).sum() + np.abs(machine.intercepts).sum()
    allowance = 16 * (UNIT32 if machine.float32 else UNIT64) * (1 + abs(shift) + abs(slope) * float(largest))
    return Decision(np.asarray(model.classes_), machine.rescaled(slope, shift, allowance), Sign()).behind(steps)


KERNELS: dict[str, type[KernelMachine]] = {"rbf": Gaussian, "poly": Polynomial, "sigmoid": Sigmoid}


@read.register(SVC)
@read.register(NuSVC)
def _(model: Any) -> Decision:
    check_is_fitted(model)
    kernel = model.kernel if isinstance(model.kernel, str) else "callable"
    if kernel != "linear" and kernel not in KERNELS:
        raise Unreadable(f"the {kernel} kernel of {type(model).__name__}")
    # scikit-learn's own converts every row to float64; a faster one (sklearnex) scores float32 rows in float32.
    float32 = not type(model).__module__.startswith("sklearn.")
    vectors, weights = dense(model.support_vectors_).astype(np.float64), _pairwise(model)
    intercepts, n_classes = np.asarray(model.intercept_, dtype=np.float64), len(model.classes_)
    machine: Machine
    if kernel == "linear":
        mass, terms = np.abs(weights).T @ np.abs(vectors), int((weights != 0).sum(axis=0).max())
        machine = Linear(weights.T @ vectors, intercepts, mass, terms, float32)
    else:
        gamma, degree, coef0 = float(model._gamma), int(model.degree), float(model.coef0)
        machine = KERNELS[kernel](vectors, weights, intercepts, gamma, degree, coef0, float32)
    rule = Sign() if n_classes == 2 else MostVotes(n_classes, smooth=not model.break_ties)
    return Decision(np.asarray(model.classes_), machine, rule)


def _pairwise(model: Any) -> np.ndarray:
    """Weights of the support vectors in every pairwise machine, (S, pairs), in scikit-learn's order."""
    dual = dense(model.dual_coef_).astype(np.float64)
    starts = np.concatenate([[0], np.cumsum(model.n_support_)])
    if len(model.classes_) == 2:
        return dual.T.copy()  # the one, positive for the second
    parts = [slice(start, stop) for start, stop in pairwise(starts)]
    weights = np.zeros((starts[-1], len(model.intercept_)))
    for place, (i, j) in enumerate(combinations(range(len(parts)), 2)):
        weights[parts[i], place], weights[parts[j], place] = dual[j - 1, parts[i]], dual[i, parts[j]]
    return weights


# -- steps -------------------------------------------------------------------------------------------------------------
def step_of(name: str, transformer: Any) -> Step:
    """A fitted preprocessing step."""
    check_is_fitted(transformer)
    d = getattr(transformer, "n_features_in_", 0)

    def told(name: str, otherwise: float) -> np.ndarray:
        # In float64 before anything is divided by it: a scaler that was fitted to float32 rows keeps float32 numbers.
        value = getattr(transformer, name, None)
        return np.full(d, otherwise) if value is None else np.asarray(value, dtype=np.float64)

    if isinstance(transformer, MinMaxScaler) and not transformer.clip:
        return Scale(told("scale_", 1.0), told("min_", 0.0))
    centred = {StandardScaler: "mean_", RobustScaler: "center_", MaxAbsScaler: ""}.get(type(transformer))
    if centred is not None and not getattr(transformer, "clip", False):
        scale = 1 / told("scale_", 1.0)
        off = getattr(transformer, "with_mean", True) is False or getattr(transformer, "with_centering", True) is False
        return Scale(scale, np.zeros(d) if off else -told(centred, 0.0) * scale)
    if isinstance(transformer, (PCA, SelectorMixin)):
        shift = transformer.transform(np.zeros((1, d)))[0]
        return Project(transformer.transform(np.eye(d)) - shift, shift)
    if isinstance(transformer, Normalizer) and transformer.norm == "l2":
        return Normalise()
    raise Unreadable(f"the step {name!r} ({type(transformer).__name__})")
