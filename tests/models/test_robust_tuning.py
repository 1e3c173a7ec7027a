"""Tuning for a threat: the first-order estimate, descent on the best, the Pareto front and the rules to pick by."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import LinearSVC

from models import (
    RBF,
    AdvLinearSVM,
    AdvSVM,
    DoublyStochastic,
    FixedFeatures,
    KernelSVC,
    SupportVectors,
    descent,
    grid_search,
)
from models.grid import CrossValidation, FoldScores, choose, pareto_front
from models.threat import Threat

EXPANSIONS = [DoublyStochastic(n_features=32), FixedFeatures(n_features=64), SupportVectors()]
every_model = pytest.mark.parametrize("expansion", EXPANSIONS, ids=lambda e: e.name)


def problem(n=203, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n) > 0.9, 1, -1)


# -- the ball ----------------------------------------------------------------------------------------------------------
@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 10**6), radius=st.floats(0.01, 0.6), norm=st.sampled_from(["l2", "linf"]), boxed=st.booleans()
)
def test_no_point_of_the_ball_loses_more_than_the_linear_loss(seed, radius, norm, boxed):
    rng = np.random.default_rng(seed)
    X, slopes = rng.random((4, 3)), rng.standard_normal((4, 2, 3))
    ball = Threat(norm, radius, (0.0, 1.0) if boxed else None)
    loss = descent.linear_loss(ball, torch.from_numpy(X), torch.from_numpy(slopes)).numpy()
    moved = rng.uniform(-radius, radius, (500, 4, 3))
    if norm == "l2":
        moved *= np.minimum(1, radius / np.linalg.norm(moved, axis=2, keepdims=True))
    moved = (np.clip(X + moved, 0, 1) if boxed else X + moved) - X
    reached = -np.einsum("tnd,ncd->tnc", moved, slopes).min(0)
    assert (reached <= loss + 1e-12).all()
    assert (np.linalg.norm(moved, axis=2).max(0) <= descent.lengths(ball, torch.from_numpy(X)) + 1e-12).all()


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_descent_on_a_linear_score_breaks_what_its_linear_loss_does(norm):
    rng = np.random.default_rng(0)
    X, w = rng.random((200, 6)), rng.standard_normal(6)
    for box in (None, (0.0, 1.0)) if norm == "linf" else (None,):
        ball = Threat(norm, 0.2, box)
        loss = descent.linear_loss(ball, torch.from_numpy(X), torch.from_numpy(np.tile(w, (200, 1, 1)))).numpy()[:, 0]
        survived = descent.survivors(ball, X, lambda P, rows: (P @ w, np.tile(w, (len(P), 1))))
        assert 0 < survived.sum() < (X @ w > 0).sum()
        np.testing.assert_array_equal(survived, X @ w > loss)


@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_descent_follows_a_bend(norm):
    """The margin is lowest inside the ball, not where its first slope points: one long step is not enough."""
    X, ball = np.zeros((1, 2)), Threat(norm, 1.0, None)

    def ask(points, rows):
        away = points - np.array([0.25, 0.05])
        return (away**2).sum(1) - 0.01, 2 * away

    assert ask(X - ball.epsilon * np.sign(ask(X, None)[1]), None)[0] > 0
    assert not descent.survivors(ball, X, ask).any()


@pytest.mark.parametrize(("norm", "box"), [("l2", None), ("l2", (0.0, 1.0)), ("linf", (0.0, 1.0))])
def test_descent_never_leaves_ball_or_box_and_gives_up_wrong_rows(norm, box):
    rng = np.random.default_rng(1)
    X, seen, ball = rng.random((30, 5)), [], Threat(norm, 0.3, box)

    def ask(points, rows):
        seen.append((points.copy(), rows))
        return rng.random(len(points)) - 0.2, rng.standard_normal(points.shape)

    survived = descent.survivors(ball, X, ask)
    for points, rows in seen:
        moved = points - X[rows]
        length = np.abs(moved).max(1) if norm == "linf" else np.linalg.norm(moved, axis=1)
        assert length.max() <= 0.3 * (1 + 1e-9)
        assert box is None or (points.min() >= 0 and points.max() <= 1)
    asked = [set(rows.tolist()) for _, rows in seen]
    assert asked[0] == set(range(30))
    assert all(later <= earlier for earlier, later in pairwise(asked))
    assert set(np.flatnonzero(survived).tolist()) <= asked[-1] < asked[0]


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("expansion", EXPANSIONS, ids=lambda e: e.name)
def test_slopes_of_some_pixels_estimate_the_loss(norm, expansion):
    rng = np.random.default_rng(2)
    X = rng.random((120, 600))
    y = np.where(X[:, :300].mean(1) > X[:, 300:].mean(1), 1, -1)
    live = AdvSVM(expansion=expansion, batch_size=30, kernel=RBF(width_scale=0.5), dtype="float64").fit(X, y).expansion_
    points, coords = torch.from_numpy(X), torch.from_numpy(np.sort(rng.choice(600, 300, replace=False)))
    ball = Threat(norm, 0.05, (0.0, 1.0))
    scores, gradients = live.scores_and_gradients(points)
    some_scores, some = live.scores_and_gradients(points, coords=coords)
    torch.testing.assert_close(some_scores, scores)
    torch.testing.assert_close(some, gradients[:, :, coords])
    exact, estimate = descent.linear_loss(ball, points, gradients), descent.sampled_loss(ball, points, some, coords)
    sides = Threat(norm, 0.05, (np.zeros(600), np.ones(600)))
    torch.testing.assert_close(descent.sampled_loss(sides, points, some, coords), estimate)
    assert float((estimate / exact - 1).abs().max()) < 0.25
    assert float((estimate / exact - 1).mean().abs()) < 0.05


@every_model
def test_a_column_alone_is_that_column(expansion):
    X, y = problem()
    from models.batches import RowSource, fold_batches
    from models.expansions import KernelSpace
    from models.training import Columns, train_columns

    folds = np.arange(len(X)) % 2
    columns = Columns(np.array([0.1, 4.0] * 2), np.full(4, 0.3), np.zeros(4), left_out=np.array([0, 0, 1, 1]))
    live = expansion.begin(KernelSpace(RBF(), (0.5, 4.0), 5, torch.float64, 0), 4)
    batches = fold_batches(folds, 20, 1, 0)
    train_columns(live, RowSource(X, torch.float64), y.astype(float), batches, columns, folds=folds)
    points = torch.from_numpy(X[:7])
    for column in range(4):
        together = live.scores_and_gradients(points, torch.tensor([column]))
        for one, other in zip(live.column(column)(points), together):
            torch.testing.assert_close(one, other)


# -- choosing ----------------------------------------------------------------------------------------------------------
@settings(max_examples=80, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), min_size=1, max_size=15))
def test_the_front_is_what_nothing_dominates(values):
    accuracy, robust = (np.array(column, dtype=float) for column in zip(*values))
    front = pareto_front(accuracy, robust)
    assert list(accuracy[front]) == sorted(accuracy[front], reverse=True)
    for row in range(len(accuracy)):
        better = (accuracy >= accuracy[row]) & (robust >= robust[row])
        strictly = better & ((accuracy > accuracy[row]) | (robust > robust[row]))
        on_front = any(accuracy[f] == accuracy[row] and robust[f] == robust[row] for f in front)
        assert on_front == (not strictly.any())


def scores(accuracy, robust, attacked=None):
    settings = [{"C": float(c)} for c in range(1, len(accuracy) + 1)]

    def spread(values):
        return np.repeat(np.array(values)[:, None], 3, 1)

    attack = None if attacked is None else lambda place: np.full(3, attacked[place])
    return FoldScores(settings, spread(accuracy), spread(robust), attack=attack)


def test_the_most_robust_within_a_point_of_the_best_accuracy():
    found = scores([0.99, 0.985, 0.97, 0.9], [0.5, 0.6, 0.7, 0.8])
    how, offered = CrossValidation(metric="certified_accuracy"), {"C": [1.0, 2.0, 3.0, 4.0]}
    assert choose(found, offered, how).best == {"C": 4.0}
    assert choose(found, offered, how, within=0.01).best == {"C": 2.0}
    assert choose(found, offered, how, within=0.02).best == {"C": 3.0}
    assert choose(found, offered, how, within=0.0).best == {"C": 1.0}
    assert choose(found, offered, how).front == [0, 1, 2, 3]


def test_the_most_accurate_within_one_standard_error_of_the_most_robust():
    accuracy, robust = [0.99, 0.97, 0.97, 0.9], [0.5, 0.74, 0.76, 0.8]
    found = scores(accuracy, robust)
    found.robust[3] = [0.7, 0.8, 0.9]  # standard error 0.1 / sqrt(3) = 0.058
    how, offered = CrossValidation(folds=3, metric="certified_accuracy"), {"C": [1.0, 2.0, 3.0, 4.0]}
    assert choose(found, offered, how).best == {"C": 4.0}
    result = choose(found, offered, how, one_se=True)
    # 0.74 is further below 0.8 than that; what is chosen is on the front.
    assert result.best == {"C": 3.0}
    assert result.best_row in result.front
    found.robust[3] = 0.8
    assert choose(found, offered, how, one_se=True).best == {"C": 4.0}


def test_descent_has_the_last_word_among_the_best():
    n = 9
    estimate = [0.1 * k for k in range(n)]
    attacked = [0.9] * 3 + [0.2] * (n - 4) + [0.1]
    offered, how = {"C": [float(c) for c in range(1, n + 1)]}, CrossValidation(metric="robust_accuracy")
    result = choose(scores([0.95] * n, estimate, attacked), offered, how)
    # The three that descent would like best were too far behind to first order to be attacked.
    assert result.table["attacked"] == [False] * 3 + [True] * 6
    assert result.best["C"] == 4.0
    assert result.best_score == pytest.approx(0.2)
    assert any("by descent for 6 settings" in message for message in result.messages)


# -- models ------------------------------------------------------------------------------------------------------------
@every_model
def test_every_axis_of_the_kernel_machine(expansion):
    X, y = problem()
    model = AdvSVM(expansion=expansion, batch_size=30, passes=1)
    sizes = {} if expansion.name == "support_vectors" else {"n_features": [16, 32]}
    result = grid_search(
        model,
        X,
        y,
        C=[0.5, 4.0],
        step=[0.1, 0.4],
        width=[1.0, 4.0],
        epsilon=[0.0, 0.2],
        folds=3,
        **sizes,
        metric="robust_accuracy",
        norm="linf",
        radius=0.02,
        box=(0.0, 1.0),
    )
    assert set(result.best) == {"C", "step", "width_scale", "epsilon", *sizes}
    assert len(result.table["C"]) == 16 * (2 if sizes else 1)
    # Every row is that of the setting it names: the same grid with all but one axis fixed.
    alone = AdvSVM(expansion=expansion, batch_size=30, passes=1, epsilon=0.2, kernel=RBF(width_scale=4.0))
    if sizes:
        alone.set_params(expansion=type(expansion)(n_features=16))
    how = CrossValidation(3, "robust_accuracy", Threat("linf", 0.02, (0.0, 1.0)))
    one = alone.cv_scores(X, y, {"C": [4.0], "step": [0.1]}, how)
    wanted = {"C": 4.0, "step": 0.1, "width_scale": 4.0, "epsilon": 0.2} | ({"n_features": 16.0} if sizes else {})
    table = result.table
    (row,) = [r for r in range(len(table["C"])) if all(table[name][r] == value for name, value in wanted.items())]
    assert table["mean_accuracy"][row] == pytest.approx(one.accuracy.mean())
    if not table["attacked"][row]:
        assert table["mean_robust_accuracy"][row] == pytest.approx(one.robust.mean())
    assert np.isfinite(table["mean_robust_accuracy"]).all()


@pytest.mark.parametrize("model", [AdvSVM(expansion="support_vectors", batch_size=20), AdvLinearSVM(), KernelSVC()])
@pytest.mark.parametrize(("norm", "radius"), [("linf", 0.03), ("l2", 0.06)])
def test_robust_accuracy_of_the_grid_is_that_of_the_attack(model, norm, radius):
    X, y = problem(n=300)
    result = grid_search(
        model, X, y, C=[0.05, 1.0], folds=3, metric="robust_accuracy", norm=norm, radius=radius, box=(0.0, 1.0)
    )
    clean, robust = (np.array(result.table[f"mean_{name}"]) for name in ("accuracy", "robust_accuracy"))
    assert (robust <= clean + 0.05).all()
    assert all(result.table["attacked"])
    how = CrossValidation(3, "robust_accuracy", Threat(norm, radius, (0.0, 1.0)))
    estimate = model.cv_scores(X, y, {"C": [0.05, 1.0]}, how).robust.mean(1)
    # The estimate is what ranks the settings: close to what descent finds at a small radius.
    np.testing.assert_allclose(estimate, robust, atol=0.04)


def test_certified_in_linf_stays_below_robust():
    X, y = problem(n=300)
    model = AdvSVM(expansion="support_vectors", batch_size=20, kernel=RBF(width_scale=1.0), epsilon=0.0)
    threat = {"norm": "linf", "radius": 0.02, "box": (0.0, 1.0)}
    certified, robust = (
        grid_search(model, X, y, C=[0.5, 4.0], step=[0.1], folds=3, metric=metric, **threat).table[f"mean_{metric}"]
        for metric in ("certified_accuracy", "robust_accuracy")
    )
    assert (np.array(certified) <= np.array(robust)).all()
    assert max(certified) > 0.3


def test_the_width_is_an_axis_of_svc():
    X, y = problem()
    result = grid_search(KernelSVC(), X, y, C=[1.0, 8.0], width=[0.5, 4.0], step=[0.1], folds=3)
    assert set(result.best) == {"C", "width_scale"}
    fixed = [grid_search(KernelSVC(width_scale=w), X, y, C=[1.0, 8.0], folds=3).table for w in (0.5, 4.0)]
    assert result.table["mean_accuracy"] == fixed[0]["mean_accuracy"] + fixed[1]["mean_accuracy"]


def test_tuning_for_the_threat_is_more_robust_than_tuning_for_accuracy():
    rng = np.random.default_rng(5)
    # A strong feature that moves little and weak ones that do not: a narrow kernel leans on all of them.
    y = np.where(rng.random(500) > 0.5, 1, -1)
    X = np.clip(0.5 + y[:, None] * np.r_[0.25, np.full(9, 0.04)] + 0.06 * rng.standard_normal((500, 10)), 0, 1)
    grid = {"C": [2.0**k for k in range(-5, 4, 2)], "step": [0.05, 0.2], "width": [0.25, 1.0, 16.0]}
    threat = {"norm": "linf", "radius": 0.15, "box": (0.0, 1.0)}
    model = AdvSVM(expansion="support_vectors", batch_size=25, passes=2, epsilon=0.0)
    by_accuracy = grid_search(model, X, y, **grid).best
    robust = grid_search(model, X, y, **grid, metric="robust_accuracy", **threat)
    table = robust.table
    (row,) = [r for r in range(len(table["C"])) if all(table[k][r] == v for k, v in by_accuracy.items())]
    assert robust.best_score >= table["mean_robust_accuracy"][row]
    assert robust.front


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"metric": "robust_accuracy", "norm": "l1"}, "norm must be"),
        ({"radius": -1.0}, "must be a number >= 0"),
        ({"select": "best"}, "select='best'"),
        ({"width": [0.0]}, "width_scale must be"),
        ({"epsilon": [-0.1]}, "epsilon must be"),
        ({"max_rows": 1}, "max_rows"),
    ],
)
def test_impossible_settings_name_themselves(settings, message):
    X, y = problem(n=40)
    with pytest.raises(ValueError, match=message):
        grid_search(AdvSVM(), X, y, C=[1.0], **settings)


def test_a_model_without_gradients_is_told_so():
    X, y = problem(n=60)
    with pytest.raises(ValueError, match="needs gradients, and a LinearSVC has none"):
        grid_search(LinearSVC(), X, y, C=[1.0], folds=2, metric="robust_accuracy")


def test_the_best_settings_go_where_they_belong():
    from models import with_settings

    best = {"C": 2.0, "width_scale": 3.0, "n_features": 16.0, "epsilon": 0.0}
    model = with_settings(AdvSVM(), best)
    assert (model.C, model.epsilon) == (2.0, 0.0)
    assert model.kernel == RBF(width_scale=3.0)
    assert model.expansion == DoublyStochastic(n_features=16)
    assert with_settings(KernelSVC(), {"C": 2.0, "width_scale": 3.0}).width_scale == 3.0
    assert AdvSVM().C == 1.0
