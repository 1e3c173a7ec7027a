"""Promises of the verdicts."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binomtest, ttest_1samp

from pipeline.report.claims import (
    EQUAL,
    FAILS,
    HOLDS,
    MISSING,
    NOISE,
    ONE_SEED,
    PARTLY,
    Claim,
    Comparison,
    compare,
    compare_points,
    corrected,
)

NUMBERS = st.lists(st.floats(-5, 5).map(lambda x: round(x, 2)), min_size=2, max_size=10)


def verdict(*comparisons: Comparison) -> str:
    return Claim("", "", comparisons).verdict


@pytest.mark.parametrize(
    ("differences", "expected"),
    [
        ([], MISSING),
        ([3.0], ONE_SEED),
        ([0.5, 0.6, 0.55], HOLDS),
        ([-0.5, -0.6, -0.55], FAILS),
        ([0.5, -0.4, 0.1], NOISE),
        ([0.0, 0.0, 0.0], EQUAL),
        ([0.2, 0.2, 0.2], HOLDS),
    ],
)
def test_verdict_follows_the_paired_differences(differences: list[float], expected: str) -> None:
    assert verdict(compare("", differences)) == expected


@given(NUMBERS)
def test_interval_and_p_value_are_students(differences: list[float]) -> None:
    comparison = compare("", differences)
    if np.std(differences) < 1e-9:
        assert math.isnan(comparison.p)
        return
    naive = ttest_1samp(differences, 0.0)
    assert comparison.p == pytest.approx(naive.pvalue, abs=1e-12)
    interval = naive.confidence_interval(0.95)
    assert (comparison.low, comparison.high) == pytest.approx((interval.low, interval.high))


@given(st.lists(st.floats(0, 0.2), min_size=1, max_size=8))
@settings(deadline=None)
def test_holm_rejects_what_the_naive_step_down_rejects(p_values: list[float]) -> None:
    found = corrected([Comparison("", NOISE, 1.0, n=5, p=p) for p in p_values])
    left = sorted(range(len(p_values)), key=lambda i: p_values[i])
    rejected = set()
    while left and p_values[left[0]] <= 0.05 / len(left):
        rejected.add(left.pop(0))
    assert {i for i, c in enumerate(found) if c.verdict == HOLDS} == rejected


def test_many_comparisons_need_more_evidence_than_one() -> None:
    weak = Comparison("", NOISE, -1.0, n=10, p=0.03)
    assert verdict(weak) == FAILS
    assert verdict(weak, weak, weak, weak) == NOISE


@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_points_decide_by_those_on_which_the_sides_differ(pairs: list[tuple[bool, bool]]) -> None:
    better, worse = np.array(pairs).T
    found = compare_points("", better, worse)
    assert found.mean == pytest.approx(100 * (better.mean() - worse.mean()))
    wins, losses = sum(b and not w for b, w in pairs), sum(w and not b for b, w in pairs)
    if wins + losses:
        assert found.p == pytest.approx(binomtest(wins, wins + losses).pvalue)
        assert found.low - 1e-9 <= found.mean <= found.high + 1e-9
    else:
        assert found.verdict == EQUAL
    assert found.basis == f"deterministic, {len(pairs)} points"


def test_a_row_without_a_difference_decides_nothing() -> None:
    good, equal = compare("", [1.0, 1.1, 1.05]), compare("", [0.0, 0.0, 0.0])
    assert verdict(good, equal, good) == HOLDS
    assert verdict(equal, equal) == EQUAL


def test_one_comparison_against_it_fails_the_claim_and_one_open_leaves_a_part() -> None:
    good, bad = compare("", [1.0, 1.1, 1.05]), compare("", [-1.0, -1.01, -1.02])
    open_ = compare("", [1.0, -1.0, 0.3])
    assert verdict(good, good) == HOLDS
    assert verdict(good, open_) == PARTLY
    assert verdict(good, open_, bad) == FAILS
    assert verdict(open_, open_) == NOISE
    assert verdict(compare("", [])) == MISSING


def test_the_effect_is_stated_beside_the_word() -> None:
    claim = Claim("", "", (compare("", [1.0, 1.1, 1.05]), compare("", [0.0, 0.0]), compare("", [2.0, 2.1, 2.05])))
    assert claim.effect == "2 of 3: +1.05 to +2.05 points"
    slow = Claim("", "", (compare("", [2.4, 2.5, 2.6], unit="s", ratio=7.8),))
    assert slow.effect == "+2.50 s (7.8 times)"


def test_negative_zero_is_not_printed() -> None:
    assert "-0.00" not in compare("", [-0.001, 0.0009]).text
