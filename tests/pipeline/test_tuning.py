"""A run's grid: scored in the run's own threat, equal to fitting and attacking every cell, its front kept."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import StratifiedKFold

from models import RBF, AdvLinearSVM, KernelSVC
from pipeline.cache import StageStore
from pipeline.data import load_dataset
from pipeline.figures.of_runs import front
from pipeline.stages.build import build_model
from pipeline.stages.experiment import Experiment
from pipeline.stages.tune import Tune, tuning_threat
from pipeline.tracking.record import _front
from pipeline.validation import fix_axes, validate

SMALL = ("dataset.max_train=120", "tune=robust", "tune.folds=2", "tune.max_rows=40", "tune.C=[0.02,1]")


def tuned(composed, *overrides):
    cfg = composed(*SMALL, *overrides)
    validate(cfg)
    data = load_dataset(cfg.dataset)
    return cfg, data, Tune(cfg).run(data)


def descend(model, X, y, norm, radius, box, steps=20):
    """Share of rows that stay right under projected gradient descent."""
    signs = np.where(y == model.classes_[1], 1.0, -1.0)
    points, lowest, size = X, np.full(len(X), np.inf), 2.5 * radius / steps
    for _ in range(steps + 1):
        scores, gradients = model.scores_and_gradients(points)
        lowest, slopes = np.minimum(lowest, signs * scores), signs[:, None] * np.asarray(gradients, dtype=float)
        if norm == "linf":
            moves = np.clip(points - X - size * np.sign(slopes), -radius, radius)
        else:
            lengths = np.linalg.norm(slopes, axis=1, keepdims=True)
            moves = np.clip(points - size * slopes / np.maximum(lengths, 1e-30), *box) - X
            moves *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(moves, axis=1, keepdims=True), 1e-30))
        points = np.clip(X + moves, *box).astype(X.dtype)
    return float(np.mean(lowest > 0))


@pytest.mark.parametrize(
    ("overrides", "make"),
    [
        (("model=svc", "tune.width_scale=[0.5,2]"), KernelSVC),
        (("model=svc", "tune.width_scale=[0.5,2]", "attack=pgd_l2"), KernelSVC),
        (("model=adv_linear_svm", "tune.C_f=[0,0.2]", "model.tol=1e-6"), AdvLinearSVM),
    ],
    ids=str,
)
def test_the_folds_score_is_that_of_fitting_and_attacking_every_cell(composed, overrides, make):
    cfg, data, found = tuned(composed, *overrides)
    X, y, (norm, radius) = data.X_train, data.y_train, tuning_threat(cfg)
    assert (norm, radius) == (cfg.attack.norm, cfg.attack.epsilon)
    folds = list(StratifiedKFold(2, shuffle=True, random_state=0).split(X, y))
    assert sum(found.table["attacked"]) == len(found.table["C"]) == 4  # few enough for descent on all of them
    for row in range(4):
        setting = {name: found.table[name][row] for name in found.best}
        if make is KernelSVC:
            setting = {"C": setting["C"], "gamma": RBF(setting["width_scale"]).resolve_gamma(X, 0)}
        else:
            setting |= {"box": (X.min(0), X.max(0))}
        accuracy, robust = [], []
        for train, held_out in folds:
            model = make(**setting).fit(X[train], y[train])
            accuracy.append(np.mean(model.predict(X[held_out]) == y[held_out]))
            some = held_out[:: -(-len(held_out) // 20)]
            robust.append(descend(model, X[some], y[some], norm, radius, data.box))
        # One row of a fold may sit on the decision boundary of two solutions that differ in the sixth digit.
        assert found.table["mean_accuracy"][row] == pytest.approx(np.mean(accuracy), abs=0.5 / 60 + 1e-9)
        assert found.table["mean_robust_accuracy"][row] == pytest.approx(np.mean(robust), abs=0.5 / 20 + 1e-9)


def test_the_rule_picks_from_the_front_and_says_what_it_picked(composed):
    axes = ("model=adv_svm_d_exact", "tune.step=[0.1,1]", "tune.width_scale=[0.25,16]", "attack.epsilon=0.2")
    _, _, robust = tuned(composed, *axes)
    _, _, within = tuned(composed, *axes, "tune.within=0")
    accuracy, kept = (np.array(robust.table[f"mean_{name}"]) for name in ("accuracy", "robust_accuracy"))
    measured = np.array(robust.table["attacked"])
    assert kept[robust.best_row] == kept[measured].max()
    assert accuracy[within.best_row] == accuracy.max() == within.cv_accuracy
    for found in (robust, within):
        assert found.best_row in found.front
        assert {name: found.table[name][found.best_row] for name in found.best} == found.best
        table = "\n".join(_front(found))
        assert table.count("chosen") == 1
        assert "held-out robust accuracy within L∞ 0.2 [%]" in table
    rows = robust.front
    assert (np.diff(accuracy[rows]) < 0).all()
    assert (np.diff(kept[rows]) > 0).all()
    for row in np.flatnonzero(measured):
        assert any(accuracy[best] >= accuracy[row] and kept[best] >= kept[row] for best in rows)
    axes = front(robust).axes[0]
    assert axes.get_ylabel() == "held-out robust accuracy within L∞ 0.2 [%]"


def test_certified_tuning_is_in_the_attacks_own_threat(composed):
    _, _, found = tuned(composed, "tune.metric=certified_accuracy", "model=adv_linear_svm", "tune.C_f=[0]")
    assert found.threat == "L∞ 0.0625"
    assert all(c <= a + 0.1 for c, a in zip(found.table["mean_certified_accuracy"], found.table["mean_accuracy"]))


THREATS = {
    ("attack=pgd", "attack.epsilon=0.1"): ("linf", 0.1),
    ("attack=pgd_l2",): ("l2", 1.5),
    ("attack=zoo", "evaluation.l2_cap=0.7"): ("l2", 0.7),
    ("attack=none", "evaluation.l2_cap=0.7"): ("l2", 0.7),
    ("attack=suite",): ("linf", 0.0625),
    ("attack=pgd", "tune.radius=0.3"): ("linf", 0.3),
    ("attack=pgd", "tune.norm=l2", "tune.radius=2"): ("l2", 2.0),
}


@pytest.mark.parametrize(("overrides", "threat"), THREATS.items(), ids=str)
def test_the_threat_is_the_attacks_unless_another_is_named(composed, overrides, threat):
    cfg = composed("tune=robust", *overrides)
    validate(cfg)
    assert tuning_threat(cfg) == threat


def test_a_grid_for_a_threat_is_another_grid_for_another_threat_only(composed):
    def keys(*overrides):
        return Experiment.of(composed(*overrides), "0" * 64).tune.key

    assert keys("attack=pgd") == keys("attack=fgsm") == keys("attack=zoo")
    assert keys("tune=robust", "attack=pgd") == keys("tune=robust", "attack=fgsm")
    assert len({keys("tune=robust", f"attack={name}") for name in ("pgd", "pgd_l2", "zoo")}) == 3
    assert keys("tune=robust") != keys("tune=robust", "tune.within=0.01")


REFUSED = {
    ("tune.select=within",): "tune.select=within: give tune.within",
    ("tune.select=robust", "tune.within=0.1"): "tune.select=robust and tune.within are both given",
    ("tune.select=one_se", "tune.within=0.1"): "tune.select=one_se and tune.within are both given",
    ("tune.norm=l2",): "tune.norm=l2 needs a radius in that norm",
    ("tune.max_rows=4",): "tune.max_rows must be at least tune.folds=5",
}


@pytest.mark.parametrize(("overrides", "message"), REFUSED.items(), ids=str)
def test_what_the_rule_would_ignore_is_refused(composed, overrides, message):
    with pytest.raises(Exception, match=message) as refusal:
        validate(composed("tune=robust", *overrides))
    assert "\n" not in str(refusal.value)


def test_examples_are_made_in_the_attacks_own_ball_and_box(composed, tmp_path):
    """``model=adv_svm_examples``: norm and radius of the attack, the data's box, a grid of fits on one fold."""
    results = {}
    for attack in ("pgd", "pgd_l2"):
        overrides = ["model=adv_svm_examples", f"attack={attack}", "tune=examples", "tune.width_scale=[4.0]"]
        cfg = composed(*overrides, "tune.C=[0.5,2.0]", "tune.step=[1.0]", "checks=off", "evaluation.max_attacked=20")
        fix_axes(cfg, overrides)
        validate(cfg)
        data = load_dataset(cfg.dataset)
        results[attack] = Experiment.of(cfg, data.fingerprint).run(StageStore(tmp_path / "stages"), data)
        model = results[attack].trained.model
        assert (model.norm, model.epsilon) == (cfg.attack.norm, cfg.attack.epsilon)
        assert tuple(model.box) == data.box
        assert "2 fits, on the first of 5 folds" in results[attack].tuned.messages[0]
    assert results["pgd"].trained.model.n_iter_ >= 100
    # The linear machine's box is its own.
    assert build_model(composed("model=adv_linear_svm").model, data, 0).box is None
