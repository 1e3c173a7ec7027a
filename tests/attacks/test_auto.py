"""The strongest attacks: never weaker than the others at the same radius, and the optimum where it is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import APGD, PGD, Auto, CarliniWagner, MinNorm, Square, accuracy_at
from attacks.geometry import lowest_in_ball, nearest_below_plane
from oracles_attacks import LinearModel

MODELS = ["svc_rbf", "svc_poly", "doubly_stochastic", "support_vectors", "linear_svc"]


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.15), ("l2", 1.0)])
@pytest.mark.parametrize("name", MODELS)
def test_auto_breaks_whatever_another_attack_breaks(name, norm, epsilon, fitted, digits):
    model, X, y = fitted(name), digits[2], digits[3]
    result = Auto(epsilon=epsilon, norm=norm)(model, X, y)
    pgd = PGD(epsilon=epsilon, norm=norm, steps=50, restarts=2)(model, X, y)
    nearest = CarliniWagner()(model, X, y)
    assert (result.success | ~pgd.success).all()
    assert result.robust_accuracy <= accuracy_at(nearest, epsilon, norm)
    assert sum(result.history["broken_by"].values()) == result.found.sum()


class Masked:
    """Right scores, gradients that point the wrong way: what a defence by obfuscation looks like."""

    classes_ = np.array([-1, 1])

    def __init__(self, model):
        self.model = model

    def scores(self, X):
        return self.model.scores(X)

    def scores_and_gradients(self, X):
        scores, gradients = self.model.scores_and_gradients(X)
        return scores, -gradients

    def probe(self, X, coords, h):
        return self.model.probe(X, coords, h)


@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.3), ("l2", 1.5)])
def test_auto_is_not_misled_by_wrong_gradients(norm, epsilon, fitted, digits):
    model, X, y = fitted("support_vectors"), digits[2][:40], digits[3][:40]
    masked = Masked(model)
    assert Auto(epsilon=epsilon, norm=norm)(masked, X, y).robust_accuracy < 0.5
    assert PGD(epsilon=epsilon, norm=norm)(masked, X, y).robust_accuracy > 0.9


@pytest.mark.parametrize("attack", [APGD, Auto])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_the_optimum_on_a_linear_model(attack, norm, digits):
    """No point of ball and box has a smaller margin: rows stand exactly when the linear optimum does."""
    X, y = digits[2].astype(np.float64), digits[3]
    rng = np.random.default_rng(0)
    weights = rng.normal(size=64)
    model = LinearModel(weights, -float(np.median(X @ weights)))
    y = np.where(model.scores(X) > 0, 1, -1)
    for epsilon in (0.05, 0.2, 0.8) if norm == "linf" else (0.2, 0.6, 2.0):
        normals = y[:, None] * weights
        corners = np.clip(X - epsilon * np.sign(normals), 0.0, 1.0)
        lowest = corners if norm == "linf" else lowest_in_ball(X, normals, epsilon, (0.0, 1.0))
        optimum = y * model.scores(lowest)
        result = attack(epsilon=epsilon, norm=norm, dtype="float64")(model, X, y)
        clear = np.abs(optimum) > 1e-5
        np.testing.assert_array_equal(result.success[clear], (optimum < 0)[clear])
        standing = ~result.success
        np.testing.assert_allclose((y * result.scores)[standing], optimum[standing], atol=1e-4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.01, 3.0))
def test_no_point_of_ball_and_box_lies_lower(seed, epsilon):
    rng = np.random.default_rng(seed)
    X, normal = rng.uniform(size=(1, 6)), rng.normal(size=(1, 6)) * rng.integers(0, 2, size=(1, 6))
    best = lowest_in_ball(X, normal, epsilon, (0.0, 1.0))
    assert np.linalg.norm(best - X) <= epsilon * (1 + 1e-9)
    assert best.min() >= 0
    assert best.max() <= 1
    others = rng.normal(size=(4000, 6))
    lengths = epsilon * rng.uniform(0.5, 1, size=(4000, 1)) / np.linalg.norm(others, axis=1, keepdims=True)
    others = X + lengths * others
    others = others[((others >= 0) & (others <= 1)).all(axis=1)]
    assert (others @ normal[0] >= (best @ normal[0]) - 1e-4).all()
    # As long as ball and box allow: to the sphere, or to the corner.
    corner = np.where(normal > 0, 0.0, np.where(normal < 0, 1.0, X))
    assert np.linalg.norm(best - X) >= min(epsilon, np.linalg.norm(corner - X)) * (1 - 1e-4)


@settings(max_examples=60, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_the_nearest_point_below_a_plane_in_linf_is_the_smallest_cube_that_reaches_it(seed):
    rng = np.random.default_rng(seed)
    X, normal = rng.uniform(size=(1, 8)), rng.normal(size=(1, 8))
    offset = (X @ normal[0]) - rng.uniform(0, 2)
    z = nearest_below_plane(X, normal, offset, (0.0, 1.0), "linf", iterations=30)
    radius = np.abs(z - X).max()
    corner = np.clip(X - np.sign(normal), 0, 1)
    if corner @ normal[0] <= offset:
        assert (z @ normal[0]) <= offset + 1e-4
        smaller = np.clip(X - 0.999 * radius * np.sign(normal), 0, 1)
        assert radius < 1e-6 or (smaller @ normal[0]) > offset - 1e-9


@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("name", ["svc_rbf", "doubly_stochastic", "support_vectors", "svc_poly"])
def test_the_minimum_norm_search_is_nearer_than_carlini_wagner_for_fewer_gradients(name, norm, fitted, digits):
    model, X, y = fitted(name), digits[2][:40], digits[3][:40]
    result, reference = MinNorm(norm=norm)(model, X, y), CarliniWagner()(model, X, y)
    assert result.success.all()
    assert result.gradient_evaluations.max() <= 100
    assert result.threat.norm == norm
    assert np.median(result.distortion(norm)) <= 1.002 * np.median(reference.distortion(norm))


def test_more_gradients_never_lead_farther_away(fitted, digits):
    model, X, y = fitted("support_vectors"), digits[2][:40], digits[3][:40]
    medians = [np.median(MinNorm(gradients=budget)(model, X, y).distortion_l2) for budget in (5, 20, 60, 200)]
    assert (np.diff(medians) <= 1e-6).all()


def test_square_asks_for_scores_alone_and_no_more_than_its_budget(fitted, digits):
    model, X, y = fitted("svc_rbf"), digits[2][:40], digits[3][:40]
    result = Square(epsilon=0.3, queries=200)(model.decision_function, X, y)
    assert result.queries.max() <= 200
    assert result.gradient_evaluations.sum() == 0
    assert result.attack_success_rate > 0.5
