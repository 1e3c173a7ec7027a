"""Promises of the verdicts."""

from __future__ import annotations

import pytest

from pipeline.report.claims import FAILS, HOLDS, MISSING, NOISE, ONE_SEED, Claim, judge


@pytest.mark.parametrize(
    ("differences", "verdict"),
    [
        ([], MISSING),
        ([3.0], ONE_SEED),
        ([0.5, 0.6, 0.55], HOLDS),
        ([-0.5, -0.6, -0.55], FAILS),
        ([0.5, -0.4, 0.1], NOISE),
        ([0.0, 0.0, 0.0], NOISE),
        ([0.2, 0.2, 0.2], HOLDS),
    ],
)
def test_verdict_follows_the_paired_interval(differences: list[float], verdict: str) -> None:
    assert judge("", differences).verdict == verdict


def test_interval_is_students_t() -> None:
    # Mean 1, deviation 1, three seeds: 1 ± 4.3027 / sqrt(3).
    comparison = judge("", [0.0, 1.0, 2.0])
    assert comparison.low == pytest.approx(1 - 2.4841, abs=1e-3)
    assert comparison.high == pytest.approx(1 + 2.4841, abs=1e-3)


def test_one_failing_comparison_fails_the_claim() -> None:
    good, bad, open_ = judge("", [1.0, 1.1]), judge("", [-1.0, -1.01]), judge("", [1.0, -1.0])
    assert Claim("", "", (good, good)).verdict == HOLDS
    assert Claim("", "", (good, open_)).verdict == NOISE
    assert Claim("", "", (good, open_, bad)).verdict == FAILS
    assert Claim("", "", (judge("", []),)).verdict == MISSING


def test_negative_zero_is_not_printed() -> None:
    assert "-0.00" not in judge("", [-0.001, 0.0009]).text
