"""AdvSVM as users and attacks see it."""

import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import (
    RBF,
    AdvSVM,
    DivergenceWarning,
    DoublyStochastic,
    FixedFeatures,
    Laplacian,
    PenaltyTooLargeWarning,
    SupportVectors,
    load,
    save,
)
from oracles_models import central_differences, kernel_matrix, strongest_point_within

EXPANSIONS = [DoublyStochastic(n_features=64), FixedFeatures(n_features=256), SupportVectors()]
KERNELS = [RBF(width_scale=2.0), Laplacian(width_scale=0.5)]
every_model = pytest.mark.parametrize("expansion", EXPANSIONS, ids=lambda e: e.name)
every_kernel = pytest.mark.parametrize("kernel", KERNELS, ids=lambda k: k.name)


def problem(n=240, d=6, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 > 0.9, 1, -1)


def fitted(X, y, **settings):
    settings = {"batch_size": 32, "C": 2.0, "epsilon": 0.01} | settings
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PenaltyTooLargeWarning)
        return AdvSVM(**settings).fit(X, y)


@every_model
@every_kernel
@pytest.mark.parametrize("passes", [1, 3])
def test_gradients_equal_central_differences(expansion, kernel, passes):
    X, y = problem()
    model = fitted(X, y, expansion=expansion, kernel=kernel, passes=passes)
    points = np.random.default_rng(9).random((20, 6))
    scores, gradients = model.scores_and_gradients(points)
    np.testing.assert_allclose(scores, model.scores(points), atol=1e-12)
    exact = central_differences(model.scores, points, h=1e-7 if kernel.name == "laplacian" else 1e-5)
    np.testing.assert_allclose(gradients, exact, atol=1e-4 * np.abs(exact).max())


@every_model
@every_kernel
@pytest.mark.parametrize("h", [1e-4, 0.05, 2.0])
def test_probes_are_the_scores_themselves(expansion, kernel, h):
    X, y = problem()
    model = fitted(X, y, expansion=expansion, kernel=kernel)
    points, coords = X[:15], np.array([4, 0, 4])
    plus, minus = model.probe(points, coords, h)
    for column, j in enumerate(coords):
        move = h * np.eye(6)[j]
        np.testing.assert_allclose(plus[:, column], model.scores(points + move), atol=1e-10)
        np.testing.assert_allclose(minus[:, column], model.scores(points - move), atol=1e-10)


@every_model
@every_kernel
def test_probe_differences_do_not_cancel_in_float32(expansion, kernel):
    X, y = problem()
    single = fitted(X, y, expansion=expansion, kernel=kernel, dtype="float32")
    double = fitted(X, y, expansion=expansion, kernel=kernel, dtype="float64")
    coords, h = np.arange(6), 1e-4
    differences = []
    for model in (single, double):
        plus, minus = model.probe(X[:20], coords, h)
        differences.append(plus - minus)
    # A difference of float32 scores would keep about one digit here. The Laplacian's heavy-tailed frequencies make
    # angles so large that float32 knows them to two digits only.
    tolerance = 2e-3 if kernel.name == "rbf" or expansion.name == "support_vectors" else 5e-2
    np.testing.assert_allclose(differences[0], differences[1], atol=tolerance * np.abs(differences[1]).max())


@every_model
@every_kernel
def test_single_precision_agrees_with_double(expansion, kernel):
    X, y = problem()
    single = fitted(X.astype(np.float32), y, expansion=expansion, kernel=kernel)
    double = fitted(X.astype(np.float32).astype(np.float64), y, expansion=expansion, kernel=kernel)
    assert single.scores_and_gradients(X)[1].dtype == np.float32
    assert double.scores_and_gradients(X)[1].dtype == np.float64
    np.testing.assert_allclose(single.scores(X), double.scores(X), atol=1e-3)


@every_model
@pytest.mark.parametrize("decay", ["literal", "proximal"])
def test_zero_epsilon_is_natural_bit_for_bit(expansion, decay):
    """No special case: the limit ε → 0 and ε = 0 are one path, and both decays are the same without a penalty."""
    X, y = problem()
    natural = fitted(X, y, expansion=expansion, epsilon=0.0)
    assert (fitted(X, y, expansion=expansion, epsilon=0.0, decay=decay).scores(X) == natural.scores(X)).all()
    assert (fitted(X, y, expansion=expansion, epsilon=1e-200, decay=decay).scores(X) == natural.scores(X)).all()


