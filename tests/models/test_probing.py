"""Probes with a memory against one-by-one queries, and the fast Gaussian sum against the plain one."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from models import RBF, AdvSVM, DoublyStochastic, KernelSVC, Laplacian, probing
from models.kernel_sums import KernelSum, RBFSum

H = 1e-3


def data(n=90, d=12, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.random((n, d))
    X[:, 3] = 0.0  # a column no support vector uses
    return X, np.where(X[:, 0] + X[:, 1] ** 2 > 0.9, 1, -1)


def models():
    yield "doubly_stochastic", AdvSVM(expansion=DoublyStochastic(n_features=64), batch_size=20, C=4.0, epsilon=0.0)
    yield "fixed_features", AdvSVM(expansion="fixed_features", batch_size=20, C=4.0, epsilon=0.0)
    yield "support_vectors", AdvSVM(expansion="support_vectors", batch_size=20, C=4.0, epsilon=0.0)
    yield "laplacian", AdvSVM(expansion="support_vectors", kernel=Laplacian(), batch_size=20, C=4.0, epsilon=0.0)
    yield "svc", KernelSVC()


MODELS = dict(models())


def one_by_one(model, X, coords, h):
    plus = np.empty((len(X), len(coords)))
    minus = np.empty_like(plus)
    for place, j in enumerate(coords):
        moved = X.copy()
        moved[:, j] += h
        plus[:, place] = model.scores(moved)
        moved[:, j] -= 2 * h
        minus[:, place] = model.scores(moved)
    return plus, minus


@pytest.mark.parametrize("name", MODELS)
def test_a_prober_answers_as_single_queries_do_while_rows_move_and_leave(name):
    X, y = data()
    model = MODELS[name].fit(X, y)
    prober, rng, points = model.prober(), np.random.default_rng(1), X[:30].copy()
    for step in range(probing._RENEW + 10):
        coords = np.sort(rng.choice(X.shape[1], 4, replace=False))
        for got, wanted in zip(prober.probe(points, coords, H), one_by_one(model, points, coords, H)):
            np.testing.assert_allclose(got, wanted, atol=1e-9)
        # In place, as an attack does: the prober must not mistake its own copy for the new rows.
        points[:, coords] += rng.normal(scale=0.05, size=(len(points), 4))
        if step % 7 == 3:
            stay = rng.random(len(points)) > 0.1
            points = points[stay]
            prober.keep(stay)


@pytest.mark.parametrize("h", [1e-6, 1e-1])
@pytest.mark.parametrize(("dtype", "tolerance"), [("float64", 1e-9), ("float32", 1e-6)])
@pytest.mark.parametrize("expansion", [DoublyStochastic(n_features=64), "fixed_features", "support_vectors"])
def test_a_prober_asked_about_all_coordinates_answers_alike(expansion, dtype, tolerance, h):
    """Nothing is kept then, and tiny steps take the frequencies themselves for their sines."""
    X, y = data()
    model = AdvSVM(expansion=expansion, batch_size=20, C=4.0, epsilon=0.0, dtype=dtype).fit(X, y)
    exact = AdvSVM(expansion=expansion, batch_size=20, C=4.0, epsilon=0.0, dtype="float64").fit(X, y)
    scale = np.abs(exact.scores(X)).max()
    for coords in (np.arange(X.shape[1]), np.arange(X.shape[1])[::-1], np.array([7, 1, 2, 3, 4, 5, 6, 0])):
        prober = model.prober()
        for points in (X[:30], 0.5 * X[:30]):
            plus, minus = prober.probe(points, coords, h)
            wanted_plus, wanted_minus = one_by_one(exact, points, coords, h)
            np.testing.assert_allclose(plus, wanted_plus, atol=20 * scale * tolerance)
            slopes, wanted = (plus - minus) / (2 * h), (wanted_plus - wanted_minus) / (2 * h)
            # 1e-16 of the scores over h is what the naive differences round by.
            np.testing.assert_allclose(slopes, wanted, atol=100 * scale * tolerance + 1e-14 * scale / h)


@pytest.mark.parametrize("name", ["doubly_stochastic", "support_vectors"])
def test_only_changed_columns_are_worked_on(name, monkeypatch):
    X, y = data()
    model = MODELS[name].fit(X, y)
    prober = model.prober()
    widths = []
    inner = prober._prober
    update = inner._update
    monkeypatch.setattr(inner, "_update", lambda d, t, columns: (widths.append(len(columns)), update(d, t, columns)))
    renewed = []
    renew = inner._renew
    monkeypatch.setattr(inner, "_renew", lambda X: (renewed.append(1), renew(X)))
    points = X[:10].copy()
    for j in range(4):
        prober.probe(points, [0, 1], H)
        points[:, j] += 0.1
    assert widths == [1, 1, 1]
    assert len(renewed) == 1
    prober.probe(X[10:20], [0, 1], H)  # other rows altogether
    assert len(renewed) == 2


def test_a_table_too_large_to_keep_is_not_kept(monkeypatch):
    monkeypatch.setattr(probing, "_MOST", 10)
    X, y = data()
    model = MODELS["doubly_stochastic"].fit(X, y)
    prober = model.prober()
    for got, wanted in zip(prober.probe(X[:5], [0, 4], H), model.probe(X[:5], [0, 4], H)):
        np.testing.assert_array_equal(got, wanted)
    assert prober._prober._rows is None


def test_a_subclass_with_scores_of_its_own_is_asked_through_them():
    class Negated(KernelSVC):
        def scores(self, X):
            return -super().scores(X)

        def scores_and_gradients(self, X):
            return tuple(-part for part in super().scores_and_gradients(X))

        def probe(self, X, coords, h):
            return tuple(-part for part in super().probe(X, coords, h))

    X, y = data()
    model = Negated().fit(X, y)
    for got, wanted in zip(model.prober().probe(X[:5], [0, 4], H), one_by_one(model, X[:5], [0, 4], H)):
        np.testing.assert_allclose(got, wanted, atol=1e-9)


def test_an_oversized_call_forgets(monkeypatch):
    X, y = data()
    prober = MODELS["doubly_stochastic"].fit(X, y).prober()
    prober.probe(X[:5], [0], H)
    monkeypatch.setattr(probing, "_MOST", 10)
    prober.probe(X[:8], [0], H)
    prober.keep(np.ones(8, dtype=bool))


def test_kernel_values_never_exceed_one_far_from_the_origin():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(200, 10)) + 1e4).astype(np.float32)
    model = KernelSVC(gamma=0.1).fit(X, np.where(X[:, 0] > 1e4, 1, -1))
    mass = float(model.expansion_.live()[1].abs().sum())
    for scores in (model.scores(X), model.scores_and_gradients(X)[0], model.prober().probe(X, [0], 1e-3)[0][:, 0]):
        assert np.abs(scores - model.intercept_).max() <= 1.01 * mass


def test_scores_with_gradients_round_like_scores():
    rng = np.random.default_rng(0)
    X = rng.random((300, 20)).astype(np.float32)
    y = np.where((X[:, 0] > 0.5) ^ (rng.random(300) < 0.2), 1, -1)
    model = KernelSVC(C=1e3, gamma=0.05).fit(X, y)
    exact = KernelSVC(C=1e3, gamma=0.05).fit(X.astype(np.float64), y).scores(X.astype(np.float64))
    alone, beside = model.scores(X), model.scores_and_gradients(X)[0]
    assert np.abs(beside - exact).max() <= 3 * np.abs(alone - exact).max()


@settings(deadline=None, max_examples=40)
@given(seed=st.integers(0, 10_000), gamma=st.floats(1e-3, 20.0), zeros=st.integers(0, 6))
def test_the_gaussian_sum_is_the_kernel_sum(seed, gamma, zeros):
    rng = np.random.default_rng(seed)
    vectors, X = torch.from_numpy(rng.random((15, 8))), torch.from_numpy(rng.random((7, 8)))
    vectors[:, :zeros] = 0.0
    weights = torch.from_numpy(rng.normal(size=15))
    model = AdvSVM(expansion="support_vectors", kernel=RBF(gamma=gamma), batch_size=20, epsilon=0.0).fit(*data(60, 8))
    plain = KernelSum(model.expansion_.space, vectors, weights[:, None], torch.float64)
    fast = RBFSum(model.expansion_.space, vectors, weights[:, None], torch.float64)
    first = torch.tensor([0])
    assert torch.allclose(plain.scores(X), fast.scores(X), atol=1e-12)
    for a, b in zip(plain.scores_and_gradients(X, first, gamma), fast.scores_and_gradients(X, first, gamma)):
        assert torch.allclose(a, b, atol=1e-11)
