"""Tail averaging: the mean of the last half of the iterates, in every expansion and everything made of one."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models import RBF, AdvSVM, DoublyStochastic, FixedFeatures, SupportVectors, load, save
from models.batches import RowSource, fold_batches, shuffled_batches
from models.expansions import KernelSpace
from models.grid import CrossValidation
from models.reference import algorithm1
from models.threat import Threat
from models.training import Columns, train_columns
from oracles_models import central_differences, kernel_matrix, strongest_point_within

EXPANSIONS = [DoublyStochastic(n_features=32), FixedFeatures(n_features=64), SupportVectors()]
every_model = pytest.mark.parametrize("expansion", EXPANSIONS, ids=lambda e: e.name)


def problem(n=203, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n) > 0.9, 1, -1)


def machine(expansion, averaging="tail", **given):
    return AdvSVM(expansion=expansion, averaging=averaging, **{"batch_size": 20, "passes": 3, "C": 4.0, **given})


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 1000), passes=st.integers(1, 3), step=st.floats(0.05, 1.2), diminishing=st.booleans())
def test_it_is_the_mean_of_the_reference_iterates(seed, passes, step, diminishing):
    X, y = problem(n=60, seed=seed)
    schedule = "diminishing" if diminishing else "constant"
    kernel = RBF(gamma=2.0)
    model = machine(SupportVectors(), batch_size=7, passes=passes, step=step, schedule=schedule, kernel=kernel)
    model.fit(X, y)
    K = kernel_matrix("rbf", X, X, 2.0)
    penalty = kernel.penalty(model.epsilon, 2.0)
    batches = shuffled_batches(len(X), 7, passes, 0)
    iterates = algorithm1(K, y, batches, C=4.0, step=step, penalty=penalty, diminishing=diminishing)
    mean = iterates[len(batches) // 2 :].mean(0)
    scale = np.abs(K @ mean).max() + 1
    np.testing.assert_allclose(model.scores(X), K @ mean, atol=1e-9 * scale)
    assert model.expansion_.squared_norm() == pytest.approx(mean @ K @ mean, rel=1e-8, abs=1e-9)


@every_model
@pytest.mark.parametrize("passes", [1, 3])
def test_it_is_the_mean_of_the_stages_of_the_plain_model(expansion, passes):
    X, y = problem()
    plain = machine(expansion, "none", passes=passes).fit(X, y)
    model = machine(expansion, passes=passes).fit(X, y, eval_set=(X, y))
    stages, tail = plain.staged_scores(X), plain.n_iter_ // 2
    np.testing.assert_allclose(model.scores(X), stages[tail:].mean(0), atol=1e-9)
    staged = model.staged_scores(X)
    np.testing.assert_allclose(staged[:tail], stages[:tail], atol=1e-12)
    np.testing.assert_allclose(staged[-1], model.scores(X), atol=1e-9)
    # The curve is that of the stages, as for the plain model.
    errors = ((staged > 0) != (y > 0)).mean(1)
    np.testing.assert_allclose(model.curve_["test_error"], errors, atol=1e-12)


@every_model
def test_gradients_and_probes_are_those_of_the_mean(expansion):
    X, y = problem()
    model = machine(expansion).fit(X, y)
    points = X[:6]
    np.testing.assert_allclose(
        model.scores_and_gradients(points)[1], central_differences(model.scores, points), atol=1e-6
    )
    plus, minus = model.prober().probe(points, [1, 3], 1e-2)
    for place, j in enumerate((1, 3)):
        move = 1e-2 * np.eye(X.shape[1])[j]
        np.testing.assert_allclose(plus[:, place], model.scores(points + move), atol=1e-9)
        np.testing.assert_allclose(minus[:, place], model.scores(points - move), atol=1e-9)


@every_model
def test_no_attack_beats_its_certificate(expansion):
    X, y = problem()
    model = machine(expansion, epsilon=0.0, kernel=RBF(width_scale=1.0)).fit(X, y)
    radii = model.certified_radius(X, y)
    assert radii.max() > 0
    held = radii > 0
    lowest = strongest_point_within(model, X[held], y[held].astype(float), np.minimum(radii[held], 10.0))
    assert (lowest > 0).all()


@every_model
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_it_survives_saving(expansion, dtype, tmp_path):
    X, y = problem()
    model = machine(expansion, dtype=dtype).fit(X, y)
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.averaging == "tail"
    np.testing.assert_array_equal(again.scores(X), model.scores(X))
    # Where an array begins in memory decides how its products are summed: the last bit is not promised.
    last = 64 * np.finfo(dtype).eps
    np.testing.assert_allclose(again.staged_scores(X), model.staged_scores(X), rtol=last, atol=last)
    np.testing.assert_array_equal(again.certified_radius(X[:9], y[:9]), model.certified_radius(X[:9], y[:9]))


@every_model
@pytest.mark.parametrize("passes", [1, 3])
def test_a_column_of_the_grid_is_the_averaged_model(expansion, passes):
    """With two folds a column trains on one half: the same batches alone give the same held-out accuracy."""
    X, y = problem()
    kernel = RBF(gamma=2.0)
    model = machine(expansion, kernel=kernel, passes=passes)
    how = CrossValidation(2, "robust_accuracy", Threat("linf", 0.02, None), 10**6, random_state=7)
    found = model.cv_scores(X, y, {"C": [0.5, 4.0], "step": [0.1, 0.9]}, how)
    last = machine(expansion, "none", kernel=kernel, passes=passes).cv_scores(
        X, y, {"C": [0.5, 4.0], "step": [0.1, 0.9]}, how
    )
    assert not np.array_equal(found.accuracy, last.accuracy)
    numbers = how.assign(y)
    for place, setting in enumerate(found.settings):
        for fold in range(2):
            space = KernelSpace(kernel, (2.0,), 5, model._torch_dtype(X), 7)
            alone = expansion.begin(space, 1)
            batches = [b[numbers[b] != fold] for b in fold_batches(numbers, 20, passes, 7)]
            penalty = kernel.penalty(model.epsilon, 2.0)
            one = Columns(np.array([setting["C"]]), np.array([setting["step"]]), np.array([penalty]))
            train_columns(alone, RowSource(X, space.dtype), y.astype(float), batches, one, averaging=True)
            held_out = np.flatnonzero(numbers == fold)
            points = RowSource(X, space.dtype).view(held_out).X
            scores, gradients = (part.numpy()[:, 0] for part in alone.scores_and_gradients(points))
            margins = y[held_out] * scores
            assert found.accuracy[place, fold] == pytest.approx(np.mean(margins > 0), abs=1e-12)
            assert found.robust[place, fold] == pytest.approx(np.mean(margins > 0.02 * np.abs(gradients).sum(1)))


def test_it_calms_the_last_iterate_of_a_constant_step():
    X, y = problem(n=400, seed=3)
    spread = {}
    for averaging in ("none", "tail"):
        accuracies = [
            machine(SupportVectors(), averaging, step=0.5, random_state=seed, passes=5).fit(X, y).score(X, y)
            for seed in range(8)
        ]
        spread[averaging] = np.std(accuracies)
    assert spread["tail"] < spread["none"]


def test_none_is_the_default_and_changes_nothing():
    X, y = problem()
    np.testing.assert_array_equal(
        AdvSVM(batch_size=20, passes=1).fit(X, y).scores(X),
        AdvSVM(batch_size=20, passes=1, averaging="none").fit(X, y).scores(X),
    )