@every_model
def test_one_seed_one_model(expansion):
    X, y = problem()
    first, again = (fitted(X, y, expansion=expansion, random_state=5).scores(X) for _ in range(2))
    assert (first == again).all()
    assert (fitted(X, y, expansion=expansion, random_state=6).scores(X) != first).any()


@every_model
@pytest.mark.parametrize("passes", [1, 2])
def test_curves_and_stages_tell_the_same_story(expansion, passes):
    X, y = problem()
    X_test, y_test = problem(seed=1)
    seen = []
    model = AdvSVM(expansion=expansion, batch_size=32, passes=passes, epsilon=0.0)
    model.fit(
        X, y, eval_set=(X_test, y_test), observer=lambda event, step, total, **v: seen.append((event, step, total, v))
    )
    stages = model.staged_scores(X_test)
    assert stages.shape == (model.n_iter_, len(X_test)) == (8 * passes, len(X_test))
    np.testing.assert_allclose(stages[-1], model.scores(X_test), atol=1e-12)
    np.testing.assert_array_equal(((stages > 0) != (y_test > 0)).mean(1), model.curve_["test_error"])
    assert [step for _, step, _, _ in seen] == list(range(1, model.n_iter_ + 1))
    assert {event for event, *_ in seen} == {"train"}
    assert [v["test_error"] for *_, v in seen] == model.curve_["test_error"].tolist()
    assert [v["norm"] for *_, v in seen] == model.curve_["norm"].tolist()


def test_observers_hear_at_most_a_few_hundred_times():
    X, y = problem(n=1000)
    calls = []
    AdvSVM(expansion=DoublyStochastic(n_features=4), batch_size=1).fit(X, y, observer=lambda *a, **k: calls.append(a))
    assert 100 <= len(calls) <= 400
    assert calls[-1][1:] == (1000, 1000)


@every_model
@every_kernel
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_saved_model_is_the_same_model(expansion, kernel, dtype, tmp_path):
    X, y = problem()
    labels = np.where(y > 0, "seven", "one")
    model = fitted(X, labels, expansion=expansion, kernel=kernel, dtype=dtype, passes=2)
    radii = model.certified_radius(X[:20], labels[:20])
    save(model, tmp_path)
    again = load(tmp_path)
    assert (again.scores(X) == model.scores(X)).all()
    assert (again.scores_and_gradients(X)[1] == model.scores_and_gradients(X)[1]).all()
    assert (again.staged_scores(X) == model.staged_scores(X)).all()
    assert (again.predict(X) == model.predict(X)).all()
    assert (again.certified_radius(X[:20], labels[:20]) == radii).all()
    assert again.get_params()["C"] == 2.0
    assert (again.curve_["norm"] == model.curve_["norm"]).all()


# -- certificates ------------------------------------------------------------------------------------------------------
@every_model
@every_kernel
@settings(max_examples=5, deadline=None)
@given(seed=st.integers(0, 2**20))
def test_certificates_are_never_beaten_by_gradient_descent_inside_the_radius(expansion, kernel, seed):
    X, y = problem(seed=seed)
    model = fitted(X, y, expansion=expansion, kernel=kernel, C=8.0, random_state=seed % 100)
    points, labels = X[:40], y[:40]
    radii = model.certified_radius(points, labels)
    right = model.predict(points) == labels
    assert (radii[~right] == 0).all()
    lowest = strongest_point_within(model, points[right], labels[right].astype(float), radii[right])
    assert (lowest >= 0).all()


def test_sharp_bound_is_never_below_the_papers():
    X, y = problem()
    model = fitted(X, y, expansion="support_vectors")
    assert (
        model.certified_radius(X, y, bound="sharp") >= model.certified_radius(X, y, bound="paper") * (1 - 1e-9)
    ).all()
    assert (model.certified_radius(X, y) == model.certified_radius(X, y, bound="sharp")).all()


def test_bounds_that_do_not_hold_are_refused():
    X, y = problem()
    with pytest.raises(ValueError, match="second_order"):
        fitted(X, y, expansion=EXPANSIONS[0]).certified_radius(X, y, bound="paper")
    with pytest.raises(ValueError, match="paper"):
        fitted(X, y, expansion="support_vectors", kernel="laplacian").certified_radius(X, y, bound="sharp")


# -- what can go wrong -------------------------------------------------------------------------------------------------
@every_model
@pytest.mark.parametrize("step", [2.5, 8.0])
def test_a_diverging_step_stays_finite_and_says_so(expansion, step):
    X, y = problem(n=2000)
    model = AdvSVM(expansion=expansion, step=step, C=8.0, batch_size=20)
    with pytest.warns(DivergenceWarning, match="step"):
        model.fit(X, y)
    assert model.diverged_
    scores, gradients = model.scores_and_gradients(X)
    assert np.isfinite(scores).all()
    assert np.isfinite(gradients).all()
    assert np.isfinite(model.norm_)


