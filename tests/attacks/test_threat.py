"""The threat an attack speaks about, and the traits everybody asks of it."""

import math

import numpy as np
import pytest

from attacks import FGSM, PGD, ZOO, CarliniWagner, NoAttack, Suite, Threat, Transfer


@pytest.mark.parametrize(
    ("threat", "text"),
    [
        (Threat("linf", 8 / 255), "L∞ 8/255"),
        (Threat("l2", 1.5), "L2 1.5"),
        (Threat("linf", 0.2), "L∞ 0.2"),
        (Threat("linf", 0.0), "L∞ 0"),
        (Threat("l2", math.inf), "L2 unbounded"),
    ],
)
def test_a_threat_names_norm_and_radius(threat, text):
    assert str(threat) == text


@pytest.mark.parametrize(
    ("arguments", "name"),
    [(("l3", 1.0), "norm"), (("l2", -1.0), "epsilon"), (("l2", math.nan), "epsilon"), (("l2", 1.0, (1, 0)), "box")],
)
def test_a_wrong_threat_is_refused_by_the_name_of_its_argument(arguments, name):
    with pytest.raises(ValueError, match=name):
        Threat(*arguments)


def test_bounded_attacks_speak_about_their_ball_and_unbounded_ones_about_the_cap():
    assert PGD(epsilon=0.1).threat(2.0) == Threat("linf", 0.1)
    assert PGD(epsilon=0.1, norm="l2", box=(-1.0, 1.0)).threat(2.0) == Threat("l2", 0.1, (-1.0, 1.0))
    assert CarliniWagner().threat(2.0) == ZOO().threat(2.0) == Threat("l2", 2.0)
    assert Transfer(PGD(epsilon=0.1), None).threat(2.0) == Threat("linf", 0.1)
    assert NoAttack().threat(2.0).epsilon == 0


@pytest.mark.parametrize(
    ("attack", "bounded", "costly", "needs_gradients"),
    [
        (NoAttack(), True, False, False),
        (FGSM(), True, False, True),
        (PGD(), True, False, True),
        (CarliniWagner(), False, True, True),
        (ZOO(), False, True, False),
        (Suite([PGD()]), True, False, True),
        (Suite([ZOO()]), False, True, False),
        (Transfer(ZOO(), None), False, True, False),
    ],
)
def test_traits_are_the_attack_s_own(attack, bounded, costly, needs_gradients):
    assert (attack.bounded, attack.costly, attack.needs_gradients) == (bounded, costly, needs_gradients)


def test_a_printed_result_is_one_line_with_threat_and_accuracy(fitted, digits):
    X, y = digits[2][:24], digits[3][:24]
    for attack, threat in (
        (PGD(epsilon=0.1), "L∞ 0.1"),
        (CarliniWagner(steps=5), "L2 unbounded"),
        (Suite([PGD()]), ""),
    ):
        result = attack(fitted("svc_rbf"), X, y)
        text = repr(result)
        assert "\n" not in text
        assert len(text) < 160
        assert attack.name in text
        assert threat in text
        assert "24 points" in text
        assert f"{result.clean_accuracy:.2%} → {result.robust_accuracy:.2%}" in text
        if result.found.any():
            assert f"median L2 {np.median(result.distortion_l2[result.found]):.4g}" in text
