"""A check may ask the model and the run: once per model, once per run, and the graver answer counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from pipeline.checks import Check, check_model, run_checks
from pipeline.checks.base import failed, passed, skipped
from pipeline.checks.registry import Registered, all_checks, run_check
from pipeline.stages.certify import Certified, certify

OF_THE_MODEL = {"01", "02", "13", "16", "19", "20", "21"}


def test_the_model_is_asked_without_an_attack_and_only_what_is_cheap(make):
    checks = check_model(make(), "full")
    assert {check.id[:2] for check in checks} == OF_THE_MODEL
    assert check_model(make(), "off") == []


def test_what_was_asked_of_the_model_is_not_asked_again(make):
    context = make()
    known = [Check(entry.id, "fail", "known before", {"seconds": 1.0}) for entry in all_checks() if entry.of_model]
    checks = {check.id[:2]: check for check in run_checks(context, "cheap", known)}
    assert {id for id, check in checks.items() if "known before" in check.message} == OF_THE_MODEL
    assert checks["13"].evidence["seconds"] >= 1.0


@pytest.mark.parametrize(
    ("of_model", "of_run", "expected"),
    [
        (passed("a"), failed("b"), ("fail", "b")),
        (failed("a"), passed("b"), ("fail", "a")),
        (skipped("a"), passed("b"), ("pass", "b")),
        (skipped("a"), skipped("b"), ("skipped", "a; b")),
    ],
)
def test_the_graver_answer_counts(make, of_model, of_run, expected):
    check = run_check(Registered("99_both", "cheap", lambda _: of_model, lambda _: of_run), make())
    assert (check.status, check.message) == expected


def test_the_stage_gives_radii_and_answers_that_survive_the_cache(make):
    context = make()
    found = certify(context.cfg, context.data, context.tuned, context.trained)
    assert np.array_equal(found.radii, context.radii)
    assert np.array_equal(found.correct, ~context.attacked.clean_wrong)
    again = Certified.from_entry(found.to_entry())
    assert again.checks == found.checks
    assert again.checks_seconds == found.checks_seconds > 0


def test_a_run_with_radii_of_other_points_fails_16(make, judge):
    assert judge("16", replace(make(), radii=np.ones(3))).status == "fail"
