"""Sparse rows give the models of the same dense ones, and what stays sparse costs no memory for its zeros."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.svm import SVC, LinearSVC
from sklearn.utils import get_tags

from attacks import PGD, bracket
from models import AdvLinearSVM, AdvSVM, FixedFeatures, KernelSVC, OneVsRest, certify, grid_search, load, save
from models import grid as grid_module
from models import svc as svc_module
from models.distances import pair_distances
from models.fitted import SklearnModel
from models.linear_problem import DenseRows, SparsePlusLowRank
from models.svc import VotingSVC


def rows(n: int = 240, d: int = 40, classes: int = 2, dtype=np.float32) -> tuple[sparse.csr_matrix, np.ndarray]:
    rng = np.random.default_rng(0)
    X = sparse.random(n, d, density=0.15, random_state=rng, format="csr", dtype=dtype)
    scores = X @ rng.normal(size=(d, classes)) + 0.05 * rng.normal(size=(n, classes))
    return sparse.csr_matrix(X), scores.argmax(axis=1)


MODELS = {
    "linear": AdvLinearSVM(C=20.0, C_f=0.02),
    "linear, plain": AdvLinearSVM(C=2.0, C_f=0.0, fit_intercept=False),
    "svc": KernelSVC(C=2.0, width_scale=1.0),
    "doubly stochastic": AdvSVM(C=2.0, batch_size=40),
    "fixed features": AdvSVM(C=2.0, batch_size=40, expansion=FixedFeatures(n_features=512)),
    "exact": AdvSVM(C=2.0, batch_size=40, expansion="support_vectors"),
    "scikit-learn's": SklearnModel(SVC(C=2.0)),
    "many classes": OneVsRest(AdvLinearSVM(C=20.0, C_f=0.02)),
    "votes": VotingSVC(C=2.0),
}


@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_sparse_rows_is_the_model_of_the_same_dense_rows(name):
    model = MODELS[name]
    X, y = rows(classes=3 if name in ("many classes", "votes") else 2)
    thin, thick = (clone(model).fit(part, y, eval_set=(part[:50], y[:50])) for part in (X, X.toarray()))
    assert get_tags(thin).input_tags.sparse
    expected = thick.decision_function(X.toarray())
    for asked in (X, X.toarray()):
        np.testing.assert_allclose(thin.decision_function(asked), expected, atol=2e-3 * np.abs(expected).max())
        assert np.array_equal(thin.predict(asked), thin.predict(X.toarray()))
    assert np.mean(thin.predict(X) == y) > 0.8
    assert thin.curve_["test_error"][-1] == pytest.approx(thick.curve_["test_error"][-1], abs=0.021)


@pytest.mark.parametrize(
    "model",
    [AdvLinearSVM(), KernelSVC(), AdvSVM(batch_size=40, expansion="support_vectors")],
    ids=lambda m: type(m).__name__,
)
@pytest.mark.parametrize("metric", ["accuracy", "robust_accuracy"])
def test_a_grid_over_sparse_rows_chooses_what_it_chooses_of_dense_ones(model, metric):
    X, y = rows()
    settings = {"C": [0.5, 4.0], "folds": 3, "metric": metric, "norm": "linf", "radius": 0.02, "box": (0.0, 1.0)}
    thin, thick = (grid_search(model, part, y, **settings) for part in (X, X.toarray()))
    assert thin.best == thick.best
    np.testing.assert_allclose(thin.table["mean_accuracy"], thick.table["mean_accuracy"], atol=0.02)


@pytest.mark.parametrize("weighted", [False, True])
def test_products_with_sparse_rows_plus_a_low_rank_are_those_of_the_dense_matrix(weighted):
    rng = np.random.default_rng(1)
    A = sparse.random(30, 7, density=0.3, random_state=rng, format="csr")
    U, V = rng.normal(size=(30, 2)), rng.normal(size=(7, 2))
    thin, thick = SparsePlusLowRank(A, U, V), DenseRows(torch.from_numpy(A.toarray() + U @ V.T))
    W, M = torch.from_numpy(rng.normal(size=(7, 3))), torch.from_numpy(rng.normal(size=(30, 3)))
    weights = torch.from_numpy(rng.random(30)) if weighted else None
    torch.testing.assert_close(thin.times(W), thick.times(W))
    torch.testing.assert_close(thin.transposed_times(M), thick.transposed_times(M))
    torch.testing.assert_close(thin.gram(weights), thick.gram(weights))
    assert thin.n_columns == thick.n_columns == 7


def test_distances_of_sparse_rows_are_those_of_dense_ones_also_of_equal_rows():
    X = sparse.random(60, 30, density=0.2, random_state=0, format="csr")
    X = sparse.vstack([X, X[:5]], format="csr")
    naive = ((X.toarray()[:, None] - X.toarray()[None]) ** 2).sum(axis=2)
    np.testing.assert_allclose(pair_distances(X, X, refine=True).numpy(), naive, atol=1e-12)
    assert pair_distances(X, X, refine=True)[0, 60] == 0


def test_a_million_columns_cost_no_memory_where_rows_stay_sparse():
    n, d, per_row = 300, 1_000_000, 20
    columns = np.random.default_rng(0).integers(0, d, n * per_row)
    X = sparse.csr_matrix((np.ones(n * per_row), (np.repeat(np.arange(n), per_row), columns)), (n, d))
    y = np.arange(n) % 2
    tracemalloc.start()
    try:
        pair_distances(X, X)
        model = SklearnModel(LinearSVC()).fit(X, y)
        assert np.mean(model.predict(X) == y) > 0.9
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert most < 100e6  # the dense rows would take 2.4 GB


def test_what_needs_dense_rows_says_so(monkeypatch):
    X, y = rows()
    model = KernelSVC().fit(X, y)
    with pytest.raises(ValueError, match=r"X is sparse, but an attacker may change any value.*toarray"):
        PGD(epsilon=0.1)(model, X, y)
    with pytest.raises(ValueError, match="X is sparse"):
        bracket(model, X, y, epsilon=0.1, norm="linf")
    some = X[:30].toarray()
    assert np.array_equal(certify(model, X[:30], y[:30], 0.01), certify(model, some, y[:30], 0.01))
    assert bracket(model, some, y[:30], epsilon=0.01, norm="linf").certified.any()
    with pytest.raises(
        ValueError, match=r"AdvLinearSVM solves a system in its weights: 20,000 features would take 6 GB"
    ):
        AdvLinearSVM().fit(sparse.csr_matrix((4, 20_000)), [0, 1, 0, 1])
    monkeypatch.setattr(svc_module, "_MOST_BYTES", 1000)
    with pytest.raises(ValueError, match=r"support vectors of 40 values take .* GB"):
        KernelSVC().fit(X, y)


@pytest.mark.parametrize(
    "model", [SklearnModel(SVC(C=5.0)), VotingSVC(C=5.0), KernelSVC(C=5.0)], ids=lambda m: type(m).__name__
)
def test_an_svc_of_sparse_rows_is_attacked_certified_and_stored(tmp_path, model):
    X, y = rows(classes=3 if isinstance(model, VotingSVC) else 2)
    fitted, some = clone(model).fit(X, y), X[:40].toarray()
    broken = PGD(epsilon=0.05, norm="linf")(fitted, some, y[:40]).success
    certified = certify(fitted, some, y[:40], 0.05, "linf")
    assert certified.mean() > 0.5
    assert not (certified & broken).any()
    save(fitted, tmp_path / "kept")
    assert np.array_equal(load(tmp_path / "kept").predict(some), fitted.predict(some))


def test_many_rows_are_tuned_on_a_part_of_them_which_is_said(monkeypatch):
    monkeypatch.setattr(KernelSVC, "tuning_rows", (200, 100))
    monkeypatch.setattr(grid_module, "MOST_ROWS", 230)
    monkeypatch.setattr(grid_module, "SAMPLE", 120)
    X, y = rows()
    for model, used in ((KernelSVC(), 100), (AdvLinearSVM(), 120), (OneVsRest(AdvLinearSVM()), 120)):
        found = grid_search(model, X, y, C=[0.5, 4.0], folds=3)
        assert f"Settings were chosen on {used} of the 240 training rows" in " ".join(found.messages)
        assert found.best_score > 0.6
    few = grid_search(KernelSVC(), X[:150], y[:150], C=[0.5, 4.0], folds=3)
    assert not any("training rows" in message for message in few.messages)
