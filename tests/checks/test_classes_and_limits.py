"""Broken evaluations are told from honest ones also with many classes and with attackers that have limits."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

import numpy as np
import oracles_broken as broken
import pytest
from sklearn.datasets import load_digits

from attacks import CarliniWagner
from pipeline.checks import run_checks
from pipeline.data import build_dataset
from pipeline.stages.build import constraints_of

# What is asked of a run that attacks: none of it may be skipped.
ASKED = ("01", "02", "03", "05", "11", "13", "14", "15", "16", "23", "24", "25", "27")
STRONG = 0.25


@lru_cache
def three_classes():
    """The digits 0, 8 and 9: 180 rows to train on and 60 to test."""
    X, y = load_digits(return_X_y=True)
    rows = np.flatnonzero(np.isin(y, (0, 8, 9)))[:240]
    X, y = (X[rows] / 16).astype(np.float32), np.searchsorted((0, 8, 9), y[rows])
    return build_dataset(
        name="three",
        X_train=X[:180],
        y_train=y[:180],
        X_test=X[180:],
        y_test=y[180:],
        image_shape=(8, 8),
        class_names=("0", "8", "9"),
        train_ids=np.arange(180),
        test_ids=np.arange(180, 240),
        source="scikit-learn",
    )


@pytest.fixture
def situation(make, request):
    """A maker of contexts with three classes, or an attacker who may not touch some pixels and only raise others."""
    if request.param == "three classes":
        data = three_classes()
        return lambda *settings, **more: make("model=svc", *settings, data=data, retrain=True, **more)
    data = make().data
    ways = (np.arange(64) % 4 == 0).astype(np.int8)
    limited = replace(data, mutable=np.arange(64) < 56, monotone=ways)

    def made(*settings, by=None, **more):
        by = None if by is None else replace(by, constraints=constraints_of(limited))
        return make("model=svc", *settings, data=limited, by=by, **more)

    return made


both = pytest.mark.parametrize("situation", ["three classes", "limits"], indirect=True)


@both
@pytest.mark.parametrize("norm", [("attack.epsilon=0.15",), ("attack.epsilon=0.4", "attack.norm=l2")])
def test_an_honest_pgd_passes_what_is_asked_of_it(situation, norm):
    checks = run_checks(situation(*norm), "full")
    assert not {check.id: check.message for check in checks if check.status == "fail"}
    asked = {check.id: check.status for check in checks if check.id.startswith(ASKED)}
    assert len(asked) == len(ASKED)
    assert set(asked.values()) <= {"pass", "warn"}, asked


@both
def test_an_honest_minimum_norm_attack_passes_what_is_asked_of_it(situation):
    checks = run_checks(situation(by=CarliniWagner(steps=20, binary_search_steps=2)), "cheap")
    assert not {check.id: check.message for check in checks if check.status == "fail"}
    assert {check.id: check.status for check in checks}["26_boundary"] == "pass"


@both
def test_an_attack_on_every_second_row_fails_24_and_25(situation, judge):
    context = situation(by=broken.PickyPGD(epsilon=0.4))
    assert judge("24", context).status == "fail"
    assert judge("25", context).status == "fail"


@both
def test_an_attack_that_keeps_to_a_part_of_its_radius_fails_24(situation, judge):
    assert judge("24", situation(by=broken.ShyPGD(epsilon=0.15))).status == "fail"


@both
def test_steps_that_are_too_few_fail(situation, judge):
    context = situation(by=broken.EarlyPGD(epsilon=STRONG, restarts=1))
    assert "fail" in {judge(number, context).status for number in ("05", "24", "25")}


@pytest.mark.parametrize("situation", ["limits"], indirect=True)
def test_an_attack_that_changes_what_it_must_not_fails_03(situation, judge):
    assert judge("03", situation("attack.epsilon=0.15")).status == "pass"
    check = judge("03", situation(by=broken.TrespassingPGD(epsilon=0.15)))
    assert check.status == "fail"
    assert "limits" in check.message
    assert check.evidence["pgd_beyond_limits"] == pytest.approx(0.15, abs=1e-3)


@pytest.mark.parametrize("situation", ["three classes"], indirect=True)
def test_wrong_gradients_of_many_classes_fail_01(situation, judge):
    assert judge("01", situation("attack.epsilon=0.15")).status == "pass"
    check = judge("01", situation("attack.epsilon=0.15", model=broken.ReversedMargins))
    assert check.status == "fail"
    assert "finite differences" in check.message


@pytest.mark.parametrize("situation", ["three classes"], indirect=True)
def test_easy_points_and_stretched_examples_of_many_classes_fail_26_and_27(situation, judge):
    context = situation("attack.epsilon=0.15")
    easiest = np.sort(np.argsort(-context.margins)[:20])
    result = context.attacked.result
    arrays = {name: value[easiest] for name, value in vars(result).items() if isinstance(value, np.ndarray)}
    part = replace(context.attacked, rows=easiest, clean_wrong=context.attacked.clean_wrong[easiest])
    assert judge("27", replace(context, attacked=replace(part, result=replace(result, **arrays)))).status == "fail"
    honest = situation(by=CarliniWagner(steps=20, binary_search_steps=2))
    result = honest.attacked.result
    examples = np.clip(honest.X + 1.1 * (result.examples - honest.X), 0, 1)
    long = replace(result, examples=examples, distortion_l2=np.linalg.norm(examples - honest.X, axis=1))
    check = judge("26", replace(honest, attacked=replace(honest.attacked, result=long)))
    assert check.status == "fail"
    assert "behind the boundary" in check.message
