"""`certify` of models that scikit-learn fitted: any number of classes, scalers, searches."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression, RidgeClassifier, SGDClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    PolynomialFeatures,
    QuantileTransformer,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import SVC, LinearSVC, NuSVC

from models import AdvSVM, DoublyStochastic, KernelSVC, certify
from models.certificates.forms import contest_of
from models.certificates.region import region


@pytest.fixture(scope="module")
def digits():
    """Four classes in six features: few enough for a search to come close to the worst."""
    X, y = load_digits(return_X_y=True)
    X, y = X[y < 4], y[y < 4]
    columns = np.argsort(X.std(0))[-6:]
    return X[:, columns] / 16, np.array(["a", "b", "c", "d"])[y]


MODELS = {
    "svc": SVC(C=10),
    "svc broken ties": SVC(C=10, break_ties=True),
    "svc one-vs-one": SVC(C=10, decision_function_shape="ovo"),
    "svc linear": SVC(kernel="linear"),
    "nu": NuSVC(nu=0.2),
    "linear": LinearSVC(),
    "logistic": LogisticRegression(),
    "sgd": SGDClassifier(random_state=0),
    "ridge": RidgeClassifier(),
    "standard": make_pipeline(StandardScaler(), SVC(C=10)),
    "nested": make_pipeline(MinMaxScaler((0, 40)), make_pipeline(StandardScaler(), SVC(C=10))),
    "nested linear": make_pipeline(MinMaxScaler((0, 40)), make_pipeline(StandardScaler(), LogisticRegression())),
    "minmax": make_pipeline(MinMaxScaler((-2, 3)), SVC()),
    "two scalers": make_pipeline(RobustScaler(), MaxAbsScaler(), LogisticRegression()),
    "search": GridSearchCV(make_pipeline(StandardScaler(), SVC()), {"svc__C": [1, 10]}, cv=2),
    "rest of svc": OneVsRestClassifier(SVC(C=10)),
    "rest of scaled": OneVsRestClassifier(make_pipeline(StandardScaler(), LogisticRegression())),
    "rest of ours": OneVsRestClassifier(KernelSVC()),
    "rest of widths": OneVsRestClassifier(GridSearchCV(SVC(), {"gamma": [0.5, 2.0]}, cv=2)),
    "rest of features": OneVsRestClassifier(
        AdvSVM(expansion=DoublyStochastic(n_features=256), batch_size=50, passes=2, epsilon=1e-3)
    ),
}


SINGLE = [(name, np.float32) for name in ("svc", "logistic", "standard", "rest of ours", "two scalers")]


@pytest.mark.parametrize(("name", "dtype"), [(name, np.float64) for name in MODELS] + SINGLE)
def test_no_certified_point_of_a_fitted_model_is_broken(digits, name, dtype):
    X, y = digits[0].astype(dtype), digits[1]
    model = MODELS[name].fit(X[:400], y[:400])
    rows, labels = X[400:430], y[400:430]
    rng = np.random.default_rng(0)
    some = 0
    for norm, epsilon in (("linf", 0.01), ("linf", 0.08), ("l2", 0.03), ("l2", 0.2)):
        certified = certify(model, rows, labels, epsilon, norm)
        assert (model.predict(rows) == labels)[certified].all()
        some += certified.sum()
        for row in np.flatnonzero(certified):
            where = region(rows[row : row + 1].astype(np.float64), epsilon, norm, (0, 1))
            moves = where.lower + rng.choice([0.0, 0.5, 1.0, rng.random()], (400, 6)) * (where.upper - where.lower)
            length = np.linalg.norm(moves, axis=1, keepdims=True)
            moves *= np.minimum(1, where.radius / np.maximum(length, 1e-300)) * (1 - 1e-6)
            assert (model.predict((where.X + moves).astype(dtype)) == labels[row]).all()
    assert some > 0


def test_pairwise_machines_are_those_of_scikit_learn(digits):
    X, y = digits
    for model in (SVC(C=3, decision_function_shape="ovo"), NuSVC(nu=0.1, decision_function_shape="ovo")):
        scores = model.fit(X, y).decision_function(X[:50])
        contest = contest_of(model)
        for number, form in enumerate(contest.forms):
            np.testing.assert_allclose(form.quick(X[:50], np.ones(50)).margins, scores[:, number], atol=1e-9)
    two = y < "c"
    model = SVC().fit(X[two], y[two])
    form = contest_of(model).forms[0]
    np.testing.assert_allclose(form.quick(X[:50], np.ones(50)).margins, model.decision_function(X[:50]), atol=1e-9)


class OtherSVC(SVC):
    """As sklearnex has one: a subclass with the same attributes and arithmetic of its own."""


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
def test_only_scikit_learns_own_svc_is_taken_to_score_float32_rows_in_float64(digits, kernel):
    X, y = digits
    for kind, single, allowed in ((SVC, True, False), (OtherSVC, False, False), (OtherSVC, True, True)):
        contest = contest_of(kind(kernel=kernel).fit(X[:200], y[:200]), single)
        assert (contest.slack > 0) == allowed
        for form in contest.forms:
            assert (form.allowance > 0 if kernel == "rbf" else form.unit > 1e-10) == allowed


def test_raw_units_and_scaled_units_agree(digits):
    X, y = digits
    scaler = MinMaxScaler((0, 4)).fit(X)
    model = SVC(C=10, gamma=0.1).fit(scaler.transform(X), y)
    both = make_pipeline(scaler, model)
    low, high = scaler.transform(np.zeros((1, 6)))[0], scaler.transform(np.ones((1, 6)))[0]
    np.testing.assert_allclose(scaler.scale_, scaler.scale_[0])
    for norm, epsilon in (("linf", 0.03), ("l2", 0.1)):
        raw = certify(both, X, y, epsilon, norm)
        scaled = certify(model, scaler.transform(X), y, epsilon * scaler.scale_[0], norm, (low, high))
        assert abs(raw.mean() - scaled.mean()) < 0.01
        assert raw.any()
        assert not raw.all()


@pytest.mark.parametrize("last", [SVC(C=10), LogisticRegression()])
def test_a_pipeline_inside_a_pipeline_is_certified_like_a_flat_one(digits, last):
    X, y = digits
    steps = [MinMaxScaler((0, 40)), StandardScaler()]
    flat = make_pipeline(*steps, last).fit(X[:200], y[:200])
    nested = make_pipeline(steps[0], make_pipeline(*flat[1:]))
    found = [certify(model, X[200:260], y[200:260], 0.05, "linf") for model in (flat, nested)]
    assert np.array_equal(*found)
    assert found[0].any()


def test_underflow_to_a_score_of_zero_is_not_certified():
    # Far from all support vectors the computed sum is exactly 0: the label then is whatever a tie gives.
    X = np.array([[0.0], [1.0]])
    model = SVC(gamma=1e6).fit(X, [0, 1])
    far = np.array([[0.2], [0.8]])
    for labels in ([0, 1], [1, 0]):
        assert not certify(model, far, labels, 1e-3).any()


REFUSED = {
    "polynomial kernel": (SVC(kernel="poly"), "poly"),
    "callable kernel": (SVC(kernel=lambda a, b: a @ b.T), "callable"),
    "clipped": (make_pipeline(MinMaxScaler(clip=True), SVC()), "minmaxscaler"),
    "quantiles": (make_pipeline(QuantileTransformer(n_quantiles=10), SVC()), "quantiletransformer"),
    "products": (make_pipeline(PolynomialFeatures(), LinearSVC()), "polynomialfeatures"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_has_no_certificate_is_refused_in_one_line(digits, name):
    X, y = digits
    model, word = REFUSED[name]
    with pytest.raises(ValueError, match=word) as caught:
        certify(model.fit(X, y), X, y, 0.01)
    assert "\n" not in str(caught.value)
