"""FGSM and PGD: inside the ball, as strong as the closed form, and stronger with every step."""

import numpy as np
import pytest
from sklearn.svm import SVC

from attacks import FGSM, PGD, NoAttack
from attacks.geometry import linf_limits
from attacks.problem import RunResult
from oracles_attacks import LinearModel, VanishingRBF, linear_worst_margin_linf

RBF_MODELS = ["svc_rbf", "doubly_stochastic", "fixed_features", "support_vectors", "kernel_svc"]


@pytest.mark.parametrize("epsilon", [0.02, 0.1, 0.3])
@pytest.mark.parametrize("attack", [FGSM, PGD])
def test_the_linear_model_is_attacked_as_well_as_its_closed_form(attack, epsilon, digits):
    X, y = digits[2], digits[3]
    model = SVC(kernel="linear").fit(*digits[:2])
    worst = linear_worst_margin_linf(model.coef_[0], model.intercept_[0], X, y, epsilon)
    result = attack(epsilon=epsilon)(model, X, y)
    np.testing.assert_array_equal(result.success, worst < 0)
    standing = ~result.success
    np.testing.assert_allclose((y * result.scores)[standing], worst[standing], atol=1e-4)


def test_an_l2_step_of_a_linear_model_goes_along_its_weights():
    weights = np.array([3.0, 4.0])
    X = np.array([[0.5, 0.5]])
    result = PGD(epsilon=0.1, norm="l2")(LinearModel(weights, -2.0), X, [1])
    np.testing.assert_allclose(result.scores, 1.5 - 0.1 * 5.0, atol=1e-5)
    np.testing.assert_allclose(result.examples - X, [[-0.06, -0.08]], atol=1e-5)


def test_fgsm_is_pgd_with_one_step(fitted, digits):
    for norm in ("linf", "l2"):
        one = FGSM(epsilon=0.2, norm=norm)(fitted("svc_rbf"), *digits[2:])
        other = PGD(epsilon=0.2, steps=1, step_size=0.2, norm=norm)(fitted("svc_rbf"), *digits[2:])
        np.testing.assert_array_equal(one.examples, other.examples)


@pytest.mark.parametrize("name", RBF_MODELS)
@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.2), ("l2", 1.2)])
def test_more_pgd_steps_never_help_the_defender(name, norm, epsilon, fitted, digits):
    model, X, y = fitted(name), digits[2], digits[3]
    before = np.zeros(len(y), dtype=bool)
    curve = PGD(epsilon=epsilon, steps=12, norm=norm)(model, X, y).history["robust_accuracy_by_step"]
    assert (np.diff(curve) <= 0).all()
    for steps in (1, 3, 6, 12):
        result = PGD(epsilon=epsilon, steps=steps, norm=norm)(model, X, y)
        assert result.success[before].all()
        assert result.robust_accuracy == pytest.approx(curve[steps]), "accuracy versus K comes from one run"
        before = result.success
    assert before.mean() > 0.2, "the attack works at all"


def test_restarts_never_help_the_defender(fitted, digits):
    model = fitted("svc_rbf")
    single = PGD(epsilon=0.2, steps=3)(model, *digits[2:])
    several = PGD(epsilon=0.2, steps=3, restarts=4)(model, *digits[2:])
    assert several.success[single.success].all()
    assert several.gradient_evaluations.sum() > single.gradient_evaluations.sum()


@pytest.mark.parametrize("attack", [FGSM(), PGD(), PGD(norm="l2"), PGD(random_start=True)])
def test_accuracy_falls_with_epsilon_and_zero_is_clean(attack, fitted, digits):
    X, y = digits[2], digits[3]
    epsilons = [0.5, 0.0, 0.1, 0.2]
    results = attack(fitted("svc_rbf"), X, y, epsilons=epsilons)
    assert [result.epsilon for result in results] == epsilons
    zero = results[1]
    np.testing.assert_array_equal(zero.examples, X)
    assert zero.robust_accuracy == zero.clean_accuracy
    ordered = [results[k].robust_accuracy for k in np.argsort(epsilons)]
    assert (np.diff(ordered) <= 0).all()
    for result in results:
        distortion = result.distortion_linf if attack.norm == "linf" else result.distortion_l2
        assert distortion.max() <= result.epsilon
        assert result.history["robust_accuracy_by_step"][0] == result.clean_accuracy
        assert result.history["robust_accuracy_by_step"][-1] == pytest.approx(result.robust_accuracy)


def test_an_epsilon_of_the_call_replaces_the_attacks_own(fitted, digits):
    own = PGD(epsilon=0.2)(fitted("svc_rbf"), *digits[2:])
    given = PGD(epsilon=0.7)(fitted("svc_rbf"), *digits[2:], epsilons=0.2)
    np.testing.assert_array_equal(own.examples, given.examples)


def test_broken_points_leave_and_cost_nothing_more(fitted, digits):
    result = PGD(epsilon=0.3, steps=10)(fitted("svc_rbf"), *digits[2:])
    standing = ~result.success
    # All ten steps and a last look.
    assert (result.gradient_evaluations[standing] == 10).all()
    assert (result.queries[standing] == 1).all()
    assert result.gradient_evaluations[result.found].mean() < 9


