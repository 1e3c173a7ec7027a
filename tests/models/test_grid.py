"""The one-pass grid: every column is an honest model, and the result says what a user must know."""

import numpy as np
import pytest

from models import RBF, AdvSVM, DoublyStochastic, FixedFeatures, SupportVectors, grid_search
from models.batches import RowSource, fold_batches
from models.column_grid import LATE_ITERATES
from models.expansions import KernelSpace
from models.grid import CrossValidation, FoldScores, choose
from models.threat import Threat
from models.training import Columns, train_columns

EXPANSIONS = [DoublyStochastic(n_features=32), FixedFeatures(n_features=64), SupportVectors()]
every_model = pytest.mark.parametrize("expansion", EXPANSIONS, ids=lambda e: e.name)
FEW = [0.25, 2.0]


def problem(n=203, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.1 * rng.standard_normal(n) > 0.9, 1, -1)


def scores_of(model, X, y, C, step, widths=None, folds=4, radius=None):
    axes = {"C": C, "step": step} | ({} if widths is None else {"width_scale": widths})
    metric = "accuracy" if radius is None else "certified_accuracy"
    return model.cv_scores(
        X, y, axes, CrossValidation(folds, metric, Threat("l2", box=None, epsilon=radius or 0.0), random_state=7)
    )


def test_every_batch_takes_the_same_number_from_each_fold():
    numbers = CrossValidation(5).assign(np.where(np.arange(500) % 2, 1.0, -1.0))
    batches = fold_batches(numbers, 40, 2, 0)
    assert all((np.bincount(numbers[batch], minlength=5) == 10).all() for batch in batches)
    for turn in (batches[:10], batches[10:]):
        assert sorted(np.concatenate(turn)) == list(range(500))


