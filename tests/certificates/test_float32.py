"""Certificates of float32 models hold for the scores these models really give, next to the boundary too."""

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from models import AdvSVM, KernelSVC
from models.certificates.definite import largest_eigenvalue_bound
from models.expansions import DoublyStochastic, FixedFeatures

MODELS = {
    "svc": lambda: KernelSVC(C=4.0),
    "support_vectors": lambda: AdvSVM(expansion="support_vectors", batch_size=50, passes=2),
    "laplacian": lambda: AdvSVM(expansion="support_vectors", kernel="laplacian", epsilon=1e-3, batch_size=50),
    "fixed_features": lambda: AdvSVM(expansion=FixedFeatures(n_features=512), batch_size=50),
    "doubly_stochastic": lambda: AdvSVM(expansion=DoublyStochastic(n_features=128), batch_size=50),
}


def digits(classes):
    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, classes)
    return (X[kept] / 16).astype(np.float32), y[kept]


def near_the_boundary(model, X, rng, n, rounds=14):
    """Points between rows of opposite predictions, margins from 1e-7 to 1e-3 of typical ones."""
    predicted = model.predict(X)
    low = X[rng.choice(np.flatnonzero(predicted == model.classes_[0]), n)].astype(np.float64)
    high = X[rng.choice(np.flatnonzero(predicted == model.classes_[1]), n)].astype(np.float64)
    stop = rng.integers(rounds, 2 * rounds, n)
    for step in range(2 * rounds):
        middle = (low + high) / 2
        positive = (model.scores(middle) > 0) & (step < stop)
        negative = ~positive & (step < stop)
        high[positive], low[negative] = middle[positive], middle[negative]
    return high


def beaten(model, points, radii, rng, tries=30):
    """Rows whose predicted label changes somewhere in their ball: down the gradient with noise, at many lengths."""
    signs = np.where(model.scores(points) > 0, 1.0, -1.0)
    slopes = model.scores_and_gradients(points)[1].astype(np.float64)
    slopes /= np.maximum(np.linalg.norm(slopes, axis=1, keepdims=True), 1e-300)
    broken = np.zeros(len(points), dtype=bool)
    for number in range(tries):
        noise = rng.normal(size=points.shape)
        noise /= np.linalg.norm(noise, axis=1, keepdims=True)
        move = -signs[:, None] * slopes + (0.0 if number == 0 else rng.choice([0.1, 1.0, 10.0])) * noise
        move *= (radii * (1.0 if number < tries // 2 else rng.uniform()) * (1 - 1e-9))[:, None]
        move /= np.maximum(np.linalg.norm(move, axis=1, keepdims=True) / np.maximum(radii[:, None], 1e-300), 1.0)
        broken |= (signs * model.scores(points + move) <= 0) & (radii > 0)
    return broken


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_no_certificate_next_to_the_boundary_is_beaten_by_rounding(name, dtype):
    rng = np.random.default_rng(1)
    X, y = digits((3, 8))
    model = MODELS[name]().fit(X, y)
    points = near_the_boundary(model, X, rng, 600).astype(dtype)
    radii = model.certified_radius(points, model.predict(points))
    assert not beaten(model, points.astype(np.float64), radii, rng).any()


@pytest.mark.parametrize("name", MODELS)
def test_the_allowance_for_float32_covers_its_errors_ten_times_and_costs_little(name):
    rng = np.random.default_rng(2)
    X, y = digits((3, 8))
    model = MODELS[name]().fit(X, y)
    double = MODELS[name]().fit(X.astype(np.float64), y)
    single, exact = model.certified_radius(X, y), double.certified_radius(X, y)
    reached = np.array([np.mean(radii >= np.median(exact)) for radii in (single, exact)])
    assert np.ptp(reached) < 0.02
    # No point is certified whose margin is not far above what float32 gets wrong.
    points = near_the_boundary(model, X, rng, 300).astype(np.float32)
    radii = model.certified_radius(points, model.predict(points))
    exact_scores = model.expansion_.scores(torch.from_numpy(points).double(), dtype=torch.float64)[:, 0].numpy()
    errors = np.abs(model.expansion_.scores(torch.from_numpy(points))[:, 0].double().numpy() - exact_scores)
    margins = np.abs(model.scores(points))
    assert (margins[radii > 0] > 10 * errors.max()).all()


def test_a_start_that_the_matrix_maps_to_zero_still_gives_a_bound():
    # The Lanczos iteration starts from ones, here in the kernel of the matrix.
    direction = np.array([1.0, -1.0, 1.0, -1.0, 0.0])
    matrix = np.outer(direction, direction)
    bound = largest_eigenvalue_bound(matrix)
    assert 4.0 <= bound <= 4.0 * (1 + 1e-5)
