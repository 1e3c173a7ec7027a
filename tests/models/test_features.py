import pickle
import threading

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import AdvSVM
from models.batches import BatchView
from models.expansions import DoublyStochastic, KernelSpace
from models.expansions.random_features import FeatureStream
from models.kernels import Kernel
from oracles_models import kernel_matrix


def stream(kernel="rbf", d=6, m=256, seed=0, dtype=torch.float64, cache_mb=8.0, sampling="gaussian"):
    return FeatureStream(KernelSpace(Kernel.registry[kernel](), (1.0,), d, dtype, seed), m, cache_mb, sampling)


def approximate_kernel(features, number, X, gamma):
    block = features.block(number)
    phi = np.sqrt(2 / features.n_features) * block.angles(X, features.space.kernel.frequency_scale(gamma)).cos()
    return (phi @ phi.t()).numpy()


@pytest.mark.parametrize("sampling", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("kernel", sorted(Kernel.registry))
@settings(max_examples=15, deadline=None)
@given(seed=st.integers(0, 2**30), power=st.integers(6, 14))
def test_features_converge_to_the_kernel_at_one_over_root_m(kernel, sampling, seed, power):
    m = 2**power
    X = np.random.default_rng(seed).random((10, 6))
    exact = kernel_matrix(kernel, X, X, 1.5)
    found = approximate_kernel(stream(kernel, m=m, seed=seed, sampling=sampling), 0, torch.from_numpy(X), 1.5)
    # Each entry is a mean of m terms in [-2, 2] with variance at most 3/2, so its standard error is sqrt(1.5 / m).
    assert np.abs(found - exact).max() < 6 * np.sqrt(1.5 / m)
    assert np.sqrt(np.square(found - exact).mean()) < 2.5 * np.sqrt(1.5 / m)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**30), d=st.integers(1, 40), m=st.integers(1, 100))
def test_orthogonal_features_have_the_lengths_of_independent_ones_and_right_angles(seed, d, m):
    plain = stream(d=d, m=m, seed=seed).block(0)
    found = stream(d=d, m=m, seed=seed, sampling="orthogonal").block(0)
    assert torch.equal(found.phases, plain.phases)
    torch.testing.assert_close(found.frequencies.norm(dim=0), plain.frequencies.norm(dim=0), rtol=1e-5, atol=1e-6)
    for start in range(0, m, d):
        group = found.frequencies[:, start : start + d] / found.frequencies[:, start : start + d].norm(dim=0)
        torch.testing.assert_close(group.t() @ group, torch.eye(group.shape[1]).double(), rtol=0, atol=1e-5)
    # The first of a group is the draw itself: no direction is preferred, neither is one of a line's two.
    torch.testing.assert_close(found.frequencies[:, ::d], plain.frequencies[:, ::d], rtol=1e-5, atol=1e-6)


def test_orthogonal_features_are_nearer_to_the_kernel():
    X = torch.from_numpy(np.random.default_rng(0).random((20, 64)))
    exact = kernel_matrix("rbf", X.numpy(), X.numpy(), 0.1)
    errors = {
        sampling: np.mean(
            [
                np.square(
                    approximate_kernel(stream(d=64, m=64, seed=seed, sampling=sampling), 0, X, 0.1) - exact
                ).mean()
                for seed in range(50)
            ]
        )
        for sampling in ("gaussian", "orthogonal")
    }
    assert errors["orthogonal"] < 0.8 * errors["gaussian"]


def test_drawing_leaves_no_thread_behind_that_the_process_would_wait_for():
    before = set(threading.enumerate())
    stream().block(0)
    assert [thread.name for thread in set(threading.enumerate()) - before if not thread.daemon] == []


def test_narrow_blocks_side_by_side_are_the_blocks_themselves():
    one = stream(cache_mb=0.0)
    panel, blocks = one.panel((4, 1, 2)), [one.block(number) for number in (4, 1, 2)]
    for part, of_each in zip(panel, zip(*blocks)):
        assert torch.equal(part, torch.cat(of_each, dim=-1))


def test_a_block_depends_on_seed_and_number_alone():
    one, other = stream(), stream()
    for number in (5, 2, 0):
        other.block(number)
    assert torch.equal(one.block(2).frequencies, other.block(2).frequencies)
    assert not torch.equal(one.block(2).frequencies, one.block(3).frequencies)
    assert not torch.equal(one.block(2).frequencies, stream(seed=1).block(2).frequencies)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_kept_and_redrawn_blocks_are_bit_equal(dtype):
    kept, redrawn = stream(dtype=dtype), stream(dtype=dtype, cache_mb=0.0)
    first = kept.block(3)
    assert kept.block(3) is first
    assert redrawn.block(3) is not redrawn.block(3)
    assert all(torch.equal(a, b) for a, b in zip(first, redrawn.block(3)))


def test_memory_budget_holds():
    features = stream(d=64, m=1024, dtype=torch.float32, cache_mb=1.0)
    for number in range(10):
        features.block(number)
    assert sum(block.n_bytes for block in features._kept.values()) <= 2**20
    features.forget_except([])
    assert not features._kept


@pytest.mark.parametrize("sampling", ["gaussian", "orthogonal"])
def test_both_precisions_use_the_same_features(sampling):
    single, double = (stream(dtype=dtype, sampling=sampling) for dtype in (torch.float32, torch.float64))
    assert torch.equal(single.block(1).frequencies.double(), double.block(1).frequencies)


def test_a_pickled_stream_carries_no_blocks():
    features = stream()
    features.block(0)
    assert len(pickle.dumps(features)) < 5000


def test_columns_that_are_0_everywhere_are_left_out_and_change_nothing(monkeypatch):
    rng = np.random.default_rng(0)
    X = rng.random((300, 40))
    X[:, 10:25] = 0.0
    y = np.where(X[:, 0] + X[:, 30] > 1, 1, -1)
    view = BatchView(torch.from_numpy(X))
    columns, rows = view.filled
    assert columns is not None
    np.testing.assert_array_equal(rows, X[:, [*range(10), *range(25, 40)]])
    machine = AdvSVM(expansion=DoublyStochastic(n_features=32), batch_size=20, passes=2, random_state=1)
    short = machine.fit(X, y).scores(X)
    monkeypatch.setattr("models.batches._MOST_FILLED", 0.0)
    assert BatchView(torch.from_numpy(X)).filled[0] is None
    np.testing.assert_allclose(machine.fit(X, y).scores(X), short, atol=1e-10)
