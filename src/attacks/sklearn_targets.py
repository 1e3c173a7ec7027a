"""Which fitted scikit-learn classifiers have known derivatives."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.decomposition import PCA
from sklearn.feature_selection import SelectorMixin
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler, StandardScaler
from sklearn.svm import SVC, NuSVC

from .closed_forms import LinearForm, PolynomialForm, RBFForm, SigmoidForm
from .pipeline_steps import AffineStep, ChainForm, LinearStep, NormalizeStep

KERNEL_FORMS = {"rbf": RBFForm, "poly": PolynomialForm, "sigmoid": SigmoidForm}


def closed_form(model: Any) -> Any:
    """The closed form of a fitted classifier, or None when it is not one whose derivatives are known."""
    if not isinstance(model, BaseEstimator):
        return None
    if hasattr(model, "best_estimator_"):
        return closed_form(model.best_estimator_)
    if isinstance(model, Pipeline):
        return _chain(model)
    if isinstance(model, (SVC, NuSVC)) and hasattr(model, "support_vectors_"):
        if model.kernel == "linear":
            return _linear(model)
        kind = KERNEL_FORMS.get(model.kernel) if isinstance(model.kernel, str) else None
        return kind(model) if kind is not None else None
    if hasattr(model, "coef_") and hasattr(model, "intercept_"):
        return _linear(model)
    return None


def _linear(model: Any) -> Any:
    weights = model.coef_.toarray() if hasattr(model.coef_, "toarray") else np.asarray(model.coef_)
    if weights.size != weights.shape[-1] or not hasattr(model, "decision_function"):
        return None
    return LinearForm(weights.reshape(-1).astype(np.float64), float(np.ravel(model.intercept_)[0]))


def _chain(pipeline: Any) -> Any:
    form = closed_form(pipeline.steps[-1][1])
    steps = [_step(t) for _, t in pipeline.steps[:-1] if t is not None and t != "passthrough"]
    if form is None or any(step is None for step in steps):
        return None
    return ChainForm(steps, form) if steps else form


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
