"""Certificates of sums of Gaussians against brute force in one to four dimensions."""

from functools import partial

import numpy as np
import pytest
from brute_force import largest_proved, lowest, random_points, random_sum, random_threat, scores
from hypothesis import given, settings
from hypothesis import strategies as st

from models.certificates import minorant
from models.certificates.gaussian import GaussianSum
from models.certificates.minorant import block_norms, proves_by_orders, proves_by_parabolas, remainder
from models.certificates.places import stays_positive
from models.certificates.region import region


def proves_first_order(form, where, signs):
    return form.quick(where.X, signs).proves(where)


PROOFS = [proves_first_order, GaussianSum.proves_about_midpoint, proves_by_parabolas, proves_by_orders]


def trial(prove, seed: int) -> tuple[int, int]:
    """How many points of a random machine are certified at all, and how many largest radii a search refutes."""
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    form = random_sum(rng, d)
    X, (norm, box) = random_points(rng, d, 3), random_threat(rng, d)
    signs = np.where(scores(form, X) > 0, 1.0, -1.0)
    radii = largest_proved(lambda where: prove(form, where, signs), X, norm, box)
    where = region(X, radii, norm, box)
    certified = np.flatnonzero(radii)
    wrong = [row for row in certified if lowest(partial(scores, form), where, row, signs[row], rng) <= 0]
    return len(certified), len(wrong)


@pytest.mark.parametrize("prove", PROOFS)
@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=40, deadline=None)
def test_no_proof_is_refuted(prove, seed):
    assert trial(prove, seed)[1] == 0


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("prove", PROOFS)
def test_no_proof_is_refuted_in_hundreds_of_machines(prove):
    found = np.array([trial(prove, seed) for seed in range(500)])
    assert found[:, 0].sum() > 500
    assert found[:, 1].sum() == 0


def test_a_loosened_bound_is_caught_by_the_same_search(monkeypatch):
    monkeypatch.setattr(minorant, "phi", lambda t: np.full_like(t, 0.5))  # Taylor's coefficient: true only at t = 0
    assert any(trial(proves_by_parabolas, seed)[1] for seed in range(150))


def test_a_forgotten_quadratic_term_is_caught_by_the_same_search(monkeypatch):
    monkeypatch.setattr(minorant, "positive_on", lambda place, cell, constant, *rest: constant > 0)
    assert any(trial(proves_by_parabolas, seed)[1] for seed in range(150))


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=200, deadline=None)
def test_trust_region_proofs_hold_and_are_nearly_sharp(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    matrix = rng.standard_normal((d, d))
    matrix = matrix + matrix.T
    gradient, radius = rng.standard_normal(d) * rng.choice([0.0, 1.0]), 10.0 ** rng.uniform(-2, 1)
    values, vectors = np.linalg.eigh(matrix)
    # The exact minimum by the secular equation: μ with ‖(M + μI)⁻¹ g/2‖ = radius.
    turned = vectors.T @ gradient
    low, high = max(0.0, -values[0]), max(0.0, -values[0]) + np.linalg.norm(gradient) / radius + 1.0
    for _ in range(200):
        mu = 0.5 * (low + high)
        with np.errstate(divide="ignore", invalid="ignore"):
            length = np.linalg.norm(np.where(turned == 0, 0.0, turned / (2 * (values + mu))))
        low, high = (mu, high) if length > radius else (low, mu)
    with np.errstate(divide="ignore", invalid="ignore"):
        bowl = np.where(turned == 0, 0.0, turned**2 / (4 * (values + high))).sum()
    minimum = -bowl - high * radius**2
    none = np.zeros(d)
    assert not stays_positive(-minimum * (1 - 1e-9) - 1e-12, gradient, np.tril(matrix), none, 0.0, radius)
    assert stays_positive(-minimum * 1.1 + 1e-6, gradient, np.asfortranarray(np.tril(matrix)), none, 0.0, radius)


@given(seed=st.integers(0, 2**32 - 1))
@settings(max_examples=100, deadline=None)
def test_another_order_never_costs_and_the_orders_exhaust_the_norm(seed):
    rng = np.random.default_rng(seed)
    form = random_sum(rng, int(rng.integers(1, 5)))
    V = form.centers - random_points(rng, form.centers.shape[1], 1)
    a = form.weights * np.exp(-form.gamma * (V**2).sum(1))
    gram = 2 * form.gamma * (V @ V.T)
    norms, errors = block_norms(a, gram, 12)
    u = 10.0 ** rng.uniform(-3, 0.5)
    scale = np.abs(form.weights).sum() * np.exp(u)
    none = np.zeros(13)
    # From order 2 on, where the sum above the second order is the same thing.
    taken = [remainder(form.squared_norm, norms[: n + 1], none[: n + 1], u) for n in range(2, 13)]
    assert (np.diff(taken) <= 1e-7 * scale).all()
    assert norms.sum() <= form.squared_norm * (1 + 1e-9) + 1e-12 * errors.sum()
    assert (norms >= -1e-12 * errors).all()
    if form.gamma * (V**2).sum(1).max() < 1:
        np.testing.assert_allclose(
            norms.sum(), form.squared_norm, rtol=1e-5, atol=1e-10 * np.abs(form.weights).sum() ** 2
        )
