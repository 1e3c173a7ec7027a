"""Anything that can be attacked, behind one protocol."""

from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectorMixin
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.svm import SVC, NuSVC

from attacks.closed_forms import (
    AffineStep,
    Chain,
    ChainForm,
    LinearForm,
    LinearStep,
    NormalizeStep,
    PolynomialForm,
    RBFForm,
    SigmoidForm,
    dense,
)
from attacks.multiclass import (
    Behind,
    ClassMargins,
    Highest,
    HighestScore,
    KernelVotes,
    Labels,
    ManyClasses,
    MostVotes,
    SmoothMargins,
    linear_forms,
)

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


def as_target(model: Any, classes: Any = None) -> Any:
    """Adapt `model` to the attacks' protocol.

    Objects with ``scores``, ``scores_and_gradients`` and ``probe`` pass through. Fitted scikit-learn SVC, NuSVC,
    linear classifiers, Pipelines of scalers, PCA and selectors that end in one of them, and searches over those get
    closed-form gradients, with two classes or more (one-vs-one as libsvm votes, one-vs-rest, multinomial). Anything
    else with ``scores`` or ``decision_function``, and any function of X, can be attacked by the black-box attacks only;
    what has ``predict`` alone (or votes that its ``decision_function`` does not tell), by the attack that needs no more
    than labels.

    `classes` are what the labels of the model's own ``classes_`` are called in y, in their order.
    """
    if isinstance(model, type):
        raise ValueError(f"model must be a fitted object, got the class {model.__name__}")
    if callable(getattr(model, "attack_target", None)):
        return model.attack_target()
    own = getattr(model, "classes_", None)
    classes = own if classes is None else np.asarray(classes)
    if classes is not None and len(classes) > 2:
        return ManyClasses(class_margins(model) or _seen_from_outside(model, np.asarray(own)), classes)
    if classes is not None and len(classes) != 2:
        raise ValueError(f"model must have two classes or more, got {len(classes)}")
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
    if callable(getattr(model, "predict", None)):
        known = np.array([-1, 1]) if own is None else np.asarray(own)
        target = AdaptedTarget(lambda X: np.where(np.asarray(model.predict(X)) == known[1], 1.0, -1.0), classes)
        target.labels_only = True
        return target
    if callable(model):
        return AdaptedTarget(model)
    raise ValueError(
        f"model must have scores, decision_function or predict, or be a function; got {type(model).__name__}"
    )


def has_gradients(target: Any) -> bool:
    """Whether white-box attacks apply."""
    return target.smooth if isinstance(target, ManyClasses) else callable(getattr(target, "scores_and_gradients", None))


KERNEL_FORMS = {"rbf": RBFForm, "poly": PolynomialForm, "sigmoid": SigmoidForm}


def closed_form(model: Any) -> Any:
    """The closed form of a fitted classifier, or None when it is not one whose derivatives are known."""
    return _read(model, _form_of_two, ChainForm)


def class_margins(model: Any) -> SmoothMargins | None:
    """Margins per class of a fitted classifier of many, or None when its derivatives are not known."""
    return _read(model, _margins_of_many, Behind)


def _read(model: Any, read: Callable[[Any], Any], chain: type[Chain]) -> Any:
    """What `read` makes of the classifier, behind what prepares its rows."""
    steps, final = _unwrapped(model)
    known = isinstance(model, BaseEstimator) and isinstance(final, BaseEstimator)
    form = read(final) if known and all(step is not None for step in steps) else None
    return chain(steps, form) if steps and form is not None else form


def _unwrapped(model: Any) -> tuple[list[Any], Any]:
    """The classifier inside searches and Pipelines, and the steps before it; None for one of unknown derivatives."""
    steps: list[Any] = []
    while hasattr(model, "best_estimator_") or isinstance(model, Pipeline):
        if hasattr(model, "best_estimator_"):
            model = model.best_estimator_
        else:
            steps += [_step(t) for _, t in model.steps[:-1] if t is not None and t != "passthrough"]
            model = model.steps[-1][1]
    return steps, model


def _form_of_two(model: Any) -> Any:
    if isinstance(model, (SVC, NuSVC)) and hasattr(model, "support_vectors_") and model.kernel != "linear":
        kind = KERNEL_FORMS.get(model.kernel) if isinstance(model.kernel, str) else None
        vectors, coefficients = dense(model.support_vectors_), dense(model.dual_coef_)[0]
        return None if kind is None else kind(model, vectors, coefficients, float(model.intercept_[0]))
    if not all(hasattr(model, name) for name in ("coef_", "intercept_", "decision_function")):
        return None
    weights = dense(model.coef_)
    one_row = weights.size == weights.shape[-1]
    return LinearForm(weights.reshape(-1), float(np.ravel(model.intercept_)[0])) if one_row else None


def _margins_of_many(model: Any) -> SmoothMargins | None:
    if isinstance(model, OneVsRestClassifier):
        several = [closed_form(one) for one in model.estimators_]
        return None if any(form is None for form in several) else HighestScore(several)
    if isinstance(model, (SVC, NuSVC)) and hasattr(model, "support_vectors_"):
        if model.break_ties or not isinstance(model.kernel, str):
            return None  # the class is then not decided by votes
        if model.kernel == "linear":
            return MostVotes(linear_forms(dense(model.coef_), model.intercept_), len(model.classes_))
        kind = KERNEL_FORMS.get(model.kernel)
        return None if kind is None else KernelVotes(kind, model)
    if hasattr(model, "coef_") and hasattr(model, "intercept_") and len(dense(model.coef_)) == len(model.classes_):
        return HighestScore(linear_forms(dense(model.coef_), model.intercept_))
    return None


def _step(transformer: Any) -> Any:
    width = getattr(transformer, "n_features_in_", None)
    if isinstance(transformer, MinMaxScaler) and transformer.clip:
        return None
    if isinstance(transformer, (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)):
        return AffineStep(transformer, width or 0)
    if isinstance(transformer, (PCA, SelectorMixin)):
        return LinearStep(transformer, width or 0)
    if isinstance(transformer, Normalizer) and transformer.norm == "l2":
        return NormalizeStep()
    return None


def _seen_from_outside(model: Any, classes: np.ndarray) -> ClassMargins:
    """Margins of a classifier of many classes from its answers alone."""
    final = _unwrapped(model)[1]
    # libsvm names the class with the most votes, which need not be the one of the highest decision value.
    votes = isinstance(final, (SVC, NuSVC)) and not final.break_ties
    if callable(getattr(model, "decision_function", None)) and not votes:
        return Highest(model.decision_function)
    if callable(getattr(model, "predict", None)):
        return Labels(model.predict, classes)
    raise ValueError(f"model {type(model).__name__} of {len(classes)} classes must have decision_function or predict")
