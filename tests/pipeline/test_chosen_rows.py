"""Which test rows an attack gets when it does not get all."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data import load_dataset
from pipeline.data import rows as chosen
from pipeline.data.rows import MANY, PART, choose_rows
from pipeline.stages import attack
from pipeline.stages.experiment import Experiment
from pipeline.stages.tune import Tuned

LABELS = {
    "two classes": np.arange(12) % 2,
    "ten classes": np.arange(40) % 10,
    "a lonely row": np.array([0] * 9 + [1]),
}


@pytest.mark.parametrize("name", LABELS)
def test_any_number_of_rows_can_be_asked_for(name):
    y = LABELS[name]
    for limit in range(1, len(y) + 3):
        rows = choose_rows(y, limit)
        assert len(set(rows)) == len(rows) == min(limit, len(y))
        assert (np.diff(rows) > 0).all()
        for label in np.unique(y):
            share = len(rows) * np.mean(y == label)
            assert abs(np.count_nonzero(y[rows] == label) - share) <= 1


def test_without_a_limit_all_rows_are_attacked_unless_they_are_many():
    assert choose_rows(np.arange(5) % 2, None).tolist() == [0, 1, 2, 3, 4]
    assert len(choose_rows(np.arange(MANY) % 2, None)) == MANY
    y = np.arange(MANY + 1) % 4 == 0
    assert len(choose_rows(y, None)) == PART
    assert np.mean(y[choose_rows(y, None)]) == pytest.approx(0.25, abs=1e-3)
    assert len(choose_rows(y, MANY + 1)) == MANY + 1


def test_a_run_says_that_it_takes_a_part_of_the_test_rows(composed, monkeypatch):
    monkeypatch.setattr(chosen, "MANY", 40)
    monkeypatch.setattr(chosen, "PART", 30)
    monkeypatch.setattr(attack, "PART", 30)
    cfg = composed("model=natural", "attack=fgsm", "tune=none")
    data = load_dataset(cfg.dataset)
    stages = Experiment.of(cfg, data.fingerprint)
    trained = stages.train.run(data, Tuned())
    assert trained.messages[-1] == "The curve of the test error is over 30 of the 91 test rows."
    attacked = stages.attack.run(data, trained)
    assert stages.attack.line(attacked).startswith("30 test points, a stratified part: evaluation.max_attacked=")


@pytest.mark.parametrize("limit", [None, 20])
def test_of_many_test_rows_a_part_and_the_attacked_ones_are_certified(composed, monkeypatch, limit):
    monkeypatch.setattr(chosen, "MANY", 40)
    monkeypatch.setattr(chosen, "PART", 30)
    # Without dear proofs: what the clock leaves undecided is not the same twice on a busy machine.
    limits = ("evaluation.certify_seconds=0", f"evaluation.max_attacked={limit or 'null'}")
    cfg = composed("model=natural", "attack=fgsm", "tune=none", *limits)
    data = load_dataset(cfg.dataset)
    stages, tuned = Experiment.of(cfg, data.fingerprint), Tuned()
    trained = stages.train.run(data, tuned)
    asked: list[int] = []
    whole = type(trained.model).certified_radius
    monkeypatch.setattr(
        type(trained.model), "certified_radius", lambda self, X, *more: asked.append(len(X)) or whole(self, X, *more)
    )
    certified = stages.certify.run(data, tuned, trained)
    part = choose_rows(data.y_test, None)
    assert asked[0] == len(part) == 30
    assert stages.certify.line(certified) == "L2 radii of 30 of 91 test points, a stratified part"
    assert not [check.message for check in certified.checks if check.status == "fail"]
    assert len(certified.correct) == 91

    attacked = stages.attack.run(data, trained)
    evaluated = stages.evaluate.run(data, tuned, trained, certified, attacked)
    naive = whole(trained.model, data.X_test, data.y_test)
    known = np.union1d(part, attacked.rows)
    np.testing.assert_array_equal(np.flatnonzero(~np.isnan(evaluated.radii)), known)
    np.testing.assert_allclose(evaluated.radii[known], naive[known], rtol=1e-6)
    assert evaluated.metrics["n_radii"] == 30
    assert evaluated.metrics["certified_radius_median"] == pytest.approx(np.median(naive[part]))
    assert not evaluated.metrics["checks_failed"]
    back = type(certified).from_entry(certified.to_entry())
    np.testing.assert_array_equal(back.rows, part)
    assert evaluated.metrics == stages.evaluate.run(data, tuned, trained, back, attacked).metrics | {
        name: evaluated.metrics[name] for name in ("checks_seconds",)
    }


def test_of_few_test_rows_all_are_certified(composed):
    cfg = composed("model=natural", "attack=fgsm", "tune=none", "checks=off")
    data = load_dataset(cfg.dataset)
    stages = Experiment.of(cfg, data.fingerprint)
    trained = stages.train.run(data, Tuned())
    certified = stages.certify.run(data, Tuned(), trained)
    assert len(certified.rows) == len(data.y_test)
    assert stages.certify.line(certified) == ""
    np.testing.assert_array_equal(certified.radii, trained.model.certified_radius(data.X_test, data.y_test))
