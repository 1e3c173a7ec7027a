"""What the attacks are told about a model is what the model says."""

import numpy as np
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.feature_selection import VarianceThreshold
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MaxAbsScaler, MinMaxScaler, Normalizer, RobustScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

from attacks import PGD, ZOO, as_target
from attacks.targets import batched_queries, has_gradients
from oracles_attacks import MODEL_NAMES, explicit_probe, finite_differences

PIPELINES = {
    "min_max": make_pipeline(MinMaxScaler((-1, 1)), SVC()),
    "max_abs": make_pipeline(MaxAbsScaler(), LinearSVC()),
    "robust": make_pipeline(RobustScaler(), NuSVC(nu=0.1)),
    "normalizer": make_pipeline(Normalizer(), SVC()),
    "selector": make_pipeline(VarianceThreshold(), SVC()),
    "passthrough": make_pipeline("passthrough", SVC()),
}


@pytest.mark.parametrize("name", [name for name in MODEL_NAMES if name != "laplacian"])
def test_gradients_equal_finite_differences(name, fitted, digits):
    target = as_target(fitted(name))
    X = digits[2][:6] * 0.9 + 0.05
    scores, gradients = target.scores_and_gradients(X)
    np.testing.assert_allclose(scores, target.scores(X), rtol=1e-4, atol=1e-5)
    h = 1e-5 if name.startswith(("svc", "linear", "scaled", "pca")) else 3e-3  # the rest compute in float32
    expected = finite_differences(target.scores, X, h)
    np.testing.assert_allclose(gradients, expected, atol=2e-3 * np.abs(expected).max())


@pytest.mark.parametrize("name", PIPELINES)
def test_gradients_pass_through_preprocessing(name, digits):
    model = PIPELINES[name].fit(*digits[:2])
    target = as_target(model)
    X = digits[2][:6].astype(np.float64)
    scores, gradients = target.scores_and_gradients(X)
    np.testing.assert_allclose(scores, model.decision_function(X), rtol=1e-9, atol=1e-12)
    expected = finite_differences(model.decision_function, X)
    np.testing.assert_allclose(gradients, expected, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", MODEL_NAMES)
def test_probes_equal_explicit_queries(name, fitted, digits):
    target = as_target(fitted(name))
    X, coords = digits[2][:4], np.array([3, 10, 20, 33, 60])
    plus, minus = target.probe(X, coords, 0.05)
    expected_plus, expected_minus = explicit_probe(target.scores, X.astype(np.float64), coords, 0.05)
    size = np.abs(expected_plus).max()
    np.testing.assert_allclose(plus, expected_plus, atol=2e-5 * size)
    np.testing.assert_allclose(minus, expected_minus, atol=2e-5 * size)


@pytest.mark.parametrize("name", [name for name in MODEL_NAMES if name != "laplacian"])
def test_symmetric_differences_of_probes_equal_gradients(name, fitted, digits):
    """With h = 1e-4 a float32 model's scores cancel; the probes must not."""
    target = as_target(fitted(name))
    X, coords = digits[2][:8], np.arange(64)
    plus, minus = target.probe(X, coords, 1e-4)
    gradients = target.scores_and_gradients(X)[1]
    np.testing.assert_allclose((plus - minus) / 2e-4, gradients, atol=1e-3 * np.abs(gradients).max())


def test_generic_queries_do_not_depend_on_the_batch(fitted, digits):
    target = as_target(fitted("svc_rbf"))
    X, coords = digits[2][:5], np.array([1, 7, 30])
    together = batched_queries(target.scores, X, coords, 0.01)
    apart = batched_queries(target.scores, X, coords, 0.01, rows_per_query=2)
    expected = explicit_probe(target.scores, X.astype(np.float64), coords, 0.01)
    for one, other, slow in zip(together, apart, expected):
        np.testing.assert_allclose(one, other, rtol=1e-12)
        np.testing.assert_allclose(one, slow, rtol=1e-12)


def test_a_search_is_attacked_through_its_best_estimator(digits):
    search = GridSearchCV(SVC(), {"C": [1.0, 8.0]}, cv=2).fit(*digits[:2])
    result = PGD(epsilon=0.3)(search, *digits[2:])
    assert result.robust_accuracy < result.clean_accuracy


@pytest.mark.parametrize("make", ["function", "trees", "unknown_step", "callable_kernel"])
def test_anything_with_scores_can_be_attacked_without_gradients(make, digits):
    X, y = digits[:2]
    model = {
        "function": lambda: SVC(gamma=0.2).fit(X, y).decision_function,
        "trees": lambda: GradientBoostingClassifier(n_estimators=5, random_state=0).fit(X, y),
        "unknown_step": lambda: make_pipeline(FunctionTransformer(np.tanh), SVC()).fit(X, y),
        "callable_kernel": lambda: SVC(kernel=lambda A, B: (A @ B.T) ** 2).fit(X, y),
    }[make]()
    assert not has_gradients(as_target(model))
    rows, labels = digits[2][:6], digits[3][:6]
    result = ZOO(steps=5, binary_search_steps=1, coordinates=8)(model, rows, labels)
    assert result.success.all()
    assert result.gradient_evaluations.sum() == 0
    with pytest.raises(ValueError, match=r"model .* PGD needs gradients"):
        PGD()(model, rows, labels)


def test_labels_may_be_any_two_values(digits):
    X, y, rows, labels = digits
    named = SVC(gamma=0.2).fit(X, np.where(y > 0, "seven", "one"))
    plain = SVC(gamma=0.2).fit(X, y)
    a = PGD(epsilon=0.2)(named, rows, np.where(labels > 0, "seven", "one"))
    b = PGD(epsilon=0.2)(plain, rows, labels)
    np.testing.assert_array_equal(a.success, ~b.success if named.classes_[0] == "seven" else b.success)
