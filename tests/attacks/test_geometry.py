"""Balls and boxes hold for the numbers that are stored."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

from attacks.geometry import distortions, linf_limits, nearest_below_plane, project_l2

epsilons = st.floats(0.0, 1.0, allow_nan=False)


@settings(max_examples=50, deadline=None)
@given(epsilon=epsilons, seed=st.integers(0, 10**6))
def test_the_linf_ball_holds_after_rounding(epsilon, seed):
    X = np.random.default_rng(seed).uniform(size=(5, 40)).astype(np.float32)
    lower, upper = linf_limits(X, epsilon, (0.0, 1.0))
    for edge in (lower, upper):
        assert edge.dtype == np.float32
        assert np.abs(edge.astype(np.float64) - X).max() <= epsilon
        assert edge.min() >= 0
        assert edge.max() <= 1
    # Rounding inwards costs next to nothing.
    assert (upper - np.minimum(X.astype(np.float64) + epsilon, 1.0)).min() >= -5e-7


@settings(max_examples=50, deadline=None)
@given(epsilon=epsilons, seed=st.integers(0, 10**6))
def test_the_l2_ball_holds_after_rounding(epsilon, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(size=(5, 40)).astype(np.float32)
    points = project_l2(X + rng.standard_normal((5, 40)).astype(np.float32), X, epsilon, (0.0, 1.0))
    assert np.linalg.norm(points.astype(np.float64) - X, axis=1).max() <= epsilon
    assert points.min() >= 0
    assert points.max() <= 1


@pytest.mark.parametrize("seed", range(5))
def test_the_nearest_point_below_a_plane_is_the_solution_of_the_quadratic_programme(seed):
    rng = np.random.default_rng(seed)
    x, normal = rng.uniform(size=6), rng.standard_normal(6)
    x[:2] = [0.0, 1.0]  # pixels that already sit on the edge of the box
    lowest = normal @ np.where(normal > 0, 0.0, 1.0)
    offset = 0.5 * (normal @ x + lowest)
    z = nearest_below_plane(x[None], normal[None], np.array([offset]), (0.0, 1.0))[0]
    solved = minimize(
        lambda v: np.sum((v - x) ** 2),
        x,
        jac=lambda v: 2 * (v - x),
        bounds=[(0, 1)] * 6,
        constraints={"type": "ineq", "fun": lambda v: offset - normal @ v, "jac": lambda v: -normal},
    )
    np.testing.assert_allclose(z, solved.x, atol=1e-5)


def test_a_plane_close_by_is_reached():
    """The way is short beside normal · x: what counts as there must be measured by the way."""
    X = np.full((1, 784), 0.5)
    z = nearest_below_plane(X, np.ones((1, 784)), np.array([392.0 - 1e-4]), (0.0, 1.0))
    np.testing.assert_allclose(z.sum(), 392.0 - 1e-4, atol=1e-9)


def test_distortions_leave_the_points_alone():
    points, X = np.array([[1.0, 2.0]]), np.array([[0.5, 2.5]])
    distortions(points, X)
    np.testing.assert_array_equal(points, [[1.0, 2.0]])


def test_vanishing_planes_do_not_overflow():
    X = np.full((2, 3), 0.5, dtype=np.float32)
    normals = np.array([[1e-30, 1e-38, 0.0], [0.0, 0.0, 0.0]], dtype=np.float32)
    z = nearest_below_plane(X, normals, np.array([-1.0, -1.0]), (0.0, 1.0))
    assert np.isfinite(z).all()
    np.testing.assert_array_equal(z[1], X[1])