def test_a_hopeless_penalty_ends_at_zero_with_the_proximal_decay_and_says_so():
    X, y = problem(n=600)
    model = AdvSVM(expansion="support_vectors", epsilon=3.0, decay="proximal", C=8.0, batch_size=20)
    with pytest.warns(PenaltyTooLargeWarning, match="epsilon"):
        model.fit(X, y)
    assert model.penalty_too_large_
    assert model.norm_ == 0.0
    assert (model.scores(X) == 0).all()
    assert (model.certified_radius(X, y) == 0).all()


def test_a_hopeless_penalty_is_noticed_with_the_literal_decay_too():
    X, y = problem(n=600)
    with pytest.warns(PenaltyTooLargeWarning, match="epsilon"):
        AdvSVM(expansion="support_vectors", epsilon=3.0, C=8.0, batch_size=20).fit(X, y)


def test_a_sensible_penalty_is_silent():
    X, y = problem(n=600)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert not AdvSVM(expansion="support_vectors", C=2.0, batch_size=60).fit(X, y).penalty_too_large_


def test_a_batch_larger_than_the_data_is_the_data():
    X, y = problem(n=50)
    with pytest.warns(UserWarning, match="batch_size=500 is larger than n_samples=50"):
        large = AdvSVM(batch_size=500, expansion="support_vectors").fit(X, y)
    assert (large.scores(X) == AdvSVM(batch_size=50, expansion="support_vectors").fit(X, y).scores(X)).all()


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"C": 0.0}, "C"),
        ({"C": -1.0}, "C"),
        ({"step": 0.0}, "step"),
        ({"epsilon": -0.1}, "epsilon"),
        ({"batch_size": 0}, "batch_size"),
        ({"passes": 0}, "passes"),
        ({"kernel": "cubic"}, "kernel"),
        ({"expansion": "wavelets"}, "expansion"),
        ({"schedule": "cosine"}, "schedule"),
        ({"decay": "none"}, "decay"),
    ],
)
def test_impossible_settings_name_themselves(settings, name):
    X, y = problem(n=20)
    with pytest.raises(ValueError, match=f"^{name} must be"):
        AdvSVM(**settings).fit(X, y)


def test_bad_data_gets_the_errors_scikit_learn_users_expect():
    X, y = problem(n=30)
    with pytest.raises(ValueError, match="Only binary classification is supported"):
        AdvSVM().fit(X, np.arange(30) % 3)
    with pytest.raises(ValueError, match="one class"):
        AdvSVM().fit(X, np.ones(30))
    for value, word in ((np.nan, "NaN"), (np.inf, "infinity")):
        spoilt = X.copy()
        spoilt[3, 2] = value
        with pytest.raises(ValueError, match=word):
            AdvSVM().fit(spoilt, y)
    with pytest.raises(ValueError, match="median distance"):
        AdvSVM(batch_size=10).fit(np.ones((30, 4)), y)
    model = fitted(X, y, expansion="support_vectors", batch_size=10)
    for method in (model.predict, model.scores, model.scores_and_gradients):
        with pytest.raises(ValueError, match="X has 5 features, but AdvSVM is expecting 6"):
            method(X[:, :5])
    with pytest.raises(ValueError, match="label 7"):
        model.certified_radius(X, np.full(30, 7))


@every_model
def test_data_may_be_a_memory_map_of_bytes(expansion, tmp_path):
    X, y = problem()
    mapped = np.memmap(tmp_path / "X.bin", dtype=np.uint8, mode="w+", shape=X.shape)
    mapped[:] = X * 255
    mapped.flush()
    model = fitted(np.memmap(tmp_path / "X.bin", dtype=np.uint8, mode="r", shape=X.shape), y, expansion=expansion)
    plain = fitted(np.asarray(mapped).astype(np.float32), y, expansion=expansion)
    assert (model.scores(mapped) == plain.scores(mapped)).all()


def test_scores_are_the_kernel_sum_over_the_support_vectors():
    X, y = problem()
    model = fitted(X, y, expansion="support_vectors")
    vectors, weights = (part.numpy() for part in model.expansion_.live())
    exact = kernel_matrix("rbf", X, vectors, model.gamma_) @ weights[:, 0]
    np.testing.assert_allclose(model.scores(X), exact, atol=1e-12)
