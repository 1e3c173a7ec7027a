"""The suite is the worst case, and says who broke what; transfer judges on the victim."""

import numpy as np
import pytest

from attacks import FGSM, PGD, ZOO, CarliniWagner, Suite, Threat, Transfer, accuracy_at


@pytest.fixture(scope="module")
def members():
    return [FGSM(epsilon=0.15), PGD(epsilon=0.15), CarliniWagner(steps=30), ZOO(steps=20, binary_search_steps=1)]


def at(threat, result):
    """Success and distance, read at a threat."""
    distance = result.distortion_l2 if threat.norm == "l2" else result.distortion_linf
    return result.success & (distance <= threat.epsilon), distance


def test_the_suite_is_the_worst_case_at_one_threat(members, fitted, digits):
    model, X, y = fitted("support_vectors"), digits[2][:40], digits[3][:40]
    result = Suite(members)(model, X, y)
    assert result.threat == Threat("linf", 0.15)
    assert result.distortion_linf.max() <= 0.15
    apart = {attack.name: attack(model, X, y) for attack in members}
    read = {name: at(result.threat, one) for name, one in apart.items()}
    np.testing.assert_array_equal(result.success, np.any([success for success, _ in read.values()], axis=0))
    nearest = np.min([np.where(*one, np.inf) for one in read.values()], axis=0)
    np.testing.assert_allclose(result.distortion_linf[result.success], nearest[result.success])
    np.testing.assert_array_equal(result.queries, np.sum([one.queries for one in apart.values()], axis=0))
    np.testing.assert_array_equal(model.predict(result.examples) != y, result.success)
    for row, name in enumerate(result.broken_by):
        if name not in ("", "clean"):
            assert apart[name].success[row]
            np.testing.assert_array_equal(result.examples[row], apart[name].examples[row])
    assert set(result.results) == {"fgsm", "pgd", "cw", "zoo"}
    np.testing.assert_array_equal(result.broken_by == "", ~result.success)


def test_robust_accuracy_of_a_suite_with_unbounded_attacks_is_that_of_its_ball(fitted, digits):
    model, X, y = fitted("support_vectors"), digits[2][:40], digits[3][:40]
    within = Suite([CarliniWagner(steps=30)], epsilon=0.6, norm="l2")(model, X, y)
    free = Suite([CarliniWagner(steps=30)])(model, X, y)
    assert free.robust_accuracy == 0.0
    assert within.robust_accuracy == accuracy_at(free, 0.6) > 0.0


@pytest.mark.parametrize(
    "make",
    [
        lambda: Suite([PGD(epsilon=0.05), PGD(epsilon=0.3)]),
        lambda: Suite([PGD(epsilon=0.1), PGD(epsilon=0.1, norm="l2")]),
        lambda: Suite([PGD(epsilon=0.1), ZOO()], epsilon=0.2),
        lambda: Suite([FGSM(epsilon=0.1), PGD(epsilon=0.1, box=(-1, 1))]),
    ],
)
def test_a_suite_has_one_threat(make):
    with pytest.raises(ValueError, match="epsilon, norm and box must be the same for all attacks of a suite"):
        make()


def test_points_misclassified_to_begin_with_are_broken_by_nothing(fitted, digits):
    model, X, y = fitted("svc_rbf"), digits[2][:10], -digits[3][:10]
    result = Suite([FGSM(), CarliniWagner(steps=5)])(model, X, y)
    wrong = model.predict(X) != y
    assert wrong.any()
    assert (result.broken_by[wrong] == "clean").all()


def test_two_attacks_of_a_kind_are_told_apart(fitted, digits):
    result = Suite([PGD(epsilon=0.1), PGD(epsilon=0.1, steps=3)])(fitted("svc_rbf"), *digits[2:])
    assert set(result.results) == {"pgd", "pgd_2"}


def test_epsilons_are_read_by_bounded_and_unbounded_attacks_alike(fitted, digits):
    model, X, y = fitted("svc_rbf"), *digits[2:]
    results = Suite([FGSM(), PGD(), CarliniWagner(steps=5)])(model, X, y, epsilons=[0.0, 0.1, 0.3])
    assert [result.threat for result in results] == [Threat("linf", 0.0), Threat("linf", 0.1), Threat("linf", 0.3)]
    assert (np.diff([result.robust_accuracy for result in results]) <= 0).all()


def test_suite_settings_reach_every_member():
    for attack in Suite(chunk_size=7, random_state=3, dtype="float64").members().values():
        assert (attack.chunk_size, attack.random_state, attack.dtype) == (7, 3, "float64")


def test_transfer_to_itself_is_the_attack(fitted, digits):
    model, X, y = fitted("svc_rbf"), *digits[2:]
    direct, through = PGD(epsilon=0.2)(model, X, y), Transfer(PGD(epsilon=0.2), model)(model, X, y)
    np.testing.assert_array_equal(direct.success, through.success)
    np.testing.assert_array_equal(direct.examples, through.examples)


def test_transfer_is_judged_on_the_victim(fitted, digits):
    surrogate, victim, (X, y) = fitted("linear_svc"), fitted("svc_rbf"), digits[2:]
    result = Transfer(PGD(epsilon=0.15), surrogate)(victim, X, y)
    np.testing.assert_array_equal(result.success, victim.predict(result.examples) != y)
    wrong = victim.predict(X) != y
    np.testing.assert_array_equal(result.examples[wrong], X[wrong])
    assert result.attack == "transfer_pgd"
    assert result.history["surrogate_robust_accuracy"] <= result.robust_accuracy
    several = Transfer(PGD(), surrogate)(victim, X, y, epsilons=[0.05, 0.2])
    assert [one.epsilon for one in several] == [0.05, 0.2]


def test_a_black_box_victim_can_be_attacked_by_transfer(fitted, digits):
    result = Transfer(PGD(epsilon=0.3), fitted("svc_rbf"))(fitted("linear_svc").decision_function, *digits[2:])
    assert result.attack_success_rate > 0.5
