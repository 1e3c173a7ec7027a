"""One threat: what is certified and what is broken is said of the same rows, norm and radius."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from attacks import FGSM, PGD, CarliniWagner, NoAttack
from models import AdvLinearSVM, AdvSVM
from pipeline.job import result_line
from pipeline.stages.attack import Attacked
from pipeline.stages.bracket import verdicts_on
from pipeline.stages.train import Trained


@pytest.fixture(scope="module")
def problem():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (80, 6))
    y = np.where(X[:, 0] + 0.1 * X[:, 1] > 0.55, 1, -1)
    model = AdvLinearSVM(C_f=0.0).fit(X, y)
    data = SimpleNamespace(X_train=X, X_test=X, y_test=y, mutable=None, monotone=None)
    return data, Trained(model), np.asarray(model.certified_radius(X, y))


def _judge(problem, attack, cap=0.2):
    data, trained, radii = problem
    rows = np.arange(0, len(data.y_test), 2)
    X, y = data.X_test[rows], data.y_test[rows]
    attacked = Attacked(attack(trained.model, X, y), rows, trained.model.predict(X) != y, 0.0)
    return verdicts_on(data, trained, attacked, radii, cap, None), attacked


@pytest.mark.parametrize("attack", [PGD(epsilon=0.1), FGSM(epsilon=0.05), PGD(epsilon=0.2, norm="l2")], ids=str)
def test_a_bounded_attack_is_judged_in_its_own_ball(problem, attack):
    known, attacked = _judge(problem, attack)
    assert (known.norm, known.epsilon, known.bounded) == (attack.norm, attack.epsilon, True)
    assert np.array_equal(known.broken, attacked.result.success)
    assert not np.any(known.certified & known.broken)
    # Of a linear model nothing is left open, in either norm.
    assert np.mean(known.undecided) < 0.1
    assert 0 < known.certified.mean() < 1


def test_an_unbounded_attack_is_judged_at_the_cap(problem):
    known, attacked = _judge(problem, CarliniWagner(), cap=0.1)
    assert (known.norm, known.epsilon, known.bounded) == ("l2", 0.1, False)
    assert known.broken.sum() < attacked.result.success.sum()  # without a bound, everything breaks
    assert np.all(attacked.result.distortion_l2[known.broken] <= 0.1)
    assert not np.any(known.certified & known.broken)


def test_without_an_attack_only_the_certificate_speaks(problem):
    known, _ = _judge(problem, NoAttack(), cap=0.1)
    assert not known.attacked
    metrics = {"clean_accuracy": 1.0, "certified_accuracy": 0.5, "undecided": 0.5, "n_attacked": 9, "n_test": 9}
    assert result_line(metrics, "L2 0.1", attacked=False) == "clean 100.00%   within L2 0.1: certified 50.00%"


def test_when_the_clock_ends_the_proofs_it_is_said(problem):
    data, _, _ = problem
    X, y = data.X_test, data.y_test
    trained, rows = Trained(AdvSVM(expansion="support_vectors", C=4.0, batch_size=20).fit(X, y)), np.arange(len(y))
    attacked = Attacked(PGD(epsilon=0.05)(trained.model, X, y), rows, trained.model.predict(X) != y, 0.0)
    late, whole = (verdicts_on(data, trained, attacked, np.zeros(len(y)), 0.2, seconds) for seconds in (0.0, None))
    assert late.stopped
    assert not whole.stopped
    assert late.undecided.sum() > whole.undecided.sum()
    metrics = {"clean_accuracy": 1.0, "certified_accuracy": 0.5, "undecided": 0.5, "n_attacked": 9, "n_test": 9}
    assert "certify_seconds" in result_line(metrics | {"certify_stopped": 1.0}, "L∞ 0.05")


def test_the_line_says_norm_and_radius_and_clean_accuracy_of_the_same_rows():
    metrics = {"clean_accuracy": 0.9, "clean_accuracy_attacked": 1.0, "n_attacked": 5, "n_test": 10}
    line = result_line(metrics | {"certified_accuracy": 0.4, "undecided": 0.2}, "L∞ 8/255")
    clean, known = line.split("   ")
    assert clean == "clean 90.00% (100.00% of the 5 attacked)"
    assert known == "within L∞ 8/255: certified 40.00%, attacked 60.00%, undecided 20.00%"
