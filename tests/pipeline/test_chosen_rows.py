"""Which test rows an attack gets when it does not get all."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.data import load_dataset
from pipeline.stages import attack, chosen
from pipeline.stages.chosen import MANY, PART, choose_rows
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