@every_model
@pytest.mark.parametrize("schedule", ["constant", "diminishing"])
@pytest.mark.parametrize("passes", [1, 2])
def test_a_column_equals_the_same_model_trained_alone(expansion, schedule, passes):
    X, y = problem()
    model = AdvSVM(expansion=expansion, batch_size=30, schedule=schedule, passes=passes, kernel=RBF(gamma=2.0))
    together = scores_of(model, X, y, [0.5, 4.0], [0.1, 0.4])
    numbers = CrossValidation(4, random_state=7).assign(y.astype(float))
    batches = fold_batches(numbers, 30, passes, 7)
    penalty = RBF().penalty(model.epsilon, 2.0)
    for place, setting in enumerate(together.settings):
        for fold in range(4):
            held_out = numbers == fold
            where = KernelSpace(RBF(gamma=2.0), (2.0,), 5, model._torch_dtype(X), 7)
            alone = expansion.begin(where, 1)
            own_batches = [batch[~held_out[batch]] for batch in batches]
            one = Columns(
                np.array([setting["C"]]),
                np.array([setting["step"]]),
                np.array([penalty]),
                diminishing=schedule == "diminishing",
            )
            train_columns(alone, RowSource(X, where.dtype), y.astype(float), own_batches, one)
            points = RowSource(X, where.dtype).view(np.flatnonzero(held_out)).X
            late = alone.staged_scores(points)[-min(LATE_ITERATES, len(batches) // 4) :].numpy()
            assert together.accuracy[place, fold] == pytest.approx(np.mean((late > 0) == (y[held_out] > 0)), abs=1e-12)


@every_model
def test_held_out_rows_never_teach_their_own_column(expansion):
    X, y = problem()
    model = AdvSVM(expansion=expansion, batch_size=30)
    numbers = CrossValidation(4, random_state=7).assign(y.astype(float))
    flipped = np.where(numbers == 2, -y, y)
    honest = scores_of(model, X, y, [2.0], [0.25]).accuracy[0, 2]
    # Flipping the held-out labels must leave the model, hence the mirrored accuracy; folds are stratified by label, so
    # they are made again from the same signs.
    where = KernelSpace(RBF(gamma=2.0), (2.0,), 5, model._torch_dtype(X), 7)
    columns = Columns(np.array([2.0]), np.array([0.25]), np.array([0.02]), left_out=np.array([2]))
    scores = []
    for labels in (y, flipped):
        live = expansion.begin(where, 1)
        batches = fold_batches(numbers, 30, 1, 7)
        record = train_columns(
            live, RowSource(X, where.dtype), labels.astype(float), batches, columns, folds=numbers, keep_scores=1
        )
        scores.append(record.late_scores[0].numpy())
    np.testing.assert_array_equal(scores[0], scores[1])
    assert 0.5 < honest <= 1.0


@every_model
def test_widths_are_an_axis_of_the_grid(expansion):
    X, y = problem()
    model = AdvSVM(expansion=expansion, batch_size=30)
    both = scores_of(model, X, y, FEW, [0.1, 0.4], widths=[1.0, 8.0])
    parts = [
        scores_of(AdvSVM(expansion=expansion, batch_size=30, kernel=RBF(width_scale=w)), X, y, FEW, [0.1, 0.4])
        for w in (1.0, 8.0)
    ]
    np.testing.assert_array_equal(both.accuracy, np.concatenate([part.accuracy for part in parts]))
    assert [s["width_scale"] for s in both.settings] == [1.0] * 4 + [8.0] * 4
    result = grid_search(model, X, y, C=FEW, step=[0.1], width=[1.0, 8.0], folds=3)
    assert set(result.best) == {"C", "step", "width_scale"}


@every_model
def test_diverging_settings_score_zero_and_nothing_is_nan(expansion):
    X, y = problem(n=1500)
    result = grid_search(
        AdvSVM(expansion=expansion, batch_size=20), X, y, C=[1.0, 8.0], step=[0.1, 8.0], metric="certified_accuracy"
    )
    table = result.table
    assert {len(column) for column in table.values()} == {4}
    assert table["diverged"] == [False, True, False, True]
    assert all(np.isfinite(column).all() for column in map(np.asarray, table.values()))
    assert [a for a, lost in zip(table["mean_accuracy"], table["diverged"]) if lost] == [0.0, 0.0]
    assert result.best["step"] == 0.1
    assert any("2 of 4 settings diverged" in message for message in result.messages)


def test_an_optimum_on_the_edge_is_reported():
    X, y = problem()
    result = grid_search(AdvSVM(expansion="support_vectors", batch_size=30), X, y, C=[2.0], step=[0.1, 1.9], folds=3)
    assert result.on_edge == ["step"]
    assert any("best step, 0.1, is the smallest on offer" in message for message in result.messages)


def test_ties_go_to_accuracy_then_the_smaller_c_then_the_smaller_step():
    def best(accuracy, certified=None):
        settings = [{"C": c, "step": s} for c in (1.0, 2.0) for s in (0.5, 1.0)]
        spread = None if certified is None else np.repeat(np.array(certified)[:, None], 3, 1)
        how = CrossValidation(metric="accuracy" if certified is None else "certified_accuracy")
        scores = FoldScores(settings, np.repeat(np.array(accuracy)[:, None], 3, 1), spread, np.zeros(4, dtype=bool))
        return choose(scores, {"C": [1.0, 2.0], "step": [0.5, 1.0]}, how).best

    assert best([0.9, 0.9, 0.9, 0.9]) == {"C": 1.0, "step": 0.5}
    assert best([0.8, 0.9, 0.9, 0.9]) == {"C": 1.0, "step": 1.0}
    assert best([0.8, 0.8, 0.9, 0.7], certified=[0.5, 0.5, 0.5, 0.5]) == {"C": 2.0, "step": 0.5}


def test_of_equals_the_widest_kernel_is_chosen_and_an_edge_only_counts_where_nothing_inside_does_as_well():
    settings = [{"C": c, "width_scale": w} for c in (1.0, 2.0, 4.0) for w in (1.0, 2.0)]
    offered = {"C": [1.0, 2.0, 4.0], "width_scale": [1.0, 2.0]}

    def chosen(accuracy):
        scores = FoldScores(settings, np.repeat(np.array(accuracy)[:, None], 3, 1), None, np.zeros(6, dtype=bool))
        return choose(scores, offered, CrossValidation(metric="accuracy"))

    tied = chosen([0.8, 0.9, 0.9, 0.9, 0.9, 0.8])
    assert tied.best == {"C": 2.0, "width_scale": 1.0}
    assert chosen([0.9, 0.9, 0.9, 0.9, 0.9, 0.9]).on_edge == ["width_scale"]
    assert chosen([0.9, 0.8, 0.8, 0.8, 0.9, 0.8]).on_edge == ["C", "width_scale"]


@every_model
def test_selection_by_certified_accuracy_agrees_with_the_models_own_certificates(expansion):
    X, y = problem(n=400)
    model = AdvSVM(expansion=expansion, batch_size=40, epsilon=0.0, kernel=RBF(width_scale=1.0))
    radius = 0.05
    found = scores_of(model, X, y, [0.5, 4.0], [0.1], folds=2, radius=radius)
    assert (found.robust <= found.accuracy + 0.05).all()
    numbers = CrossValidation(2, random_state=7).assign(y.astype(float))
    for place, setting in enumerate(found.settings):
        for fold in range(2):
            alone = AdvSVM(expansion=expansion, batch_size=40, epsilon=0.0, kernel=model.kernel, random_state=7)
            alone.set_params(**setting).fit(X[numbers != fold], y[numbers != fold])
            radii = alone.certified_radius(X[numbers == fold], y[numbers == fold])
            # Other batches, another model of the same kind: the same neighbourhood, not the same number.
            assert found.robust[place, fold] == pytest.approx(np.mean(radii >= radius), abs=0.25)


def test_a_radius_out_of_reach_is_reported_and_accuracy_decides():
    X, y = problem()
    model = AdvSVM(expansion="support_vectors", batch_size=30)
    by_radius = grid_search(model, X, y, C=FEW, step=[0.1, 0.3], metric="certified_accuracy", radius=50.0, folds=3)
    assert by_radius.best == grid_search(model, X, y, C=FEW, step=[0.1, 0.3], folds=3).best
    assert any("No setting certifies" in message for message in by_radius.messages)


def test_a_batch_larger_than_a_training_part_is_that_part():
    X, y = problem(n=60)
    with pytest.warns(UserWarning, match="batch_size=500 is larger"):
        grid_search(AdvSVM(expansion="support_vectors", batch_size=500), X, y, C=[1.0], step=[0.1], folds=3)


def test_observers_follow_the_tuning_and_the_model_is_left_alone():
    X, y = problem()
    model, calls = AdvSVM(expansion="support_vectors", batch_size=30), []
    grid_search(model, X, y, C=FEW, step=[0.1], observer=lambda *call: calls.append(call))
    assert {call[0] for call in calls} == {"tune"}
    assert calls[-1][1] == calls[-1][2]
    assert not hasattr(model, "classes_")


def test_other_estimators_are_tuned_over_c():
    from sklearn.svm import LinearSVC

    X, y = problem()
    result = grid_search(LinearSVC(), X, y, C=[0.01, 1.0], folds=3)
    assert set(result.table) == {"C", "mean_accuracy", "std_accuracy", "diverged"}
    assert result.best_score == max(result.table["mean_accuracy"])


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"C": []}, "C"),
        ({"C": [-1.0]}, "C"),
        ({"C": [1.0], "step": [0.0]}, "step"),
        ({"C": [1.0], "folds": 1}, "folds"),
        ({"C": [1.0], "metric": "f1"}, "metric"),
    ],
)
def test_impossible_grids_name_the_setting(settings, name):
    X, y = problem(n=40)
    with pytest.raises(ValueError, match=name):
        grid_search(AdvSVM(), X, y, **settings)