@pytest.mark.parametrize("epsilon", [0.05, 0.3])
def test_leaving_early_changes_nothing(epsilon, fitted, digits):
    """The textbook loop: every row takes every step, every iterate is scored, the smallest margin wins."""
    model, X, y = fitted("support_vectors"), digits[2], digits[3]
    limits = linf_limits(X.astype(np.float32), epsilon, (0.0, 1.0))
    points = best = X.astype(np.float32)
    smallest = y * model.scores(points)
    broken = smallest < 0
    for _ in range(25):
        _, gradients = model.scores_and_gradients(points)
        moved = np.clip(points - np.float32(epsilon / 4) * np.sign(y[:, None] * gradients), *limits)
        points = moved.astype(np.float32)
        margins = y * model.scores(points)
        better = (margins < smallest) & ~broken
        best, smallest = np.where(better[:, None], points, best), np.where(better, margins, smallest)
        broken |= margins < 0
    result = PGD(epsilon=epsilon, steps=25)(model, X, y)
    np.testing.assert_array_equal(result.success, broken)
    np.testing.assert_allclose(y * result.scores, smallest, atol=1e-5)
    assert result.gradient_evaluations.sum() <= 25 * (~result.already_misclassified).sum()
    assert (result.gradient_evaluations[result.found] < 25).all()


class Boastful(PGD):
    """Claims what is not so: margins of points it did not keep."""

    claimed = -1.0

    def run(self, problem):
        return RunResult(problem.X, margins=np.full(len(problem.X), self.claimed))


def test_a_claimed_success_is_scored_again(fitted, digits):
    X, y = digits[2], digits[3]
    result = Boastful()(fitted("svc_rbf"), X, y)
    assert result.robust_accuracy == result.clean_accuracy
    np.testing.assert_allclose(result.scores, result.clean_scores, atol=1e-6)


class OtherScores(LinearModel):
    """Gradients that come with scores of another function, as a rounded or a surrogate model's do."""

    def scores_and_gradients(self, X):
        scores, gradients = super().scores_and_gradients(X)
        return scores + 0.2, gradients


def test_scores_that_come_with_gradients_are_not_trusted_when_they_are_others():
    model, X = OtherScores(np.array([1.0, 1.0]), -1.2), np.array([[0.6, 0.7], [0.55, 0.55], [0.9, 0.9]])
    result = PGD(epsilon=0.06)(model, X, [1, 1, 1])
    np.testing.assert_array_equal(result.already_misclassified, [False, True, False])
    np.testing.assert_array_equal(result.success, [True, True, False])
    np.testing.assert_allclose(result.scores, model.scores(result.examples), atol=1e-6)


def test_points_moved_into_the_ball_are_scored_again(fitted, digits):
    class Far(PGD):
        def run(self, problem):
            return RunResult(1.0 - problem.X, margins=np.full(len(problem.X), 7.0))

    model, X, y = fitted("svc_rbf"), digits[2], digits[3]
    result = Far(epsilon=0.1)(model, X, y)
    assert result.distortion_linf.max() <= 0.1
    np.testing.assert_allclose(result.scores, model.decision_function(result.examples), atol=1e-5)


def test_vanished_gradients_are_counted(digits):
    """Far from its centres an RBF has no gradient: the self-checks must see that, not a robust model."""
    X = digits[2][:10]
    model = VanishingRBF(np.full((1, 64), -100.0), [1.0], gamma=1.0)
    result = PGD()(model, X, np.full(10, -1))
    assert result.history["zero_gradients"] == 10 * 10, "ten rows, ten steps each"
    assert result.robust_accuracy == 1.0


def test_a_run_that_has_not_converged_shows_in_the_last_step(fitted, digits):
    # Small steps: after five of them the ball's edge is still far, so a fifth of the fall comes in the last.
    short = PGD(epsilon=0.1, steps=5, step_size=0.005)(fitted("svc_rbf"), *digits[2:])
    long = PGD(epsilon=0.1, steps=40)(fitted("svc_rbf"), *digits[2:])
    assert short.history["last_step_gain"] > 0.1
    assert long.history["last_step_gain"] < 0.01


def test_no_attack_is_clean_accuracy(fitted, digits):
    model = fitted("svc_rbf")
    result = NoAttack()(model, *digits[2:])
    assert result.robust_accuracy == pytest.approx(model.score(*digits[2:]))
    np.testing.assert_array_equal(result.examples, digits[2])


def test_a_plain_svc_breaks_as_a_positive_control(digits):
    """The model everybody knows, an epsilon everybody would call large: an attack that fails here is broken."""
    model = SVC(C=8.0, gamma=0.2).fit(*digits[:2])
    result = PGD(epsilon=0.3, steps=20)(model, *digits[2:])
    assert result.clean_accuracy > 0.95
    assert result.robust_accuracy < 0.1
