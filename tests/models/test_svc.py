"""KernelSVC: scikit-learn's SVC, score for score, with gradients, probes and certificates."""

import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from models import RBF, KernelSVC
from models.grid import CrossValidation
from models.threat import Threat
from oracles_certificates import lowest_margin


def digits(classes=(1, 7), dtype=np.float64):
    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, classes)
    return (X[kept] / 16).astype(dtype), y[kept]


@pytest.fixture(autouse=True)
def _scikit_learns_own(monkeypatch):
    """Whatever is installed: tests/models/test_fast_svc.py is about the other one."""
    monkeypatch.setattr("models.svc.fastest_svc", lambda: SVC)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scores_are_those_of_scikit_learns_svc(dtype):
    X, y = digits((3, 8), dtype)
    model = KernelSVC(C=2.0).fit(X, y)
    peer = SVC(C=2.0, gamma=model.gamma_).fit(X, y)
    np.testing.assert_allclose(model.scores(X), peer.decision_function(X), atol=1e-4 if dtype == np.float32 else 1e-10)
    np.testing.assert_array_equal(model.predict(X), peer.predict(X))
    assert model.n_support_ == peer.n_support_.sum()


def test_the_width_is_the_median_rule_of_the_other_models():
    X, y = digits()
    assert KernelSVC(width_scale=2.0).fit(X, y).gamma_ == RBF(width_scale=2.0).resolve_gamma(X, 0)
    assert KernelSVC(gamma=0.7).fit(X, y).gamma_ == 0.7


def test_the_norm_is_that_of_the_gram_matrix():
    X, y = digits()
    model = KernelSVC().fit(X, y)
    peer = SVC(gamma=model.gamma_).fit(X, y)
    sv = peer.support_vectors_
    gram = np.exp(-model.gamma_ * ((sv[:, None] - sv) ** 2).sum(2))
    assert model.norm_ == pytest.approx(float(np.sqrt(peer.dual_coef_[0] @ gram @ peer.dual_coef_[0])), rel=1e-9)


def test_libsvm_is_given_a_kernel_matrix_only_where_one_fits(monkeypatch):
    X, y = digits((3, 8))
    whole = KernelSVC(C=2.0).fit(X, y)
    monkeypatch.setattr("models.svc.TUNING_ROWS", (10, 10))
    rows = KernelSVC(C=2.0).fit(X, y)
    np.testing.assert_allclose(whole.scores(X), rows.scores(X), atol=1e-9)
    with pytest.raises(ValueError, match="rank needs dense rows, at most 10"):
        KernelSVC(rank=5).fit(X, y)


@pytest.mark.parametrize("classes", [(3, 8), (1, 3, 8)])
def test_a_few_coordinates_give_nearly_the_same_machine(classes):
    X, y = digits(classes)
    train, test = slice(None, None, 2), slice(1, None, 2)
    rough, one, exact = (
        KernelSVC(C=8.0, rank=rank).for_classes(len(classes)).fit(X[train], y[train]) for rank in (30, 1, None)
    )
    agreed = [np.mean(model.predict(X[test]) == exact.predict(X[test])) for model in (rough, one)]
    assert agreed[0] >= 0.98
    # The setting is heeded; of more classes it only finds the support vectors.
    assert agreed[1] < agreed[0] or len(classes) > 2


def test_with_all_coordinates_it_is_the_same_machine_and_grid():
    X, y = digits((3, 8))
    every, exact = (KernelSVC(C=2.0, rank=rank).fit(X, y) for rank in (64, None))
    np.testing.assert_allclose(every.scores(X), exact.scores(X), atol=5e-3)  # libsvm's tolerance
    found = [
        KernelSVC(rank=rank).cv_scores(X, y, {"C": [1.0, 8.0], "width_scale": [1.0, 4.0]}, CrossValidation(3)).accuracy
        for rank in (64, None)
    ]
    np.testing.assert_allclose(*found, atol=0.01)


def test_gradients_are_those_of_finite_differences():
    X, y = digits()
    model = KernelSVC().fit(X, y)
    _, gradients = model.scores_and_gradients(X[:5])
    for j in (10, 20, 35):
        move = 1e-5 * np.eye(X.shape[1])[j]
        slope = (model.scores(X[:5] + move) - model.scores(X[:5] - move)) / 2e-5
        np.testing.assert_allclose(gradients[:, j], slope, atol=1e-7)


def test_probes_are_the_scores_of_moved_points():
    X, y = digits()
    model = KernelSVC().fit(X, y)
    plus, minus = model.probe(X[:6], [3, 20], 0.05)
    for column, j in enumerate([3, 20]):
        move = 0.05 * np.eye(X.shape[1])[j]
        np.testing.assert_allclose(plus[:, column], model.scores(X[:6] + move), atol=1e-10)
        np.testing.assert_allclose(minus[:, column], model.scores(X[:6] - move), atol=1e-10)


