"""The three expansions against the naive algorithm, and the promises they share."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import AdvSVM
from models.batches import RowSource, shuffled_batches
from models.certificates.cosines import curvature_estimates, curvature_of
from models.expansions import DoublyStochastic, FixedFeatures, KernelSpace, SupportVectors
from models.expansions.expansion import negligible
from models.expansions.random_features import RandomFeatureSum
from models.kernels import RBF, Kernel
from models.reference import algorithm1, doubly_stochastic
from models.training import Columns, train_columns
from oracles_models import kernel_matrix

EXPANSIONS = [DoublyStochastic(n_features=32), FixedFeatures(n_features=64), SupportVectors()]
GAMMA = 2.0


def problem(n=120, d=5, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 > 0.9, 1.0, -1.0)


def space(d=5, kernel="rbf", gammas=(GAMMA,), dtype=torch.float64, seed=3):
    return KernelSpace(Kernel.registry[kernel](), gammas, d, dtype, seed)


def one_column(C=2.0, step=0.2, penalty=0.05, **settings):
    return Columns(np.array([C]), np.array([step]), np.array([penalty]), **settings)


def fit(expansion, X, signs, batches, columns, where=None, **settings):
    where = space(X.shape[1]) if where is None else where
    live = expansion.begin(where, len(columns))
    return live, train_columns(live, RowSource(X, where.dtype), signs, batches, columns, **settings)


@pytest.mark.parametrize("kernel", sorted(Kernel.registry))
@pytest.mark.parametrize("proximal", [False, True])
@pytest.mark.parametrize("diminishing", [False, True])
@pytest.mark.parametrize("passes", [1, 3])
def test_support_vectors_follow_the_naive_algorithm(kernel, proximal, diminishing, passes):
    X, signs = problem()
    batches = shuffled_batches(len(X), 16, passes, 0)
    columns = one_column(proximal=proximal, diminishing=diminishing)
    live, _ = fit(SupportVectors(), X, signs, batches, columns, space(kernel=kernel))
    K = kernel_matrix(kernel, X, X, GAMMA)
    iterates = algorithm1(K, signs, batches, C=2.0, step=0.2, penalty=0.05, proximal=proximal, diminishing=diminishing)
    points = torch.from_numpy(X)
    np.testing.assert_allclose(live.scores(points)[:, 0], K @ iterates[-1], atol=1e-10)
    np.testing.assert_allclose(live.staged_scores(points), iterates @ K, atol=1e-10)


@pytest.mark.parametrize("kernel", sorted(Kernel.registry))
@pytest.mark.parametrize("name", ["doubly_stochastic", "fixed_features"])
def test_random_features_follow_the_naive_algorithm(kernel, name):
    X, signs = problem()
    batches = shuffled_batches(len(X), 16, 2, 0)
    expansion = DoublyStochastic(n_features=32) if name == "doubly_stochastic" else FixedFeatures(n_features=32)
    live, record = fit(expansion, X, signs, batches, one_column(), space(kernel=kernel))
    points = torch.from_numpy(X)

    def features(i):
        block = live.stream.block(i if name == "doubly_stochastic" else 0)
        return np.sqrt(2 / 32) * block.angles(points, live.space.kernel.frequency_scale(GAMMA)).cos().numpy()

    gram = kernel_matrix(kernel, X, X, GAMMA)
    scores, norm = doubly_stochastic(features, gram, signs, batches, C=2.0, step=0.2, penalty=0.05)
    np.testing.assert_allclose(live.scores(points)[:, 0], scores, atol=1e-9)
    assert record.norms[-1, 0] == pytest.approx(norm, rel=1e-9)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**20), C=st.floats(0.1, 20), step=st.floats(0.01, 1.5), penalty=st.floats(0, 0.3))
def test_norm_recursion_equals_the_gram_matrix_norm(seed, C, step, penalty):
    X, signs = problem(n=60, seed=seed)
    live, record = fit(SupportVectors(), X, signs, shuffled_batches(60, 10, 2, seed), one_column(C, step, penalty))
    assert np.sqrt(live.squared_norm()) == pytest.approx(record.norms[-1, 0], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("kernel", Kernel.registry)
def test_the_norm_in_blocks_is_that_of_the_whole_gram_matrix(kernel, monkeypatch):
    monkeypatch.setattr("models.distances.CHUNK", 1)
    X, signs = problem(n=900, seed=4)
    where = space(kernel=kernel)
    live, _ = fit(SupportVectors(), X, signs, shuffled_batches(900, 100, 1, 0), one_column(penalty=0.3), where)
    vectors, weights = live.live()
    assert len(vectors) > 512
    gram = kernel_matrix(kernel, vectors.numpy(), vectors.numpy(), GAMMA)
    weights = weights[:, 0].numpy()
    assert live.squared_norm() == pytest.approx(weights @ gram @ weights, rel=1e-12)


@pytest.mark.parametrize("expansion", EXPANSIONS)
@pytest.mark.parametrize("passes", [1, 2])
def test_short_windows_change_nothing(expansion, passes, monkeypatch):
    X, signs = problem()
    batches = shuffled_batches(len(X), 10, passes, 0)
    whole, _ = fit(expansion, X, signs, batches, one_column())
    monkeypatch.setattr(type(whole), "window_batches", lambda *_: 3)
    short, _ = fit(expansion, X, signs, batches, one_column())
    points = torch.from_numpy(X)
    np.testing.assert_allclose(short.scores(points), whole.scores(points), atol=1e-10)


def test_rows_are_not_scored_for_terms_that_are_forgotten_before_their_turn(monkeypatch):
    X, signs = problem(n=1200)
    batches = shuffled_batches(1200, 4, 1, 0)
    scored, accumulate = [], RandomFeatureSum.accumulate

    def counted(self, block, rows, *rest):
        scored.append(len(rows))
        accumulate(self, block, rows, *rest)

    monkeypatch.setattr(RandomFeatureSum, "accumulate", counted)
    columns = Columns(np.array([2.0]), np.array([0.5]), np.array([0.05]))
    short, _ = fit(DoublyStochastic(n_features=8), X, signs, batches, columns)
    # Of float64 a step of 1/2 forgets a term in 52 iterations, so that each row needs 52 terms and a few of its window.
    assert sum(scored) < 70 * len(X)
    monkeypatch.setattr(Columns, "memory", lambda *_: math.inf)
    scored.clear()
    whole, _ = fit(DoublyStochastic(n_features=8), X, signs, batches, columns)
    assert sum(scored) > 140 * len(X)
    points = torch.from_numpy(X)
    np.testing.assert_allclose(short.scores(points), whole.scores(points), atol=1e-10)


@pytest.mark.parametrize("expansion", EXPANSIONS)
@pytest.mark.parametrize("passes", [1, 2])
def test_widths_train_together_as_they_do_alone(expansion, passes):
    X, signs = problem()
    batches = shuffled_batches(len(X), 16, passes, 0)
    columns = Columns(np.full(4, 2.0), np.array([0.1, 0.2, 0.1, 0.2]), np.full(4, 0.05))
    both, _ = fit(expansion, X, signs, batches, columns, space(gammas=(1.0, 3.0)))
    alone = Columns(np.full(2, 2.0), np.array([0.1, 0.2]), np.full(2, 0.05))
    points = torch.from_numpy(X)
    parts = [fit(expansion, X, signs, batches, alone, space(gammas=(g,)))[0].scores(points) for g in (1.0, 3.0)]
    np.testing.assert_allclose(both.scores(points), torch.cat(parts, dim=1), atol=1e-10)


def test_kernel_columns_beyond_their_budget_are_computed_again():
    X, signs = problem()
    batches = shuffled_batches(len(X), 16, 3, 0)
    ample, _ = fit(SupportVectors(), X, signs, batches, one_column())
    tight, _ = fit(SupportVectors(cache_mb=0.04), X, signs, batches, one_column())
    points = torch.from_numpy(X)
    np.testing.assert_allclose(tight.scores(points), ample.scores(points), atol=1e-10)


def test_regenerated_blocks_give_bit_equal_scores():
    X, signs = problem()
    batches = shuffled_batches(len(X), 16, 1, 0)
    points = torch.from_numpy(X)
    kept, _ = fit(DoublyStochastic(n_features=32), X, signs, batches, one_column())
    drawn, _ = fit(DoublyStochastic(n_features=32, cache_mb=0), X, signs, batches, one_column())
    assert torch.equal(kept.scores(points), drawn.scores(points))
    assert torch.equal(kept.scores_and_gradients(points)[1], drawn.scores_and_gradients(points)[1])


def test_only_margin_violators_are_kept():
    X, signs = problem(n=400)
    live, record = fit(SupportVectors(), X, signs, shuffled_batches(400, 20, 1, 0), one_column(C=8.0))
    assert live.n_support == record.violators.sum() < 400


def test_rows_seen_again_are_merged():
    X, signs = problem(n=40)
    live, record = fit(SupportVectors(), X, signs, shuffled_batches(40, 10, 5, 0), one_column())
    assert live.n_support <= 40 < record.violators.sum()


def test_faded_support_vectors_leave_within_the_stated_bound():
    X, signs = problem(n=2000)
    where = space(dtype=torch.float32)
    columns = one_column(step=0.5, penalty=0.0)
    live, _ = fit(SupportVectors(), X, signs, shuffled_batches(2000, 20, 1, 0), columns, where)
    vectors, weights = live.live()
    assert len(vectors) < live.n_support / 2
    everything = torch.zeros(live.n_support, 1, dtype=torch.float64)
    for members, coefficients, later in zip(live.members, live.coefficients, live.term_factors()):
        everything.index_add_(0, members, coefficients * later)
    left_out = everything.abs().sum() - weights.abs().sum()
    assert 0 < left_out <= 2.0**-24 * everything.abs().sum()


def test_negligible_terms_together_stay_below_half_an_eps():
    weights = torch.tensor([[1.0, 1.0], [1e-9, 1e-8], [3e-8, 0.0], [4e-8, 0.0], [0.0, 0.0]], dtype=torch.float64)
    assert negligible(weights, torch.float32).tolist() == [False, True, True, False, True]
    assert negligible(weights, torch.float64).tolist() == [False, False, False, False, True]


@pytest.mark.parametrize("expansion", EXPANSIONS)
def test_many_columns_have_the_gradients_of_each(expansion):
    X, signs = problem()
    batches = shuffled_batches(len(X), 16, 1, 0)
    columns = Columns(np.array([1.0, 2.0, 4.0]), np.full(3, 0.1), np.full(3, 0.05))
    live, _ = fit(expansion, X, signs, batches, columns)
    points = torch.from_numpy(X[:9])
    scores, gradients = live.scores_and_gradients(points, torch.tensor([0, 1, 2]))
    for column in range(3):
        alone = Columns(columns.C[[column]], columns.step[[column]], columns.penalty[[column]])
        single, _ = fit(expansion, X, signs, batches, alone)
        one_scores, one_gradients = single.scores_and_gradients(points)
        np.testing.assert_allclose(scores[:, column], one_scores[:, 0], atol=1e-10)
        np.testing.assert_allclose(gradients[:, column], one_gradients[:, 0], atol=1e-10)


@pytest.mark.parametrize("expansion", EXPANSIONS[:2])
def test_curvature_estimates_approach_the_rigorous_bound_from_below(expansion):
    X, signs = problem()
    live, _ = fit(expansion, X, signs, shuffled_batches(len(X), 16, 1, 0), one_column())
    bound = curvature_of(live)
    estimate = float(curvature_estimates(live, torch.tensor([0]), iterations=200)[0])
    assert estimate <= bound <= estimate * (1 + 1e-4)


@pytest.mark.parametrize("settings", [{"n_features": 0}, {"cache_mb": -1}])
@pytest.mark.parametrize("kind", [DoublyStochastic, FixedFeatures])
def test_impossible_settings_are_refused(kind, settings):
    with pytest.raises(ValueError, match="expansion"):
        kind(**settings)


def test_a_zero_function_scores_zero():
    points = torch.rand(4, 5, dtype=torch.float64)
    for expansion in EXPANSIONS:
        assert (expansion.begin(space(), 2).scores(points) == 0).all()
    assert RBF().name == "rbf"


@pytest.mark.parametrize("kernel", ["rbf", "laplacian"])
def test_the_zero_function_is_a_model_like_any_other(kernel):
    """A penalty that is too large makes f = 0 the optimum: nothing may stumble over having no support vector."""
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (60, 6)).astype(np.float32)
    y = np.where(X[:, 0] > 0.5, 1, -1)
    settings = {"expansion": "support_vectors", "kernel": kernel, "epsilon": 5.0, "decay": "proximal", "batch_size": 20}
    with pytest.warns(UserWarning, match="penalty"):
        model = AdvSVM(**settings).fit(X, y)
    restored = AdvSVM.from_state(*model.get_state())
    assert not restored.scores(X).any()
    assert not model.staged_scores(X).any()
    assert not model.probe(X, [0], 1e-4)[0].any()
    assert not model.scores_and_gradients(X)[1].any()
    assert not model.certified_radius(X, y).any()


def test_columns_that_are_zero_in_every_support_vector_still_count_in_the_points():
    """They are left out of the matrix products; distances and gradients must not notice."""
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (80, 12)).astype(np.float32)
    X[:, ::2] = 0
    y = np.where(X[:, 1] > 0.5, 1, -1)
    model = AdvSVM(expansion="support_vectors", batch_size=20, dtype="float64").fit(X, y)
    points = rng.uniform(0, 1, (7, 12))
    vectors, weights = (part.numpy() for part in model.expansion_.live())
    gaps = points[:, None, :] - vectors[None]
    values = np.exp(-model.gamma_ * (gaps**2).sum(-1)) * weights[:, 0]
    scores, gradients = model.scores_and_gradients(points)
    np.testing.assert_allclose(scores, values.sum(1), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(gradients, -2 * model.gamma_ * np.einsum("ns,nsd->nd", values, gaps), atol=1e-9)
    np.testing.assert_allclose(model.scores(points), values.sum(1), rtol=1e-9, atol=1e-12)
