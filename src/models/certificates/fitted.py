"""How fitted scikit-learn classifiers decide, read off their attributes: nothing is fitted again."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

import numpy as np
from sklearn.linear_model._base import LinearClassifierMixin
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, NuSVC
from sklearn.utils.validation import check_is_fitted

from models.certificates.api import Contest, binary_contest, contest_of
from models.certificates.differences import highest_score, pairs
from models.certificates.gaussian import GaussianSum
from models.certificates.linear import LinearForm
from models.certificates.scaling import Scaling
from models.distances import dense
from models.rounding import UNIT32, UNIT64, NoCertificate


def contest_of_fitted(model: Any, single: bool = False) -> Contest:
    """How a fitted scikit-learn model decides; `single` if it is given float32 rows."""
    if hasattr(model, "best_estimator_"):
        return contest_of(model.best_estimator_, single)
    if isinstance(model, Pipeline):
        return _behind_steps(model, single)
    if isinstance(model, OneVsRestClassifier):
        return _one_vs_rest(model, single)
    if isinstance(model, (SVC, NuSVC)):
        return _support_vector_machine(model, single)
    if isinstance(model, LinearClassifierMixin):
        return _linear(model, single)
    raise NoCertificate(
        f"no certificate is known for a {type(model).__name__}: certify a kernel SVM (rbf, linear), a linear "
        "classifier, or a Pipeline of scalers that ends in one"
    )


def _behind_steps(model: Pipeline, single: bool) -> Contest:
    steps = []
    for name, transformer in model.steps[:-1]:
        if transformer is not None and transformer != "passthrough":
            steps.append(_scaling_of(name, transformer))
    contest = contest_of(model.steps[-1][1], single)
    if not steps:
        return contest
    unit = UNIT32 if single else UNIT64
    scaling = Scaling(steps, max(unit, contest.slack))
    return replace(contest, forms=[_behind(form, scaling) for form in contest.forms], slack=0.0)


def _behind(form: Any, scaling: Scaling) -> Any:
    if not hasattr(form, "behind"):
        raise NoCertificate(f"no certificate is known for a {type(form).__name__} behind a scaler: scale the data")
    inner = form.scaling  # of a Pipeline inside this one: ours comes before it
    return form.behind(scaling if inner is None else scaling.then(inner))


def _scaling_of(name: str, transformer: Any) -> tuple[np.ndarray, np.ndarray]:
    """(scale, shift) of a fitted per-feature affine step."""
    check_is_fitted(transformer)
    d = transformer.n_features_in_
    zeros, ones = np.zeros(d), np.ones(d)

    def exact(values: Any) -> np.ndarray:
        # A scaler that was fitted to float32 rows may hold float32 numbers; its quotients are not rounded to them.
        return np.asarray(values, dtype=np.float64)

    if isinstance(transformer, StandardScaler):
        scale = 1 / exact(transformer.scale_) if transformer.with_std else ones
        return scale, -exact(transformer.mean_) * scale if transformer.with_mean else zeros
    if isinstance(transformer, MinMaxScaler) and not transformer.clip:
        return exact(transformer.scale_), exact(transformer.min_)
    if isinstance(transformer, MaxAbsScaler) and not getattr(transformer, "clip", False):
        return 1 / exact(transformer.scale_), zeros
    if isinstance(transformer, RobustScaler):
        scale = 1 / exact(transformer.scale_) if transformer.with_scaling else ones
        return scale, -exact(transformer.center_) * scale if transformer.with_centering else zeros
    raise NoCertificate(
        f"no certificate is known behind the step {name!r} ({type(transformer).__name__}): steps must scale every "
        "feature by itself (StandardScaler, MinMaxScaler without clip, MaxAbsScaler, RobustScaler)"
    )


def _linear(model: Any, single: bool) -> Contest:
    check_is_fitted(model)
    weights = np.atleast_2d(dense(model.coef_))  # a RidgeClassifier of two classes has one row
    # Rows and weights that are both float32 are multiplied in float32.
    unit = UNIT32 if single and weights.dtype == np.float32 else UNIT64
    weights = weights.astype(np.float64)
    intercepts = np.broadcast_to(np.asarray(model.intercept_, dtype=np.float64), len(weights))
    if len(weights) == 1:
        return binary_contest(model.classes_, LinearForm(weights[0], float(intercepts[0]), unit))
    forms = [LinearForm(w, float(b), unit) for w, b in zip(weights, intercepts)]
    return highest_score(model.classes_, forms)


def _one_vs_rest(model: OneVsRestClassifier, single: bool) -> Contest:
    check_is_fitted(model)
    if model.label_binarizer_.y_type_ == "binary":
        return replace(contest_of(model.estimators_[0], single), classes=np.asarray(model.classes_))
    if model.multilabel_:
        raise NoCertificate("no certificate is known for several labels a row (OneVsRestClassifier, multilabel)")
    if not all(hasattr(estimator, "decision_function") for estimator in model.estimators_):
        raise NoCertificate("no certificate is known for a OneVsRestClassifier of constant or probability machines")
    contests = [contest_of(estimator, single) for estimator in model.estimators_]
    forms = [contest.forms[0] for contest in contests]
    return highest_score(model.classes_, forms, max(contest.slack for contest in contests))


def _support_vector_machine(model: Any, single: bool) -> Contest:
    check_is_fitted(model)
    # scikit-learn's own converts every row to float64; a faster one (sklearnex) scores float32 rows in float32.
    single = single and not type(model).__module__.startswith("sklearn.")
    if model.kernel not in ("rbf", "linear"):
        shown = model.kernel if isinstance(model.kernel, str) else "callable"
        raise NoCertificate(
            f"no certificate is known for the {shown} kernel of {type(model).__name__}: use rbf or linear"
        )
    forms, slack = list(_machines(model)), 0.0
    if single:
        forms, slack = [form.in_float32() for form in forms], UNIT32
    if len(model.classes_) == 2:
        return binary_contest(model.classes_, forms[0], slack)
    return Contest(model.classes_, forms, pairs(len(model.classes_)), slack)


def _machines(model: Any) -> Iterator[Any]:
    """The pairwise machines in scikit-learn's order; of two classes the one, positive for the second."""
    vectors, dual = dense(model.support_vectors_), dense(model.dual_coef_)
    starts = np.concatenate([[0], np.cumsum(model.n_support_)])
    n_classes = len(model.classes_)
    for number, (i, j) in enumerate(combinations(range(n_classes), 2)):
        rows_i, rows_j = np.arange(starts[i], starts[i + 1]), np.arange(starts[j], starts[j + 1])
        rows = np.concatenate([rows_i, rows_j])
        weights = np.concatenate([dual[j - 1, rows_i], dual[i, rows_j]]).astype(np.float64)
        rows, weights = rows[weights != 0], weights[weights != 0]
        centers, intercept = vectors[rows].astype(np.float64), float(model.intercept_[number])
        if model.kernel == "linear":
            mass = np.abs(weights) @ np.abs(centers)
            yield LinearForm(weights @ centers, intercept, UNIT64, mass, 0.0, len(weights))
        else:
            yield GaussianSum(centers, weights, float(model._gamma), intercept)
