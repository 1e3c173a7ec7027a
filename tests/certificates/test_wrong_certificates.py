"""Certificates that were wrong once: half precision, repeated rows, a scaler's dtype, misclassified rows."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression, RidgeClassifier, RidgeClassifierCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, RobustScaler, StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

from attacks import bracket
from models import AdvLinearSVM, AdvSVM, KernelSVC, certify
from models.certificates.certify import certified_radius
from models.kernel_sums import KernelSpace, kernel_sum
from models.kernels import RBF, Laplacian
from models.rounding import Sum

SCALERS = (StandardScaler, MinMaxScaler, MaxAbsScaler, RobustScaler)
MACHINES = {
    "logistic": lambda: LogisticRegression(),
    "svc": lambda: SVC(gamma=0.5),
    "linear svc": lambda: LinearSVC(),
    "ridge": lambda: RidgeClassifier(),
}
OURS = {
    "kernel svc": lambda: KernelSVC(C=4.0),
    "laplacian": lambda: AdvSVM(expansion="support_vectors", kernel="laplacian", batch_size=20, passes=2),
    "random features": lambda: AdvSVM(batch_size=20, passes=2),
    "linear": lambda: AdvLinearSVM(),
}


def two_clouds(dtype, seed=0, n=60, d=3):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 2
    return (rng.normal(size=(n, d)) * [30.0, 0.2, 3.0][:d] + 1.5 * y[:, None] + 20).astype(dtype), y


@pytest.mark.parametrize("ask", [certify, bracket])
def test_half_precision_rows_are_refused(ask):
    X, y = two_clouds(np.float16)
    model = make_pipeline(StandardScaler(), SVC()).fit(X, y)
    with pytest.raises(ValueError, match="float16"):
        ask(model, X, y, 0.1, norm="linf", box=None)
    with pytest.raises(ValueError, match="float16"):
        certified_radius(model, X, y)


def test_repeated_rows_add_up_their_rounding(monkeypatch):
    # Two flat grey pictures, over and over: errors of equal rows are equal, and those of float32 outgrow the margins.
    for low, high in ((0.5, 0.501), (0.3, 0.3003)):
        X = np.repeat([[low], [high]], 1000, axis=0).repeat(784, axis=1).astype(np.float32)
        y = np.repeat([0, 1], 1000)
        model = KernelSVC(C=1.0, gamma=1.0).fit(X, y)
        points = np.linspace(low - 0.01, high + 0.01, 1500)[:, None].repeat(784, axis=1).astype(np.float32)
        exact = model.expansion_.scores(torch.from_numpy(points).double(), dtype=torch.float64)[:, 0].numpy()
        labels = (exact + model.intercept_ > 0).astype(int)
        with monkeypatch.context() as patched:
            # Without the last word of `predict`, so that the bound itself is asked.
            patched.setattr(KernelSVC, "predict", lambda self, X, labels=labels: labels)
            proved = certify(model, points, labels, 1e-9, "linf", None)
            positive = certified_radius(model, points, labels, norm="linf") > 0
        wrong = model.predict(points) != labels
        assert wrong.any()
        assert not (proved & wrong).any()
        assert not (positive & wrong).any()
        assert not ((model.certified_radius(points, labels) > 0) & wrong).any()


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 2**20),
    copies=st.sampled_from([1, 40]),
    d=st.sampled_from([3, 64, 400]),
    jitter=st.sampled_from([0.0, 1e-6, 1e-2]),
    kernel=st.sampled_from([RBF(), Laplacian()]),
    gamma=st.floats(0.01, 10.0),
)
def test_the_bound_of_float32_covers_what_it_loses(seed, copies, d, jitter, kernel, gamma):
    rng = np.random.default_rng(seed)
    flat = np.full((4, d), rng.uniform(0.1, 1.0)) + rng.normal(size=(4, d)) * rng.choice([0.0, 1e-3, 0.3])
    vectors = np.repeat(flat, copies, axis=0)
    vectors = (vectors + jitter * rng.normal(size=vectors.shape)).astype(np.float32)
    weights = rng.normal(size=len(vectors)).round(2) + rng.choice([0.0, 3.0])
    rows = (vectors[rng.integers(len(vectors), size=20)] + rng.choice([0.0, 0.01]) * rng.normal(size=(20, d))).astype(
        np.float32
    )

    def scores(dtype):
        space = KernelSpace(kernel, (gamma,), d, dtype, 0)
        vectors_, weights_ = torch.from_numpy(vectors).to(dtype), torch.from_numpy(weights)[:, None]
        return (
            kernel_sum(space, vectors_, weights_, dtype).scores(torch.from_numpy(rows).to(dtype))[:, 0].double().numpy()
        )

    apart = np.linalg.norm(rows.astype(np.float64)[:, None] - vectors.astype(np.float64), axis=2) * (1 - 1e-12)
    lengths = np.linalg.norm(rows.astype(np.float64), axis=1)
    terms = Sum(weights, np.linalg.norm(vectors.astype(np.float64), axis=1), d, int(vectors.any(0).sum()))
    bound = kernel.float32_errors(apart, lengths, terms, gamma)
    float64 = kernel.evaluation_errors(lengths, terms, gamma, 0.0).score
    assert (np.abs(scores(torch.float32) - scores(torch.float64)) <= bound + float64).all()


def next_to_the_boundary(model, X, rng, n):
    """Pairs of rows, a rounding or so apart, that the model gives different labels."""
    predicted = model.predict(X)
    low, high = (X[rng.choice(np.flatnonzero(predicted == label), n)].astype(np.float64) for label in model.classes_)
    for _ in range(60):
        middle = (low + high) / 2
        second = model.predict(middle.astype(X.dtype)) == model.classes_[1]
        high, low = np.where(second[:, None], middle, high), np.where(second[:, None], low, middle)
    return low.astype(X.dtype), high.astype(X.dtype)


@pytest.mark.parametrize("fitted_to", [np.float32, np.float64])
@pytest.mark.parametrize("rows", [np.float32, np.float64])
@pytest.mark.parametrize("scaler", SCALERS)
@pytest.mark.parametrize("machine", MACHINES)
def test_no_certificate_behind_a_scaler_is_beaten_by_its_neighbour(machine, scaler, rows, fitted_to):
    rng = np.random.default_rng(3)
    X, y = two_clouds(fitted_to)
    model = make_pipeline(scaler(), MACHINES[machine]()).fit(X, y)
    low, high = next_to_the_boundary(model, X.astype(rows), rng, 60)
    for ours, theirs in ((low, high), (high, low)):
        labels, others = model.predict(ours), model.predict(theirs)
        apart = np.abs(ours.astype(np.float64) - theirs.astype(np.float64)).max(1)
        radii = certified_radius(model, ours, labels, norm="linf")
        beaten = (labels != others) & (radii > 0) & (radii >= apart)
        assert not beaten.any()


EVERY = {**MACHINES, **OURS, "one vs rest": lambda: OneVsRestClassifier(SVC()), "nu svc": lambda: NuSVC(nu=0.3)}
PLACES = [(name, scaler) for name in EVERY for scaler in (None, *SCALERS) if scaler is None or name not in OURS]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("machine", "scaler"), PLACES)
def test_a_misclassified_row_is_never_certified(machine, dtype, scaler):
    rng = np.random.default_rng(4)
    X, y = two_clouds(dtype)
    if machine in OURS:
        X = ((X - X.min(0)) / np.ptp(X, axis=0)).astype(dtype)
    model = EVERY[machine]() if scaler is None else make_pipeline(scaler(), EVERY[machine]())
    model.fit(X, y)
    low, high = next_to_the_boundary(model, X, rng, 40)
    points = np.concatenate([X, low, high])
    for label in model.classes_:
        labels = np.full(len(points), label)
        wrong = model.predict(points) != labels
        assert not certify(model, points, labels, 0.0, "linf", None)[wrong].any()
        assert not (certified_radius(model, points, labels, norm="linf") > 0)[wrong].any()
        if machine in OURS:
            assert not (model.certified_radius(points, labels) > 0)[wrong].any()


def test_the_model_itself_has_the_last_word():
    class Contrary(SVC):
        def predict(self, X):
            return 1 - super().predict(X)

    X, y = two_clouds(np.float64)
    model = Contrary().fit(X, y)
    labels = SVC.predict(model, X)
    assert certify(SVC().fit(X, y), X, labels, 1e-9, "l2", None).any()
    assert not certify(model, X, labels, 1e-9, "l2", None).any()
    assert not certified_radius(model, X, labels).any()


@pytest.mark.parametrize("kind", [RidgeClassifier, RidgeClassifierCV])
def test_a_ridge_classifier_of_two_classes_is_certified(kind):
    X, y = two_clouds(np.float64)
    model = kind().fit(X, y)
    radii = certified_radius(model, X, model.predict(X), norm="l2")
    expected = np.abs(model.decision_function(X)) / np.linalg.norm(model.coef_)
    np.testing.assert_allclose(radii, expected, rtol=2e-4)
    assert certify(model, X, model.predict(X), 0.5 * expected.min(), "l2", None).all()
