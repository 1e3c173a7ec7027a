"""Certificates: never beaten, never below the paper's, and sharp."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from models.certificates import linear_radius, paper_radius, second_order_radius, sharp_radius
from models.certificates.definite import curvature_bound, curvature_bound_of_blocks, largest_eigenvalue_bound
from models.kernels import RBF
from models.rounding import Sum
from oracles_certificates import NaiveMachine, lowest_margin

machines = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 6), st.integers(1, 8), st.sampled_from([0.1, 1.0, 5.0]))


def random_machine(seed, d, n_points, gamma, with_intercept):
    rng = np.random.default_rng(seed)
    points = rng.normal(size=(n_points, d))
    coefficients = rng.normal(size=n_points)
    return NaiveMachine(points, coefficients, gamma, rng.normal() if with_intercept else 0.0), rng


def certify(machine, x, **errors):
    """Sharp and paper's radius at x for the predicted label, and that label."""
    score, slope = machine.score(x), np.linalg.norm(machine.gradient(x))
    sign = 1.0 if score > 0 else -1.0
    margin, norm, offset = np.array([sign * score]), machine.norm(), np.array([sign * machine.intercept])
    sharp = sharp_radius(margin, np.array([slope]), norm, machine.gamma, offsets=offset, **errors)[0]
    paper = paper_radius(margin, norm, lambda g: np.sqrt(-np.log(g) / machine.gamma))[0]
    return sharp, paper, sign


@given(machines, st.booleans())
@settings(max_examples=150, deadline=None)
def test_no_attack_inside_the_sharp_radius_changes_the_label(setting, with_intercept):
    machine, rng = random_machine(*setting, with_intercept)
    x = rng.normal(size=setting[1])
    # The machine's own last places are the error of what it measures.
    sharp, _, sign = certify(machine, x, margin_error=1e-12, gradient_error=1e-12, norm_error=1e-12)
    radius = min(sharp, 50.0)
    found = lowest_margin(machine.score, machine.gradient, x, sign, radius, rng.normal(size=(4, setting[1])))
    assert found > -1e-13


@given(machines, st.booleans())
@settings(max_examples=150, deadline=None)
def test_the_sharp_radius_is_never_below_the_papers(setting, with_intercept):
    machine, rng = random_machine(*setting, with_intercept)
    sharp, paper, _ = certify(machine, rng.normal(size=setting[1]))
    assert sharp >= paper * (1 - 1e-6) - 1e-9


@given(machines, st.booleans())
@settings(max_examples=100, deadline=None)
def test_the_sharp_bound_holds_at_every_point_it_speaks_of(setting, with_intercept):
    machine, rng = random_machine(*setting, with_intercept)
    x, move = rng.normal(size=setting[1]), rng.normal(size=setting[1])
    r, u = np.linalg.norm(move), machine.gamma * move @ move
    h, slope = machine.score(x) - machine.intercept, np.linalg.norm(machine.gradient(x))
    rest = np.sqrt(max(machine.norm() ** 2 - h**2 - slope**2 / (2 * machine.gamma), 0.0) + 1e-12)
    for sign in (1.0, -1.0):
        unknown = rest * np.sqrt(1 - np.exp(-2 * u) * (1 + 2 * u))
        bound = sign * machine.intercept + np.exp(-u) * (sign * h - slope * r) - unknown
        assert sign * machine.score(x + move) >= bound - 1e-9


@pytest.mark.parametrize("intercept", [0.0, 0.2, -0.2])
def test_a_tight_machine_is_beaten_ten_per_cent_further_out(intercept):
    # h = A k(x,·) + B ∂₁k(x,·) - q k(x+δ,·) has its remainder along that of k(x+δ,·): the bound is an equality at δ. A
    # puts the sign change there; the derivative is a central difference.
    gamma, r, q, B, e = 1.0, 0.4, 1.0, -0.05, 1e-4
    A = (q - intercept) * np.exp(gamma * r**2) - 2 * gamma * r * B
    points = np.array([[0.0, 0.0], [e, 0.0], [-e, 0.0], [r, 0.0]])
    machine = NaiveMachine(points, np.array([A, B / (2 * e), -B / (2 * e), -q]), gamma, intercept)
    x, directions = np.zeros(2), np.array([[1.0, 0.0], [-1.0, 0.0]])
    sharp, paper, sign = certify(machine, x)
    assert sharp == pytest.approx(r, abs=1e-3)
    assert paper < sharp
    assert lowest_margin(machine.score, machine.gradient, x, sign, sharp, directions) > -1e-6
    assert lowest_margin(machine.score, machine.gradient, x, sign, 1.1 * sharp, directions) < -1e-3


def test_the_search_does_not_step_over_a_dip():
    # With these numbers the right side is negative on a short stretch only: the intercept brings it back.
    margins, slopes, gamma = np.array([1.0]), np.array([2.23]), 1.0
    offset = 0.95
    h = margins[0] - offset
    rest = 0.05
    norm = np.sqrt(rest**2 + h**2 + slopes[0] ** 2 / 2)
    found = sharp_radius(margins, slopes, norm, gamma, offsets=offset)[0]
    r = np.linspace(1e-4, 6, 200_001)
    right = offset + np.exp(-(r**2)) * (h - slopes[0] * r) - rest * np.sqrt(1 - np.exp(-2 * r**2) * (1 + 2 * r**2))
    assert right[-1] > 0
    assert right.min() < 0, "there is a dip"
    assert found == pytest.approx(r[np.argmax(right <= 0)], abs=1e-4)
    assert found <= r[np.argmax(right <= 0)]


