"""Certificates of random features against brute force."""

import numpy as np
import pytest
from brute_force import largest_proved, lowest, random_points, random_threat
from hypothesis import given, settings
from hypothesis import strategies as st

from models import AdvSVM, FixedFeatures, certify
from models.certificates import cosines
from models.certificates.cosines import CosineSum, lowest_bends
from models.certificates.forms import contest_of
from models.certificates.places import Place
from models.certificates.quartics import _SINGLE, Products, Quartic, _least_shift
from models.certificates.region import region
from models.kernels import RBF

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds)
@settings(max_examples=50, deadline=None)
def test_every_parabola_lies_below_its_cosine(seed):
    rng = np.random.default_rng(seed)
    angles = rng.uniform(-20, 20, 200)
    below, above = 10.0 ** rng.uniform(-4, 1.5, (2, 200))
    bends = lowest_bends(angles, below, above)
    t = -below[:, None] + np.linspace(0, 1, 801) * (below + above)[:, None]
    gap = np.cos(angles[:, None] + t) - (np.cos(angles) - t.T * np.sin(angles) + bends * t.T**2).T
    assert gap.min() >= -1e-12
    assert (bends >= -0.51).all()
    # Sharp: at the top and the bottom of a cosine nothing better is possible.
    assert lowest_bends(np.array([0.0]), np.ones(1), np.ones(1))[0] > -0.51
    assert lowest_bends(np.array([np.pi]), np.ones(1), np.ones(1))[0] > 0.44


def machine(rng: np.random.Generator, d: int) -> AdvSVM:
    X = rng.uniform(0, 1, (60, d))
    y = np.where(X[:, 0] + 0.3 * rng.standard_normal(60) > 0.5, 1, 0)
    y[:2] = 0, 1
    expansion = FixedFeatures(n_features=int(rng.choice([4, 64, 512])))
    kernel = RBF(gamma=10.0 ** rng.uniform(-1, 2))
    seed = int(rng.integers(1000))
    return AdvSVM(expansion=expansion, kernel=kernel, epsilon=0.0, batch_size=20, random_state=seed).fit(X, y)


PROOFS = ("quick", "proves_by_parabolas", "proves_by_quartics")


