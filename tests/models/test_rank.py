"""Training by a few coordinates of its rows: how far distances may be off, and what stays exact all the same."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import AdvSVM, certify, grid_search
from models.batches import BatchView
from models.distances import leading_coordinates
from models.expansions import KernelSpace, SupportVectors
from models.expansions.kernel_cache import KernelColumns
from models.kernels import RBF
from models.persistence import load, save

GAMMA = 0.5


def problem(n=300, d=30, hidden=4, noise=0.02, seed=0):
    """Rows near a subspace of a few directions, as pictures are."""
    rng = np.random.default_rng(seed)
    Z = rng.random((n, hidden))
    X = Z @ rng.normal(size=(hidden, d)) / np.sqrt(hidden) + noise * rng.normal(size=(n, d))
    return X, np.where(Z[:, 0] + Z[:, 1] ** 2 > 0.8, 1, -1)


def machine(rank, **changes):
    own = {"C": 8.0, "step": 1.0, "schedule": "diminishing", "batch_size": 20, "passes": 3, "epsilon": 0.0}
    return AdvSVM(expansion=SupportVectors(rank=rank), kernel=RBF(gamma=GAMMA), **own | changes)


def columns(X, rank, budget=2**30, gammas=(GAMMA,)):
    space = KernelSpace(RBF(), gammas, X.shape[1], torch.float64, 0)
    return KernelColumns(space, BatchView(torch.from_numpy(X), np.arange(len(X))), budget, rank)


def distances(X):
    return ((X[:, None] - X) ** 2).sum(2)


@settings(deadline=None, max_examples=30)
@given(st.integers(1, 12), st.integers(0, 2**16), st.sampled_from([0, 5_000, 2**30]))
def test_a_squared_distance_is_off_by_at_most_twice_the_product_of_what_is_left(rank, seed, budget):
    X, _ = problem(n=60, d=12, noise=0.2, seed=seed)
    kept = columns(X, rank, budget, gammas=(1.0, 2.0))
    positions = torch.from_numpy(np.random.default_rng(seed).permutation(60)[:25])
    found = torch.empty(25, 60, dtype=torch.float64)
    for part, values in kept.parts(positions):
        found[part] = values
    left = np.sqrt(
        np.maximum((X**2).sum(1) - (leading_coordinates(torch.from_numpy(X), rank, 0).numpy() ** 2).sum(1), 0)
    )
    off = np.abs(found.numpy() - distances(X)[positions.numpy()])
    assert (off <= 2 * left[positions.numpy(), None] * left + 1e-9).all()
    assert (found[torch.arange(25), positions] == 0).all()
    np.testing.assert_allclose(kept.among(positions), found[:, positions], atol=1e-9)


def test_leaving_directions_out_does_change_the_values():
    X, _ = problem(n=60, d=12, noise=0.5)
    positions = torch.arange(60)
    exact, rough = (columns(X, rank).among(positions) for rank in (None, 2))
    np.testing.assert_allclose(exact, np.exp(-GAMMA * distances(X)), atol=1e-12)
    assert float((exact - rough).abs().max()) > 1e-3


def test_coordinates_are_the_best_directions_of_the_rows():
    X = torch.from_numpy(problem(noise=0.0)[0])
    Z = leading_coordinates(X, 4, 0)
    np.testing.assert_allclose(Z @ Z.t(), X @ X.t(), atol=1e-10)
    # More directions than the rows have add nothing, and nothing that is not finite.
    assert leading_coordinates(X, 20, 0).shape[1] == 4
    assert leading_coordinates(torch.zeros(5, 3), 2, 0).isfinite().all()


@pytest.mark.parametrize("passes", [1, 3])
@pytest.mark.parametrize("cache_mb", [1024, 0.05])
def test_all_directions_train_the_exact_machine(passes, cache_mb):
    X, y = problem()
    whole, exact = (
        machine(None, passes=passes).set_params(expansion=SupportVectors(rank=rank, cache_mb=cache_mb)).fit(X, y)
        for rank in (30, None)
    )
    np.testing.assert_allclose(whole.scores(X), exact.scores(X), atol=1e-8)
    assert whole.norm_ == pytest.approx(exact.norm_)


def test_few_directions_train_nearly_the_same_machine_in_fewer_of_them():
    X, y = problem()
    rough, one, exact = (machine(rank).fit(X[:200], y[:200]) for rank in (4, 1, None))
    assert np.mean(rough.predict(X[200:]) == exact.predict(X[200:])) >= 0.97
    # The setting is heeded: one direction is too few.
    assert np.mean(one.predict(X[200:]) == exact.predict(X[200:])) < 0.97


def test_what_is_fitted_is_a_sum_of_exact_kernels(tmp_path):
    X, y = problem()
    model = machine(4).fit(X, y)
    vectors, weights = model.expansion_.live()
    exact = np.exp(-GAMMA * ((X[:, None] - vectors.numpy()) ** 2).sum(2)) @ weights[:, 0].numpy()
    np.testing.assert_allclose(model.scores(X), exact, atol=1e-9)
    assert {tuple(row) for row in vectors.numpy()} <= {tuple(row) for row in X}
    save(model, tmp_path)
    np.testing.assert_array_equal(load(tmp_path).scores(X), model.scores(X))
    # The norm that certificates are made with comes from the sum, not from training.
    assert model.expansion_.squared_norm() == pytest.approx(
        float(weights[:, 0].numpy() @ np.exp(-GAMMA * distances(vectors.numpy())) @ weights[:, 0].numpy())
    )
    proved = certify(model, X, y, 0.05, "l2", None)
    worst = X - 0.05 * y[:, None] * _unit(model.scores_and_gradients(X)[1])
    assert proved.any()
    assert (model.predict(worst)[proved] == y[proved]).all()


def test_a_grid_takes_it_too():
    X, y = problem(n=200)
    found = [
        grid_search(machine(rank), X, y, C=[1.0, 8.0], step=[0.5, 1.0], width=[2.0, 4.0]).table["mean_accuracy"]
        for rank in (30, None)
    ]
    np.testing.assert_allclose(*found, atol=1e-12)


def test_rank_must_be_positive():
    with pytest.raises(ValueError, match=r"expansion.rank must be .* >= 1 .*, got 0"):
        SupportVectors(rank=0)


def _unit(rows):
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)
