"""A check may ask the model and the run: once per model, once per run, and the graver answer counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import oracles_broken as broken
import pytest

from pipeline.cache import entry
from pipeline.checks import Check, check_model, run_checks
from pipeline.checks.registry import RegisteredCheck, all_checks, failed, passed, run_check, skipped
from pipeline.stages.certify import Certified, Certify

OF_THE_MODEL = {"01", "02", "13", "16", "19", "20", "21", "28"}


def test_the_model_is_asked_without_an_attack_and_only_what_is_cheap(make):
    checks = check_model(make(), "full")
    assert {check.id[:2] for check in checks} == OF_THE_MODEL
    assert check_model(make(), "off") == []


def test_what_was_asked_of_the_model_is_not_asked_again(make):
    context = make()
    known = [Check(known.id, "fail", "known before", {"seconds": 1.0}) for known in all_checks() if known.of_model]
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
    check = run_check(RegisteredCheck("99_both", "cheap", lambda _: of_model, lambda _: of_run), make())
    assert (check.status, check.message) == expected


def test_the_stage_gives_radii_and_answers_that_survive_the_cache(make, tmp_path):
    context = make()
    found = Certify(context.cfg).run(context.data, context.tuned, context.trained)
    assert np.array_equal(found.radii, context.radii)
    assert np.array_equal(found.correct, ~context.attacked.clean_wrong)
    entry.write(found.to_entry(), tmp_path / "certified")
    again = Certified.from_entry(entry.read(tmp_path / "certified"))
    assert again.checks == found.checks
    assert again.checks_seconds == found.checks_seconds > 0
    assert np.array_equal(again.radii, found.radii)
    assert np.array_equal(again.correct, found.correct)


def test_an_exception_is_a_failure_of_this_run_and_is_asked_again_in_the_next(make):
    context = make(model=broken.OutOfMemoryOnce)
    found = Certify(context.cfg).run(context.data, context.tuned, context.trained)
    assert "fail" in {check.status for check in found.checks}
    kept = Certified.from_entry(found.to_entry()).checks
    assert "fail" not in {check.status for check in kept}
    assert len(kept) < len(found.checks)
    assert "fail" not in {check.status for check in run_checks(context, "cheap", kept)}


def test_the_traces_of_both_questions_are_kept(make):
    def stop(word):
        def question(context):
            raise RuntimeError(word)

        return question

    check = run_check(RegisteredCheck("99_both", "cheap", stop("first"), stop("second")), make())
    assert check.status == "fail"
    assert "first" in check.evidence["exception"]
    assert "second" in check.evidence["exception"]


def of_the_run(id, context):
    """The answer to the run's question alone."""
    (asked,) = [entry for entry in all_checks() if entry.id.startswith(id)]
    return run_check(asked, context, of_model=Check(asked.id, "pass", "not asked"))


def altered(context, **changes):
    return replace(context, attacked=replace(context.attacked, result=replace(context.attacked.result, **changes)))


def test_scores_that_are_not_what_the_attack_saw_fail_02(make):
    context = make()
    assert of_the_run("02", context).status == "pass"
    assert of_the_run("02", altered(context, clean_scores=1.01 * context.attacked.result.clean_scores)).status == "fail"


def test_slopes_that_the_attack_did_not_find_fail_13(make):
    context = make()
    assert of_the_run("13", context).status == "pass"
    for share, status in ((0.005, "warn"), (0.05, "fail")):
        count = max(1, round(share * 1000))
        many = replace(context.attacked, clean_wrong=np.zeros(1000, dtype=bool))
        history = context.attacked.result.history | {"zero_gradients": count}
        met = replace(context, attacked=replace(many, result=replace(many.result, history=history)))
        assert of_the_run("13", met).status == status


def test_a_run_with_radii_of_other_points_fails_16(make):
    assert "one radius per test point" in of_the_run("16", replace(make(), radii=np.ones(3))).message


def test_one_dead_point_in_many_is_a_warning_in_13(make):
    """It may be among the few that are looked at first: one of 16 is not 6 % of all."""
    context = make(model=broken.DeadAtOnePoint)
    digits = context.data
    rows = np.r_[0, np.tile(np.arange(1, len(digits.y_test)), 4)]
    data = replace(digits, X_test=digits.X_test[rows], y_test=digits.y_test[rows], test_ids=digits.test_ids[rows])
    context.model.point = data.X_test[0]
    (check,) = [c for c in check_model(replace(context, data=data, radii=np.ones(len(rows))), "cheap") if "13" in c.id]
    assert check.status == "warn"
    assert check.evidence["points"] == 256
