"""A kernel or an expansion of one's own is one class: found by name, saved, loaded, and never given a wrong proof."""

import json
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest

import models
from models import RBF, AdvSVM, DoublyStochastic, FixedFeatures, Laplacian, SupportVectors
from models.expansions import Expansion
from models.kernels import Kernel
from oracles_models import central_differences


@dataclass(frozen=True)
class InverseQuadratic(Kernel):
    """g(r) = 1 / (1 + gamma r²): no rounding bound, no random features."""

    name: ClassVar[str] = "inverse_quadratic"
    median_power: ClassVar[int] = 2

    def from_squared_distance_(self, squared, gamma):
        return squared.mul_(gamma).add_(1.0).reciprocal_()

    def slope(self, squared, values, gamma):
        return -gamma * values.square()

    def drop(self, distance, gamma):
        u = gamma * np.square(distance, dtype=np.float64)
        return u / (1 + u)

    def inverse_profile(self, value, gamma):
        return np.sqrt((1 / value - 1) / gamma)

    def frequency_lengths(self, rng, n_features):
        return np.sqrt(2 * rng.standard_exponential(n_features, dtype=np.float32))

    def frequency_scale(self, gamma):
        return float(np.sqrt(gamma))


@dataclass(frozen=True)
class FewVectors(SupportVectors):
    """The exact expansion under another name."""

    name: ClassVar[str] = "few_vectors"


def data(n=80, d=4, seed=0):
    X = np.random.default_rng(seed).random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] > 1, 1, -1)


@pytest.fixture
def fitted():
    X, y = data()
    return AdvSVM(kernel="inverse_quadratic", expansion="few_vectors", batch_size=20, C=4.0).fit(X, y)


def test_being_a_subclass_is_being_registered(fitted):
    assert isinstance(Kernel.of("inverse_quadratic"), InverseQuadratic)
    assert isinstance(Expansion.of("few_vectors"), FewVectors)
    X, y = data()
    assert fitted.score(X, y) > 0.9
    np.testing.assert_allclose(
        fitted.scores_and_gradients(X[:5])[1], central_differences(fitted.scores, X[:5]), atol=1e-6
    )
    plus, minus = fitted.prober().probe(X[:5], [0, 2], 1e-2)
    moved = X[:5] + np.array([0, 0, 1e-2, 0])
    np.testing.assert_allclose(plus[:, 1], fitted.scores(moved), atol=1e-12)
    assert (plus != minus).all()


def test_random_features_of_a_kernel_of_ones_own_approximate_it():
    X, y = data()
    expansion = models.FixedFeatures(n_features=4096)
    many, exact = (
        AdvSVM(kernel=InverseQuadratic(gamma=2.0), expansion=e, batch_size=20, epsilon=0.0).fit(X, y).scores(X)
        for e in (expansion, "support_vectors")
    )
    assert np.corrcoef(many, exact)[0, 1] > 0.98


def test_it_survives_saving_and_loading(fitted, tmp_path):
    models.save(fitted, tmp_path)
    again = models.load(tmp_path)
    X, _ = data()
    np.testing.assert_array_equal(again.scores(X), fitted.scores(X))
    assert isinstance(again.kernel, InverseQuadratic)
    assert isinstance(again.expansion, FewVectors)


def test_a_file_never_imports_a_module(fitted, tmp_path, monkeypatch):
    models.save(fitted, tmp_path)
    monkeypatch.delitem(Kernel.registry, "inverse_quadratic")
    with pytest.raises(ValueError, match=r"unknown kernel 'inverse_quadratic'.*import the module that defines it"):
        models.load(tmp_path)
    # The same name from elsewhere is another kernel.
    monkeypatch.setitem(Kernel.registry, "inverse_quadratic", RBF)
    with pytest.raises(ValueError, match="unknown kernel 'inverse_quadratic'"):
        models.load(tmp_path)
    assert (
        "test_registry:InverseQuadratic"
        in json.loads((tmp_path / "model.json").read_text())["meta"]["params"]["kernel"]["class"]
    )


def test_files_that_name_no_class_still_load():
    assert Kernel.from_dict({"name": "rbf", "width_scale": 2.0, "gamma": None}) == RBF(width_scale=2.0)


def test_two_classes_cannot_share_a_name():
    with pytest.raises(ValueError, match=r"'rbf' is taken by models.kernels:RBF"):

        class Impostor(RBF):
            name: ClassVar[str] = "rbf"


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_kernel_without_a_rounding_bound_is_refused_a_certificate(dtype):
    X, y = data()
    model = AdvSVM(kernel=InverseQuadratic(), expansion="support_vectors", batch_size=20, dtype=dtype).fit(X, y)
    with pytest.raises(ValueError, match="inverse_quadratic kernel states no rounding bound"):
        model.certified_radius(X, y)


@pytest.mark.parametrize("parent", [RBF, Laplacian])
def test_another_profile_inherits_no_proof(parent):
    """Subclassing a certified kernel and changing g must not carry its certificates along."""

    @dataclass(frozen=True)
    class Wider(parent):
        name: ClassVar[str] = f"wider_{parent.name}"

        def from_squared_distance_(self, squared, gamma):
            return super().from_squared_distance_(squared, gamma / 2)

    try:
        X, y = data()
        assert Wider.bounds == ("paper",)
        with pytest.raises(ValueError, match="no rounding bound"):
            AdvSVM(kernel=Wider(), expansion="support_vectors", batch_size=20).fit(X, y).certified_radius(X, y)
    finally:
        del Kernel.registry[Wider.name]


def test_a_bound_that_a_kernel_names_and_does_not_prove_is_refused():
    @dataclass(frozen=True)
    class Boasting(RBF):
        name: ClassVar[str] = "boasting"
        bounds: ClassVar[tuple[str, ...]] = ("best", "paper")

    try:
        X, y = data()
        model = AdvSVM(kernel=Boasting(), expansion="support_vectors", batch_size=20).fit(X, y)
        assert (model.certified_radius(X, y, bound="paper") > 0).any()
        with pytest.raises(ValueError, match="boasting kernel offers the bound 'best' and does not prove it"):
            model.certified_radius(X, y)
    finally:
        del Kernel.registry[Boasting.name]


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: RBF(gamma=0.0), "kernel.gamma must be .* > 0, got 0.0"),
        (lambda: RBF(width_scale=2e9), r"kernel.width_scale must be at most 1e\+09, got"),
        (lambda: SupportVectors(budget=1), "expansion.budget must be .* >= 2 .*, got 1"),
        (lambda: DoublyStochastic(n_features=0), "expansion.n_features must be .* >= 1 .*, got 0"),
        (lambda: FixedFeatures(cache_mb=-1), "expansion.cache_mb must be .* >= 0, got -1"),
        (
            lambda: FixedFeatures(sampling="sobol"),
            "expansion.sampling must be one of gaussian, orthogonal, got 'sobol'",
        ),
    ],
)
def test_a_setting_outside_its_limits_is_named(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_name_nobody_has_lists_those_there_are():
    with pytest.raises(ValueError, match=r"kernel='cubic' is not one of .*laplacian.*rbf"):
        Kernel.of("cubic")


def test_a_kernel_with_a_method_that_nobody_asks_any_more_is_refused():
    with pytest.raises(TypeError, match=r"Proving\.form is no longer asked"):

        class Proving(RBF):
            def form(self, expansion, offset, squared_norm):
                return None
