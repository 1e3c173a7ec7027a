"""``adversary="input"``: every batch is moved, in the threat's own ball, against the function so far."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.utils.estimator_checks import check_estimator

from models import (
    RBF,
    AdvSVM,
    DoublyStochastic,
    FixedFeatures,
    Laplacian,
    SupportVectors,
    descent,
    grid_search,
    load,
    save,
)
from models.batches import shuffled_batches
from models.grid import FoldScores, choose, standard_error
from models.reference import fresh_examples
from models.threat import Threat
from models.training import FreshExamples
from oracles_models import strongest_point_within

EXPANSIONS = [DoublyStochastic(n_features=32), FixedFeatures(n_features=64), SupportVectors()]
every_model = pytest.mark.parametrize("expansion", EXPANSIONS, ids=lambda e: e.name)
BOX = (0.0, 1.0)


def problem(n=203, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n) > 0.9, 1, -1)


def machine(expansion="support_vectors", **given):
    wanted = {"batch_size": 20, "passes": 2, "C": 4.0, "schedule": "diminishing", "step": 1.0, "epsilon": 0.1}
    return AdvSVM(expansion=expansion, **{**wanted, "adversary": "input", "box": BOX, **given})


@settings(max_examples=8, deadline=None)
@given(
    seed=st.integers(0, 1000),
    norm=st.sampled_from(["l2", "linf"]),
    attack_steps=st.integers(1, 4),
    diminishing=st.booleans(),
    radius=st.floats(0.01, 0.4),
)
def test_it_is_the_reference(seed, norm, attack_steps, diminishing, radius):
    X, y = problem(n=45, d=3, seed=seed)
    X[:9, 0] = 0.0  # rows at the edge of the box
    step, schedule = 0.7, "diminishing" if diminishing else "constant"
    model = machine(kernel=RBF(gamma=3.0), batch_size=8, step=step, schedule=schedule, norm=norm, epsilon=radius)
    model.set_params(attack_steps=attack_steps).fit(X, y)
    centres, a = fresh_examples(
        X,
        y,
        shuffled_batches(len(X), 8, 2, 0),
        width=3.0,
        C=4.0,
        step=step,
        radius=radius,
        norm=norm,
        box=BOX,
        attack_steps=attack_steps,
        diminishing=diminishing,
    )
    wanted = np.exp(-3.0 * ((X[:, None, :] - centres) ** 2).sum(2)) @ a
    np.testing.assert_allclose(model.scores(X), wanted, atol=1e-9 * (np.abs(a).sum() + 1))
    gram = np.exp(-3.0 * ((centres[:, None, :] - centres) ** 2).sum(2))
    assert model.norm_ == pytest.approx(np.sqrt(a @ gram @ a), rel=1e-8)


@every_model
@pytest.mark.parametrize("averaging", ["none", "tail"])
def test_no_radius_is_the_plain_machine_bit_for_bit(expansion, averaging):
    X, y = problem()
    plain = machine(expansion, adversary="rkhs", epsilon=0.0, averaging=averaging).fit(X, y, eval_set=(X, y))
    still = machine(expansion, epsilon=0.0, averaging=averaging, attack_steps=3).fit(X, y, eval_set=(X, y))
    np.testing.assert_array_equal(still.scores(X), plain.scores(X))
    for name, values in plain.curve_.items():
        np.testing.assert_array_equal(still.curve_[name], values)
    axes = {"C": [0.5, 4.0], "step": [0.5], "folds": 3, "metric": "robust_accuracy", "norm": "linf", "radius": 0.02}
    assert grid_search(still, X, y, **axes).table == grid_search(plain, X, y, **axes).table


@every_model
@pytest.mark.parametrize("kernel", [RBF(gamma=2.0), Laplacian(gamma=2.0)], ids=lambda k: k.name)
def test_what_it_learned_from_lies_in_ball_and_box(expansion, kernel, monkeypatch):
    X, y = problem()
    seen, plain = [], FreshExamples.view

    def watched(self, ids):
        view = plain(self, ids)
        seen.append((X[ids], y[ids], view.X.numpy(), self.expansion.scores(torch.from_numpy(X[ids]))[:, 0].numpy()))
        after.append(self.expansion.scores(view.X)[:, 0].numpy())
        return view

    after: list[np.ndarray] = []
    monkeypatch.setattr(FreshExamples, "view", watched)
    machine(expansion, kernel=kernel).fit(X, y)
    rows, signs, moved, before = (np.concatenate(part) for part in zip(*seen))
    assert (moved[:20] == rows[:20]).all()  # nothing to run from yet
    assert np.abs(moved - rows).max() == pytest.approx(0.1)
    assert moved.min() >= 0
    assert moved.max() <= 1
    if expansion.name == "support_vectors":  # so few random features make a rough function
        assert np.mean(signs * np.concatenate(after) <= signs * before + 1e-12) > 0.95


def test_a_box_of_its_own_for_every_feature(tmp_path):
    X, y = problem()
    low, high = np.zeros(5), np.array([1.0, 1.0, 1.0, 0.6, 1.0])
    X = np.minimum(X, high)
    model = machine(box=(low, high)).fit(X, y)
    assert (model.expansion_.live()[0].numpy().max(0) <= high + 1e-12).all()
    assert not np.array_equal(model.scores(X), machine().fit(X, y).scores(X))
    np.testing.assert_array_equal(machine(box=(low, np.ones(5))).fit(X, y).scores(X), machine().fit(X, y).scores(X))
    save(model, tmp_path)
    np.testing.assert_array_equal(load(tmp_path).scores(X), model.scores(X))


@every_model
def test_it_survives_saving_and_nothing_beats_its_certificate(expansion, tmp_path):
    X, y = problem()
    model = machine(expansion, averaging="tail", dtype="float32", kernel=RBF(width_scale=1.0)).fit(X, y)
    save(model, tmp_path)
    again = load(tmp_path)
    names = ("adversary", "norm", "attack_steps", "epsilon", "averaging")
    assert [getattr(again, name) for name in names] == [getattr(model, name) for name in names]
    assert tuple(again.box) == BOX
    np.testing.assert_array_equal(again.scores(X), model.scores(X))
    radii = again.certified_radius(X, y)
    np.testing.assert_array_equal(radii, model.certified_radius(X, y))
    held = radii > 0
    assert held.any()
    lowest = strongest_point_within(model, X[held], y[held].astype(float), np.minimum(radii[held], 10.0))
    assert (lowest > 0).all()


@pytest.mark.slow
def test_scikit_learns_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check_estimator(AdvSVM(expansion="support_vectors", adversary="input", epsilon=0.1), on_skip=None)


def test_it_stands_where_the_plain_machine_falls():
    """A strong feature and many weak ones that the attacker owns: fresh examples teach to leave the weak ones alone."""
    rng = np.random.default_rng(0)
    y = np.where(rng.random(600) > 0.5, 1, -1)
    X = (
        0.5
        + y[:, None] * np.r_[0.2, np.full(20, 0.05)]
        + np.r_[0.1, np.full(20, 0.05)] * rng.standard_normal((600, 21))
    )
    X = np.clip(X, 0, 1)
    ball, survived = Threat("linf", 0.1, BOX), {}
    for adversary in ("rkhs", "input"):
        radius = 0.1 if adversary == "input" else 0.0
        model = machine(adversary=adversary, epsilon=radius, passes=4, kernel=RBF(width_scale=1.0))
        model.fit(X[:400], y[:400])

        def ask(points, rows, model=model):
            scores, slopes = model.scores_and_gradients(points)
            return y[400:][rows] * scores, y[400:][rows, None] * slopes

        survived[adversary] = descent.survivors(ball, X[400:], ask).mean()
    assert survived["input"] > survived["rkhs"] + 0.1


# -- tuning ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("expansion", [FixedFeatures(n_features=16), SupportVectors()], ids=lambda e: e.name)
def test_a_row_of_the_grid_is_a_fit_on_the_first_fold(expansion):
    X, y = problem()
    sizes = {} if expansion.name == "support_vectors" else {"n_features": [16, 32]}
    result = grid_search(
        machine(expansion), X, y, C=[0.5, 4.0], width=[1.0, 4.0], epsilon=[0.0, 0.1], folds=3, **sizes,
        metric="robust_accuracy", norm="linf", radius=0.05, box=BOX, max_rows=30, select="one_se",
    )  # fmt: skip
    assert set(result.best) == {"C", "width_scale", "epsilon", *sizes}
    assert "8 fits" in result.messages[0] or "16 fits" in result.messages[0]
    from models.grid import CrossValidation

    fold = CrossValidation(3).assign(np.unique(y, return_inverse=True)[1]) == 0
    wanted = {"C": 4.0, "width_scale": 1.0, "epsilon": 0.1} | ({"n_features": 32.0} if sizes else {})
    table = result.table
    (row,) = [r for r in range(len(table["C"])) if all(table[name][r] == value for name, value in wanted.items())]
    alone = machine(expansion if not sizes else FixedFeatures(n_features=32), kernel=RBF(width_scale=1.0))
    assert table["mean_accuracy"][row] == pytest.approx(alone.fit(X[~fold], y[~fold]).score(X[fold], y[fold]))


def test_one_fold_has_a_standard_error_too():
    assert standard_error(np.array([0.5, 0.7]), 10) == pytest.approx(0.1)
    assert standard_error(np.array([0.5]), 100) == pytest.approx(0.05)
    from models.grid import CrossValidation

    found = FoldScores([{"C": 1.0}, {"C": 2.0}], np.array([[0.9], [0.8]]), np.array([[0.57], [0.6]]))
    how = CrossValidation(metric="certified_accuracy", max_rows=100)
    assert choose(found, {"C": [1.0, 2.0]}, how, one_se=True).best == {"C": 1.0}
    assert choose(found, {"C": [1.0, 2.0]}, how).best == {"C": 2.0}


@pytest.mark.parametrize("wrong", [{"adversary": "both"}, {"norm": "l1"}, {"attack_steps": 0}, {"box": 3}])
def test_impossible_settings_name_themselves(wrong):
    X, y = problem(n=40)
    with pytest.raises(ValueError, match=next(iter(wrong))):
        machine(**wrong).fit(X, y)