def test_an_intercept_that_outweighs_the_kernel_part_certifies_everything():
    assert np.isinf(sharp_radius(np.array([3.0]), np.array([0.1]), 1.0, 1.0, offsets=2.5))[0]
    assert np.isinf(paper_radius(np.array([3.0]), 1.0, lambda g: np.sqrt(-np.log(g))))[0]


@pytest.mark.parametrize("margin", [0.0, -1.0, np.nan])
def test_there_is_no_certificate_without_a_positive_margin(margin):
    m = np.array([margin])
    one = np.array([1.0])
    assert sharp_radius(m, one, 2.0, 1.0)[0] == 0
    assert paper_radius(m, 2.0, lambda g: np.sqrt(-np.log(g)))[0] == 0
    assert second_order_radius(m, one, 1.0)[0] == 0
    assert linear_radius(m, 1.0)[0] == 0


def test_the_zero_function_certifies_nothing():
    zero = np.zeros(3)
    assert not sharp_radius(zero, zero, 0.0, 1.0).any()
    assert not paper_radius(zero, 0.0, lambda g: np.sqrt(-np.log(g))).any()
    assert not second_order_radius(zero, zero, 0.0).any()
    assert not linear_radius(zero, 0.0).any()


@pytest.mark.parametrize("name", ["margin_error", "gradient_error", "norm_error"])
def test_every_error_bound_shrinks_the_radius(name):
    args = (np.array([0.5]), np.array([0.4]), 2.0, 1.0)
    assert sharp_radius(*args, **{name: 0.01})[0] < sharp_radius(*args)[0]


def test_linear_radii_are_the_distance_to_the_hyperplane():
    rng = np.random.default_rng(0)
    w, X = rng.normal(size=5), rng.normal(size=(50, 5))
    margins = X @ w
    radii = linear_radius(margins, float(np.linalg.norm(w)))
    feet = X - np.outer(margins / (w @ w), w)
    np.testing.assert_allclose(radii, np.where(margins > 0, np.linalg.norm(X - feet, axis=1), 0.0), rtol=1e-12)


@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 12))
@settings(max_examples=100, deadline=None)
def test_no_attack_inside_the_second_order_radius_changes_the_label(seed, d, n_features):
    rng = np.random.default_rng(seed)
    omega, phase, a = rng.normal(size=(n_features, d)), rng.uniform(0, 6, n_features), rng.normal(size=n_features)

    def score(x):
        return float(a @ np.cos(omega @ x + phase))

    def gradient(x):
        return -(a * np.sin(omega @ x + phase)) @ omega

    x = rng.normal(size=d)
    sign = np.sign(score(x))
    radius = second_order_radius(
        np.array([sign * score(x)]), np.array([np.linalg.norm(gradient(x))]), curvature_bound(omega, a)
    )[0]
    assert lowest_margin(score, gradient, x, sign, min(radius, 50.0), rng.normal(size=(4, d))) > -1e-12


@pytest.mark.parametrize("d", [1, 2, 3, 40, 300])
def test_the_eigenvalue_bound_is_above_and_within_a_millionth(d):
    root = np.random.default_rng(d).normal(size=(2 * d, d))
    matrix = root.T @ root
    exact = np.linalg.eigvalsh(matrix)[-1]
    assert exact <= largest_eigenvalue_bound(matrix) <= exact * (1 + 2e-6)


def test_curvature_in_blocks_is_curvature_at_once():
    rng = np.random.default_rng(1)
    omega, a = rng.normal(size=(60, 9)).astype(np.float32), rng.normal(size=60)
    blocks = [(omega[k : k + 20], a[k : k + 20]) for k in range(0, 60, 20)]
    assert curvature_bound_of_blocks(blocks) == pytest.approx(curvature_bound(omega, a), rel=1e-6)
    hessian_bound = np.linalg.eigvalsh((omega.T.astype(float) * np.abs(a)) @ omega)[-1]
    assert curvature_bound(omega, a) >= hessian_bound
    assert curvature_bound(omega, 0 * a) == 0.0


def test_diverged_machines_get_no_certificate_and_no_bound_breaks():
    assert largest_eigenvalue_bound(np.array([[np.inf, 0.0], [0.0, 1.0]])) == np.inf
    assert sharp_radius(np.array([1.0]), np.array([1.0]), np.inf, 1.0)[0] == 0
    assert second_order_radius(np.array([1.0]), np.array([1.0]), np.inf)[0] == 0


def test_rounding_bounds_cover_what_float64_really_loses():
    rng = np.random.default_rng(2)
    points, a, X, gamma = rng.uniform(size=(40, 30)), 10 * rng.normal(size=40), rng.uniform(size=(20, 30)), 0.3
    squared = (X**2).sum(1)[:, None] + (points**2).sum(1) - 2 * X @ points.T
    k = np.exp(-gamma * np.maximum(squared, 0))
    exact = np.exp(-gamma * ((X[:, None].astype(np.longdouble) - points) ** 2).sum(2)) @ a.astype(np.longdouble)
    reach = float(np.linalg.norm(points, axis=1).max())
    errors = RBF().evaluation_errors(
        np.linalg.norm(X, axis=1), Sum(a, np.array([reach]), *2 * (points.shape[1],)), gamma, squared_norm=1.0
    )
    assert (np.abs(k @ a - exact) <= errors.score).all()
    assert errors.score.max() < 1e-10
    assert errors.norm > 0
