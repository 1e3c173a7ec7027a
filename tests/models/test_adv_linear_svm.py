"""AdvLinearSVM: the optimum of the problem as Zhou et al. state it, in a fraction of its variables."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import check_estimator

from models import AdvLinearSVM
from models.grid import CrossValidation
from models.linear_columns import solve_columns
from models.linear_problem import FreeRangeProblem, best_intercept
from models.linear_solver import solve
from models.threat import Threat
from oracles_linear import full_problem, objective


def blobs(seed=0, n=60, d=5, noise=0.3):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(n, d))
    direction = rng.normal(size=d)
    scores = (X - 0.5) @ direction + noise * rng.normal(size=n)
    signs = np.where(scores > np.median(scores), 1, -1)
    return X, signs


def digits(classes=(1, 7)):
    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, classes)
    return X[kept] / 16, y[kept]


def attacked_rows(signs, attacked_class):
    return {"positive": signs > 0, "negative": signs < 0, "both": signs != 0}[attacked_class]


@pytest.mark.parametrize("attacked_class", ["positive", "negative", "both"])
@pytest.mark.parametrize("C", [0.125, 1.0, 8.0])
@pytest.mark.parametrize("fit_intercept", [True, False])
def test_it_reaches_the_optimum_of_the_full_problem(attacked_class, C, fit_intercept):
    X, signs = blobs()
    attacked, low, high = attacked_rows(signs, attacked_class), X.min(0), X.max(0)
    w, _, best = full_problem(X, signs, attacked, C, 0.1, low, high, fit_intercept)
    model = AdvLinearSVM(C=C, attacked_class=attacked_class, fit_intercept=fit_intercept, tol=1e-7).fit(X, signs)
    reached = objective(model.coef_[0], model.intercept_[0], X, signs, attacked, C, 0.1, low, high)
    assert reached == pytest.approx(best, rel=1e-4)
    assert model.objective_ == pytest.approx(reached, rel=1e-9)
    np.testing.assert_allclose(model.coef_[0], w, atol=1e-3 * np.linalg.norm(w))


@given(
    st.integers(0, 2**32 - 1),
    st.integers(4, 25),
    st.integers(1, 6),
    st.sampled_from([0.01, 1.0, 100.0]),
    st.sampled_from([0.0, 0.1, 0.7, 1.0]),
    st.sampled_from(["positive", "negative", "both"]),
)
@settings(max_examples=40, deadline=None)
def test_it_reaches_the_optimum_whatever_the_data(seed, n, d, C, C_f, attacked_class):
    X, signs = blobs(seed, n, d, noise=1.0)
    attacked, low, high = attacked_rows(signs, attacked_class), X.min(0), X.max(0)
    _, _, best = full_problem(X, signs, attacked, C, C_f, low, high)
    model = AdvLinearSVM(C=C, C_f=C_f, attacked_class=attacked_class).fit(X, signs)
    assert model.objective_ == pytest.approx(best, rel=1.1e-4)


@given(st.integers(0, 2**32 - 1), st.integers(2, 20))
@settings(max_examples=60, deadline=None)
def test_the_best_intercept_is_the_best_of_all_breaks(seed, n):
    rng = np.random.default_rng(seed)
    needed, signs = rng.normal(size=n), rng.choice([-1.0, 1.0], n)

    def hinge(b):
        return np.maximum(needed - signs * b, 0).sum()

    assert hinge(best_intercept(needed, signs)) <= min(hinge(b) for b in signs * needed) + 1e-12


def test_the_duality_gap_is_proven_and_below_the_tolerance():
    X, y = digits()
    model = AdvLinearSVM(C=0.5, tol=1e-6).fit(X, y)
    tighter = AdvLinearSVM(C=0.5, tol=1e-9).fit(X, y)
    assert 0 <= model.dual_gap_ <= 1e-6
    assert model.objective_ * (1 - model.dual_gap_) <= tighter.objective_ <= model.objective_ * (1 + 1e-9)


def test_working_sets_lead_to_the_same_optimum_as_all_rows_at_once():
    X, signs = blobs(3, n=900, d=8)
    problem = FreeRangeProblem(X, signs.astype(float), np.where(signs > 0, 0.1, 0.0), X.min(0), X.max(0), 1.0)
    whole = solve(problem, 1e-7, first=900)
    parts = solve(problem, 1e-7, first=40)
    assert parts.gap <= 1e-7
    assert parts.objective == pytest.approx(whole.objective, rel=1e-6)
    np.testing.assert_allclose(parts.weights, whole.weights, atol=1e-3 * np.linalg.norm(whole.weights))


def test_without_an_attacker_it_is_the_plain_linear_svm():
    X, y = digits()
    plain = SVC(kernel="linear", C=0.5, tol=1e-8).fit(X, y)
    model = AdvLinearSVM(C=0.5, C_f=0.0, tol=1e-8).fit(X, y)
    np.testing.assert_allclose(model.coef_[0], plain.coef_[0], atol=1e-3 * np.linalg.norm(plain.coef_))


def test_a_stronger_attacker_moves_the_boundary_away_from_the_attacked_class():
    X, y = digits()
    shares = [(AdvLinearSVM(C_f=C_f).fit(X, y).predict(X) == 7).mean() for C_f in (0.0, 0.9)]
    assert shares[1] > shares[0]


def test_the_default_box_is_that_of_the_training_data():
    X, signs = blobs()
    given_box = AdvLinearSVM(box=(X.min(0), X.max(0))).fit(X, signs)
    np.testing.assert_array_equal(given_box.coef_, AdvLinearSVM().fit(X, signs).coef_)
    assert AdvLinearSVM(box=(-1.0, 2.0)).fit(X, signs).objective_ > given_box.objective_


@pytest.mark.parametrize("box", [(0.2, 1.0), (1.0, 0.0)])
def test_a_box_that_cannot_be_is_refused(box):
    with pytest.raises(ValueError, match="box"):
        AdvLinearSVM(box=box).fit(*blobs())


def test_gradients_and_probes_are_exact():
    X, signs = blobs()
    model = AdvLinearSVM().fit(X, signs)
    scores, gradients = model.scores_and_gradients(X)
    np.testing.assert_array_equal(gradients, np.tile(model.coef_, (len(X), 1)))
    plus, minus = model.probe(X, [4, 1], 1e-3)
    for column, j in enumerate([4, 1]):
        np.testing.assert_allclose(plus[:, column], model.scores(X + 1e-3 * np.eye(5)[j]), rtol=1e-12, atol=1e-13)
        np.testing.assert_allclose(plus[:, column] - minus[:, column], 2e-3 * model.coef_[0, j], rtol=1e-9)
    np.testing.assert_array_equal(scores, model.decision_function(X))


def test_certified_radii_end_at_the_hyperplane():
    X, signs = blobs()
    model = AdvLinearSVM().fit(X, signs)
    radii = model.certified_radius(X, signs)
    margins = signs * model.scores(X)
    assert (radii[margins <= 0] == 0).all()
    toward = -np.outer(signs, model.coef_[0] / np.linalg.norm(model.coef_))
    right = margins > 0
    assert (signs * model.scores(X + 1.001 * radii[:, None] * toward) < 0)[right].all()
    assert (signs * model.scores(X + radii[:, None] * toward) > 0)[right].all()
    with pytest.raises(ValueError, match="bound"):
        model.certified_radius(X, signs, bound="sharp")


def test_the_training_curve_ends_at_the_solution():
    X, y = digits()
    seen = []
    model = AdvLinearSVM().fit(
        X[::2], y[::2], eval_set=(X[1::2], y[1::2]), observer=lambda *event, **values: seen.append((event, values))
    )
    assert len(model.curve_["iteration"]) <= 50
    staged = model.staged_scores(X[1::2])
    np.testing.assert_allclose(staged[-1], model.scores(X[1::2]), atol=1e-12)
    errors = np.mean(np.where(staged > 0, 7, 1) != y[1::2], axis=1)
    np.testing.assert_allclose(errors, model.curve_["test_error"])
    assert all(event[0] == "train" for event, _ in seen)
    assert {"norm", "objective", "test_error"} == seen[0][1].keys()


def test_too_few_steps_are_reported_with_the_gap():
    with pytest.warns(ConvergenceWarning, match="duality gap"):
        AdvLinearSVM(max_iter=2).fit(*blobs())


def sparse_images(n=400, d=100, seed=0):
    """Two noisy prototypes on a mostly black background, a few pixels always black: what MNIST looks like."""
    rng = np.random.default_rng(seed)
    prototypes = rng.uniform(size=(2, d)) * (rng.uniform(size=(2, d)) < 0.3)
    labels = rng.integers(0, 2, n)
    X = np.clip(prototypes[labels] * rng.uniform(0.2, 1.0, (n, 1)) + 0.35 * rng.normal(size=(n, d)), 0, 1)
    X[:, :10] = 0.0
    return X.astype(np.float32), np.where(labels > 0, 7, 1)


@pytest.mark.parametrize("data", [digits, lambda: digits((3, 8)), sparse_images])
def test_cross_validation_of_all_columns_at_once_agrees_with_separate_fits(data):
    X, y = data()
    Cs = [1.0, 0.01, 8.0]
    how = CrossValidation(3, "certified_accuracy", Threat("l2", box=None, epsilon=0.3), 10**6)
    found = AdvLinearSVM().cv_scores(X, y, {"C": Cs}, how)
    accuracy, certified = found.accuracy, found.robust
    assert accuracy.shape == certified.shape == (3, 3)
    assert (certified <= accuracy).all()
    numbers = CrossValidation(3).assign((y == y.max()).astype(int))
    for place, C in enumerate(Cs):
        for fold in range(3):
            held_out = numbers == fold
            alone = AdvLinearSVM(C=C).fit(X[~held_out], y[~held_out])
            rows_off = (alone.score(X[held_out], y[held_out]) - accuracy[place, fold]) * held_out.sum()
            assert abs(rows_off) <= 2.01
            share = np.mean(alone.certified_radius(X[held_out], y[held_out]) >= 0.3)
            assert certified[place, fold] == pytest.approx(share, abs=0.03)


@pytest.mark.parametrize("attacked_class", ["positive", "negative", "both"])
@pytest.mark.parametrize("fit_intercept", [True, False])
@pytest.mark.parametrize("C_f", [0.0, 0.1, 1.0])
def test_columns_reach_the_optimum_of_their_own_rows_within_the_proven_gap(attacked_class, fit_intercept, C_f):
    X, signs = blobs(n=150, d=8)
    strength = np.where(attacked_rows(signs, attacked_class), C_f, 0.0)
    problem = FreeRangeProblem(X, signs.astype(float), strength, X.min(0), X.max(0), 1.0, fit_intercept)
    trained = np.arange(150)[:, None] % 3 != np.array([0, 1, 2])
    Cs = np.array([0.05, 1.0, 20.0])
    found = solve_columns(problem, Cs, trained, tol=1e-3, max_iter=1000)
    assert (found.gaps <= 1e-3).all()
    for column, C in enumerate(Cs):
        alone = replace(problem.restrict(np.flatnonzero(trained[:, column])), C=C)
        w, b = found.weights[:, column], found.intercepts[column]
        hinge = np.maximum(alone.needed(w, alone.project(w)) - alone.signs * b, 0.0).sum()
        best = solve(alone, 1e-7).objective
        assert best * (1 - 1e-6) <= 0.5 * w @ w + C * hinge <= best * (1 + 1.1e-3)


def test_tuning_reports_how_many_columns_are_done():
    X, y = digits()
    seen = []
    AdvLinearSVM().cv_scores(
        X, y, {"C": [0.1, 1.0]}, CrossValidation(folds=2, observer=lambda *event: seen.append(event))
    )
    assert seen[-1] == ("tune", 4, 4)
    assert all(0 <= done <= total == 4 for _, done, total in seen)


def test_columns_of_data_without_variance_stay_finite():
    found = AdvLinearSVM().cv_scores(np.ones((20, 3)), np.arange(20) % 2, {"C": [0.1, 10.0]}, CrossValidation(folds=2))
    assert (found.accuracy == 0.5).all()


@pytest.mark.parametrize("model", [AdvLinearSVM(), AdvLinearSVM(attacked_class="both", fit_intercept=False)])
def test_scikit_learns_own_checks_pass(model):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(model, on_skip=None)
    assert not model.__sklearn_tags__().classifier_tags.multi_class


def test_it_works_with_scikit_learns_tools():
    X, y = digits((0, 1, 2))
    assert clone(AdvLinearSVM(C_f=0.3)).C_f == 0.3
    search = GridSearchCV(make_pipeline(MinMaxScaler(), AdvLinearSVM()), {"advlinearsvm__C": [0.1, 1.0]}, cv=2)
    two = y != 2
    assert search.fit(X[two], y[two]).best_score_ > 0.95
    assert OneVsRestClassifier(AdvLinearSVM()).fit(X, y).score(X, y) > 0.9


@pytest.mark.parametrize(
    ("parameter", "value"), [("C", 0.0), ("C", -1.0), ("C_f", 1.5), ("attacked_class", "none"), ("tol", 0.0)]
)
def test_settings_out_of_range_are_named(parameter, value):
    with pytest.raises(ValueError, match=f"^{parameter} must be"):
        AdvLinearSVM(**{parameter: value}).fit(*blobs())


def test_bad_data_is_refused_as_scikit_learn_users_expect():
    X, signs = blobs()
    with pytest.raises(ValueError, match="one class"):
        AdvLinearSVM().fit(X, np.ones(len(X)))
    with pytest.raises(ValueError, match="binary"):
        AdvLinearSVM().fit(X, np.arange(len(X)) % 3)
    with pytest.raises(ValueError, match="NaN"):
        AdvLinearSVM().fit(np.where(X > 0.9, np.nan, X), signs)
    model = AdvLinearSVM().fit(X, signs)
    with pytest.raises(ValueError, match="features"):
        model.predict(X[:, :3])
    with pytest.raises(ValueError, match="label"):
        model.certified_radius(X, np.where(signs > 0, 5, -1))


def test_constant_features_get_no_weight():
    X, signs = blobs()
    model = AdvLinearSVM().fit(np.c_[X, np.full(len(X), 0.3)], signs)
    assert abs(model.coef_[0, -1]) < 1e-3


def test_data_without_any_variance_does_not_break_it():
    model = AdvLinearSVM().fit(np.ones((10, 3)), np.arange(10) % 2)
    assert np.isfinite(model.scores(np.ones((2, 3)))).all()
