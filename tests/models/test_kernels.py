import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models.distances import squared_distances
from models.kernels import RBF, Kernel, Laplacian, median_distance
from oracles_models import kernel_matrix

KERNEL_NAMES = sorted(Kernel.registry)
numbers = st.floats(0.05, 5.0)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kernel_values_equal_the_definition(name, dtype):
    rng = np.random.default_rng(0)
    A, B = rng.random((9, 30)), rng.random((7, 30))
    B[0] = A[0]
    a, b = torch.from_numpy(A).to(dtype), torch.from_numpy(B).to(dtype)
    squared = squared_distances(a, b, (a * a).sum(1), (b * b).sum(1), refine=name == "laplacian")
    values = Kernel.registry[name]().from_squared_distance_(squared, 0.7).double().numpy()
    tolerance = 1e-12 if dtype == torch.float64 else 2e-6
    np.testing.assert_allclose(values, kernel_matrix(name, A, B, 0.7), atol=tolerance)


def test_laplacian_is_exact_at_distance_zero_in_float32():
    rows = torch.rand(50, 784, generator=torch.Generator().manual_seed(0)) * 3
    norms = (rows * rows).sum(1)
    values = Laplacian().from_squared_distance_(squared_distances(rows, rows, norms, norms, refine=True), 1.0)
    assert (values.diagonal() == 1.0).all()


@pytest.mark.parametrize("name", KERNEL_NAMES)
@given(distance=numbers, gamma=numbers)
def test_inverse_profile_undoes_the_profile(name, distance, gamma):
    kernel = Kernel.registry[name]()
    value = kernel.profile(distance, gamma)
    if value > 1e-6:
        assert kernel.inverse_profile(value, gamma) == pytest.approx(distance, rel=1e-6)


@pytest.mark.parametrize("name", KERNEL_NAMES)
@settings(max_examples=50, deadline=None)
@given(seed=st.integers(0, 2**20), epsilon=st.floats(1e-3, 2.0), gamma=numbers)
def test_no_perturbation_moves_a_function_beyond_the_penalty(name, seed, epsilon, gamma):
    """sup over ‖δ‖ ≤ ε of |⟨w, φ(x+δ)⟩ - ⟨w, φ(x)⟩| ≤ ε'‖w‖."""
    rng = np.random.default_rng(seed)
    points, weights = rng.random((12, 4)), rng.standard_normal(12)
    norm = np.sqrt(weights @ kernel_matrix(name, points, points, gamma) @ weights)
    x = rng.random((1, 4))
    directions = rng.standard_normal((200, 4))
    directions *= epsilon * rng.random((200, 1)) ** 0.25 / np.linalg.norm(directions, axis=1, keepdims=True)
    moved = kernel_matrix(name, x + directions, points, gamma) @ weights
    here = kernel_matrix(name, x, points, gamma) @ weights
    assert np.abs(moved - here).max() <= Kernel.registry[name]().penalty(epsilon, gamma) * norm * (1 + 1e-9)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_no_perturbation_no_penalty(name):
    assert Kernel.registry[name]().penalty(0.0, 3.0) == 0.0
    assert Kernel.registry[name]().penalty(1e-9, 3.0) > 0.0


def test_width_follows_the_median_rule():
    X = np.random.default_rng(0).random((300, 5))
    median = np.median([np.linalg.norm(a - b) for i, a in enumerate(X) for b in X[:i]])
    assert RBF(width_scale=4.0).resolve_gamma(X, 0) == pytest.approx(4.0 / median**2, rel=1e-3)
    assert Laplacian(width_scale=4.0).resolve_gamma(X, 0) == pytest.approx(4.0 / median, rel=1e-3)
    assert RBF(gamma=0.3).resolve_gamma(X, 0) == 0.3


def test_median_looks_at_a_seeded_subsample():
    X = np.random.default_rng(0).random((5000, 3)).astype(np.float32)
    assert median_distance(X, 1) == median_distance(X, 1)
    assert median_distance(X, 1) != median_distance(X, 2)
    assert median_distance(X, 1) == pytest.approx(median_distance(X, 2), rel=0.05)


def test_equal_rows_have_no_width():
    with pytest.raises(ValueError, match="median distance"):
        median_distance(np.ones((10, 3)), 0)


def test_mostly_equal_rows_still_have_a_width():
    X = np.zeros((20, 2))
    X[0] = 3.0, 4.0
    assert median_distance(X, 0) == 5.0


@pytest.mark.parametrize("settings", [{"width_scale": 0.0}, {"width_scale": -1.0}, {"gamma": 0.0}])
def test_impossible_widths_are_refused(settings):
    with pytest.raises(ValueError, match="kernel"):
        RBF(**settings)


@pytest.mark.parametrize("name", KERNEL_NAMES)
def test_kernels_survive_json(name):
    kernel = Kernel.registry[name](width_scale=2.5)
    assert Kernel.from_dict(kernel.to_dict()) == kernel