@pytest.mark.parametrize("classes", [(1, 7), (3, 8), (0, 6)])
def test_no_attack_inside_the_certified_radius_changes_the_label(classes):
    X, y = digits(classes)
    model = KernelSVC(C=4.0).fit(X[::2], y[::2])
    rows, labels = X[1::2][:25], y[1::2][:25]
    radii = model.certified_radius(rows, labels)
    rng = np.random.default_rng(0)
    for x, label, radius in zip(rows, labels, radii):
        sign = 1.0 if label == classes[1] else -1.0
        found = lowest_margin(
            lambda z: model.scores(z[None])[0],
            lambda z: model.scores_and_gradients(z[None])[1][0],
            x,
            sign,
            radius,
            rng.normal(size=(1, len(x))),
            steps=15,
        )
        assert found > 0 or radius == 0


def test_the_sharp_bound_beats_the_papers_by_far():
    X, y = digits((3, 8))
    model = KernelSVC().fit(X[::2], y[::2])
    sharp = model.certified_radius(X[1::2], y[1::2])
    paper = model.certified_radius(X[1::2], y[1::2], bound="paper")
    assert (sharp >= paper).all()
    assert np.median(sharp) > 1.5 * np.median(paper)
    wrong = model.predict(X[1::2]) != y[1::2]
    assert (sharp[wrong] == 0).all()
    with pytest.raises(ValueError, match="bound"):
        model.certified_radius(X, y, bound="linear")


def test_cross_validation_on_one_kernel_matrix_equals_separate_fits():
    X, y = digits((3, 8))
    Cs = [0.1, 1.0, 10.0]
    found = KernelSVC().cv_scores(
        X, y, {"C": Cs}, CrossValidation(3, "certified_accuracy", Threat("l2", box=None, epsilon=0.2), 10**6, 1)
    )
    accuracy, certified = found.accuracy, found.robust
    gamma = RBF().resolve_gamma(X, 0)
    numbers = CrossValidation(3, random_state=1).assign((y == 8).astype(int))
    for place, C in enumerate(Cs):
        for fold in range(3):
            train, test = numbers != fold, numbers == fold
            alone = KernelSVC(C=C, gamma=gamma).fit(X[train], y[train])
            assert accuracy[place, fold] == alone.score(X[test], y[test])
            assert certified[place, fold] == np.mean(alone.certified_radius(X[test], y[test]) >= 0.2)


def test_the_curve_is_its_one_entry():
    X, y = digits()
    seen = []
    model = KernelSVC().fit(X, y, eval_set=(X, y), observer=lambda *event, **values: seen.append((event, values)))
    assert model.curve_["test_error"].tolist() == [1 - model.score(X, y)]
    assert model.staged_scores(X).shape == (1, len(X))
    assert seen == [(("train", 1, 1), {"test_error": model.curve_["test_error"][0]})]


def test_scikit_learns_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(KernelSVC(), on_skip=None)
    assert not KernelSVC().__sklearn_tags__().classifier_tags.multi_class


def test_it_works_with_scikit_learns_tools():
    X, y = digits((0, 1, 2))
    assert clone(KernelSVC(width_scale=2.5)).width_scale == 2.5
    two = y != 2
    search = GridSearchCV(make_pipeline(MinMaxScaler(), KernelSVC()), {"kernelsvc__C": [0.1, 1.0]}, cv=2)
    assert search.fit(X[two], y[two]).best_score_ > 0.95
    assert OneVsRestClassifier(KernelSVC()).fit(X, y).score(X, y) > 0.95


@pytest.mark.parametrize(("parameter", "value"), [("C", 0.0), ("width_scale", -1.0), ("gamma", 0.0), ("tol", -1.0)])
def test_settings_out_of_range_are_named(parameter, value):
    with pytest.raises(ValueError, match=f"^{parameter} must be"):
        KernelSVC(**{parameter: value}).fit(*digits())


def test_bad_data_is_refused_as_scikit_learn_users_expect():
    X, y = digits()
    with pytest.raises(ValueError, match="one class"):
        KernelSVC().fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="binary"):
        KernelSVC().fit(X, np.arange(len(X)) % 3)
    with pytest.raises(ValueError, match="NaN"):
        KernelSVC().fit(np.where(X > 0.9, np.nan, X), y)
    with pytest.raises(ValueError, match="median distance"):
        KernelSVC().fit(np.ones((10, 3)), np.arange(10) % 2)
    with pytest.raises(ValueError, match="features"):
        KernelSVC().fit(X, y).predict(X[:, :3])
