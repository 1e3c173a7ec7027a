"""Evaluations on the wrong rows or labels are told from honest ones, also on small data."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracles_broken as broken
import pytest

from pipeline.stages.tune import Tuned


def with_data(context, **parts):
    """The same model judged on changed data; its answers on the test rows are asked again."""
    data = replace(context.data, **parts)
    correct = np.asarray(context.model.predict(data.X_test) == data.y_test)
    return replace(context, data=data, correct=correct)


@pytest.mark.parametrize("noise", [1e-4, 1e-3])
@pytest.mark.parametrize("share", [0.1, 1.0])
def test_training_rows_that_are_test_rows_and_a_little_noise_fail_19(make, judge, noise, share):
    data = make().data
    count = int(share * len(data.X_test))
    rng = np.random.default_rng(0)
    X_train = data.X_train.copy()
    X_train[:count] = np.clip(data.X_test[:count] + noise * rng.standard_normal((count, 64)), 0, 1)
    check = judge("19", with_data(make(), X_train=X_train))
    assert check.status == "fail"
    assert "nearly copies" in check.message
    assert check.evidence["near_copies"] == count


def test_one_natural_copy_in_24_rows_is_a_warning_in_19(make, judge, flowers):
    data = flowers(1, 2)
    X_train = data.X_train.copy()
    X_train[5] = data.X_test[7]
    check = judge("19", with_data(make(data=data, retrain=True), X_train=X_train))
    assert check.status == "warn"
    assert check.evidence["test_rows_equal_to_a_training_row"] == 1


def test_six_copies_in_24_rows_fail_19_unless_the_training_rows_have_as_many(make, judge, flowers):
    data = flowers(1, 2)
    X_train = data.X_train.copy()
    X_train[:6] = data.X_test[:6]
    context = make(data=data, retrain=True)
    assert judge("19", with_data(context, X_train=X_train)).status == "fail"
    X_train[30:60] = X_train[:30]
    assert judge("19", with_data(context, X_train=X_train)).status == "warn"


def test_dense_data_have_near_neighbours_by_nature(make, judge, clouds):
    """In two dimensions a tenth of all points nearly coincide with another: that is no leak."""
    check = judge("19", make(data=clouds(2, 0), retrain=True))
    assert check.status in ("pass", "warn")


@pytest.mark.parametrize("of", ["digits", "iris"])
def test_shuffled_test_labels_fail_28(make, judge, flowers, of):
    context = make() if of == "digits" else make(data=flowers(0, 1), retrain=True)
    assert judge("28", context).status == "pass"
    labels = np.random.default_rng(0).permutation(context.data.y_test)
    check = judge("28", with_data(context, y_test=labels))
    assert check.status == "fail"


@pytest.mark.parametrize("kind", ["flipped", "one class"])
def test_other_test_labels_do_not_pass_28(make, judge, kind):
    context = make()
    y = context.data.y_test
    labels = -y if kind == "flipped" else np.ones_like(y)
    assert judge("28", with_data(context, y_test=labels)).status == "fail"


@pytest.mark.parametrize(("folds", "status"), [(0.99, "pass"), (0.80, "warn"), (0.70, "fail"), (None, "pass")])
def test_a_clean_accuracy_far_from_the_folds_fails_28(make, judge, folds, status):
    """Only easy test points (or test rows that were trained on) look better than folds of the training rows."""
    tuned = Tuned() if folds is None else Tuned(table={"mean_accuracy": [folds]}, best_row=0)
    assert judge("28", replace(make(), tuned=tuned)).status == status


def choose(context, rows):
    """The run of the same attack on some of its rows."""
    result = context.attacked.result
    arrays = {
        name: getattr(result, name)[rows] for name, value in vars(result).items() if isinstance(value, np.ndarray)
    }
    attacked = replace(
        context.attacked, rows=rows, clean_wrong=context.attacked.clean_wrong[rows], result=replace(result, **arrays)
    )
    return replace(context, attacked=attacked)


def test_only_the_easiest_points_fail_27(make, judge):
    context = make("attack.epsilon=0.15")
    easiest = np.sort(np.argsort(-context.margins)[:45])
    assert judge("27", choose(context, easiest)).status == "fail"


def test_a_test_set_of_the_easiest_rows_fails_27(make, judge):
    """All of them are attacked, so that none is left out to compare with; the training rows tell."""
    context = make()
    easiest = np.sort(np.argsort(-context.margins)[:45])
    data = context.data
    easy = {name: getattr(data, name)[easiest] for name in ("X_test", "y_test", "test_ids")}
    check = judge("27", make(data=replace(data, **easy)))
    assert check.status == "fail"
    assert "deeper in their class" in check.message
    assert judge("27", context).status == "pass"


@pytest.mark.parametrize("times", [1, 3])
def test_rows_that_are_in_the_test_set_again_fail_19(make, judge, times):
    data = make().data
    rows = np.concatenate([np.arange(91), *[np.arange(0, 91, 4)] * times])
    again = {name: getattr(data, name)[rows] for name in ("X_test", "y_test")}
    check = judge("19", make(data=replace(data, **again, test_ids=np.arange(10_000, 10_000 + len(rows)))))
    assert check.status == "fail"
    assert "copies of other test rows" in check.message


def test_only_one_class_fails_27(make, judge):
    context = make()
    assert judge("27", choose(context, np.flatnonzero(context.y > 0))).status == "fail"


def test_one_row_many_times_fails_27(make, judge):
    context = make()
    assert judge("27", choose(context, np.zeros(91, dtype=int))).status == "fail"


@pytest.mark.parametrize("seed", range(10))
def test_a_fair_choice_passes_27(make, judge, seed):
    context = make()
    assert judge("27", context).status == "pass"
    rows = np.sort(np.random.default_rng(seed).permutation(91)[:40])
    assert judge("27", choose(context, rows)).status == "pass"


def test_the_pipelines_own_choice_passes_27(make, judge):
    assert judge("27", make("evaluation.max_attacked=30")).status == "pass"


@pytest.mark.parametrize("squash", [broken.Saturated, broken.Clipped])
def test_saturated_scores_fail_13(make, judge, squash):
    check = judge("13", make(model=squash))
    assert check.status == "fail"
    assert check.evidence["at_the_largest_score"] > 0.25


@pytest.mark.parametrize("kind", ["model/expansion=doubly_stochastic", "model=svc", "model=adv_linear_svm"])
def test_scores_with_slopes_pass_13(make, judge, kind):
    check = judge("13", make(kind))
    assert check.status == "pass"
    assert check.evidence["at_the_largest_score"] < 0.1