def trial(seed: int, proof: str) -> tuple[int, int]:
    """How many points of a random machine are certified at all, and how many largest radii a search refutes."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    model, X = machine(rng, d), random_points(rng, d, 3)
    norm, box = random_threat(rng, d)
    form = contest_of(model).forms[0]
    assert isinstance(form, CosineSum)
    signs = np.where(model.scores(X) > 0, 1.0, -1.0)
    quick = form.quick(X, signs).proves
    dear = None if proof == "quick" else getattr(form, proof)
    radii = largest_proved(quick if dear is None else lambda where: dear(where, signs), X, norm, box)
    where = region(X, radii, norm, box)
    certified = np.flatnonzero(radii)
    return len(certified), sum(lowest(model.scores, where, row, signs[row], rng) <= 0 for row in certified)


@pytest.mark.parametrize("proof", PROOFS)
@given(seed=seeds)
@settings(max_examples=12, deadline=None)
def test_no_proof_is_refuted(proof, seed):
    assert trial(seed, proof)[1] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("proof", PROOFS)
def test_no_proof_is_refuted_in_many_machines(proof):
    found = np.array([trial(seed, proof) for seed in range(150)])
    assert found[:, 0].sum() > 150
    assert found[:, 1].sum() == 0


def test_a_loosened_parabola_is_caught_by_the_same_search(monkeypatch):
    monkeypatch.setattr(cosines, "lowest_bends", lambda angles, below, above: -0.5 * np.cos(angles))
    assert any(trial(seed, "proves_by_parabolas")[1] for seed in range(80))


def above_the_quartic(seed: int, share: float) -> float:
    """How far the quadratic rises above a random quartic on its ball, if only a share of the fourth order is known."""
    rng = np.random.default_rng(seed)
    d, m, radius = int(rng.integers(1, 6)), int(rng.integers(1, 40)), 10.0 ** rng.uniform(-2, 0.5)
    omegas, weights = rng.standard_normal((m, d)) * 10.0 ** rng.uniform(-1, 1), rng.standard_normal(m)
    coefficients = rng.standard_normal((2, m))
    quartic = Quartic(omegas, share * np.abs(weights))
    cubics, off = quartic.products.cubics(omegas, coefficients)
    moves = rng.standard_normal((300, d))
    moves *= radius * rng.uniform(0, 1, (300, 1)) ** 0.3 / np.linalg.norm(moves, axis=1, keepdims=True)
    along, products = moves @ omegas.T, quartic.products.of(moves)
    np.testing.assert_allclose(np.linalg.norm(products, axis=1), (moves**2).sum(1), rtol=1e-12)
    exact = along**3 @ coefficients[0]
    assert (np.abs(np.einsum("nd,dp,np->n", moves, cubics[0], products) - exact) <= off[0] * radius**3).all()
    hessian = rng.standard_normal((d, d)) * 10.0 ** rng.uniform(-2, 1)
    hessian, gradient = hessian + hessian.T, rng.standard_normal(d)
    place = Place(np.zeros(d), np.full(d, -radius), np.full(d, radius), radius)
    constant, slope, matrix = quartic.minorant(place, 1.0, gradient, hessian, cubics[0], float(off[0]))
    truth = 1 + moves @ gradient + 0.5 * np.einsum("ni,ij,nj->n", moves, hessian, moves) + exact
    truth -= along**4 @ np.abs(weights) / 24
    below = constant + moves @ slope + np.einsum("ni,ij,nj->n", moves, matrix, moves)
    return float(((below - truth) / (1 + np.abs(truth))).max())


@given(seed=seeds)
@settings(max_examples=30, deadline=None)
def test_the_quartic_s_matrix_is_the_sum_of_all_products(seed):
    rng = np.random.default_rng(seed)
    d, m = int(rng.integers(1, 9)), int(rng.integers(1, 1200))  # one part of the terms, or several
    omegas, mass = rng.uniform(-1, 1, (m, d)) / np.sqrt(d), rng.uniform(0, 1, m)
    products = Products(d)
    u = products.of(omegas)
    limit = _SINGLE * (mass @ np.linalg.norm(omegas, axis=1) ** 4)
    assert np.linalg.norm(products.quartic(omegas, mass) - (u.T * mass) @ u) <= limit


@given(seed=seeds)
@settings(max_examples=40, deadline=None)
def test_the_quadratic_lies_below_the_quartic(seed):
    assert above_the_quartic(seed, 1.0) <= 1e-9


@pytest.mark.parametrize("d", [1, 3, 8])
def test_the_shift_is_about_the_best_of_all(d):
    rng = np.random.default_rng(d)
    products = Products(d)
    u = products.of(rng.normal(size=(200, d)) / 4)
    quartic, outer = (u.T * rng.random(200)) @ u, np.outer(products.trace, products.trace)

    def largest(alpha: float) -> float:
        return float(np.linalg.eigvalsh(quartic + alpha * outer)[-1]) - alpha

    alpha, value = _least_shift(quartic, products.trace)
    assert value == pytest.approx(largest(alpha), rel=2e-3)
    best = min(largest(tried) for tried in np.linspace(-largest(0.0), 0.0, 400))
    assert value <= 1.01 * best + 1e-12


def test_a_loosened_quartic_is_caught_by_the_same_search():
    assert sum(above_the_quartic(seed, 0.5) > 1e-9 for seed in range(60)) > 3


def test_quartics_certify_what_parabolas_cannot():
    rng = np.random.default_rng(1)
    X = rng.uniform(0, 1, (300, 8))
    y = np.where(X[:, 0] + 0.3 * np.sin(3 * X[:, 1]) > 0.6, 1, 0)
    expansion = FixedFeatures(n_features=1024)
    model = AdvSVM(expansion=expansion, kernel=RBF(gamma=1.0), C=4.0, batch_size=50, passes=3, epsilon=0.0).fit(X, y)
    form, where = contest_of(model).forms[0], region(X, 0.3, "l2", (0.0, 1.0))
    signs = np.where(model.scores(X) > 0, 1.0, -1.0)
    parabolas, quartics = form.proves_by_parabolas(where, signs), form.proves_by_quartics(where, signs)
    assert (parabolas | quartics).sum() > parabolas.sum() + 8


def test_parabolas_certify_what_the_global_curvature_does_and_more():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (200, 4))
    y = np.where(X[:, 0] + 0.3 * np.sin(6 * X[:, 1]) > 0.6, 1, 0)
    model = AdvSVM(C=4.0, batch_size=50, passes=3, epsilon=1e-3).fit(X, y)
    for norm, epsilon in (("l2", 0.05), ("l2", 0.1), ("linf", 0.04)):
        cheap, dear = (certify(model, X, y, epsilon, norm, seconds=seconds) for seconds in (0, None))
        assert dear.sum() > cheap.sum()
