"""A budget of support vectors: the cost of a row is bounded, and so is what that changes, everywhere."""

import numpy as np
import pytest
import torch

import models.expansions.support_vectors as module
from models import AdvSVM, certify
from models.expansions import KernelSpace, SupportVectors
from models.expansions.projection import project
from models.kernels import RBF
from models.persistence import load, save

GAMMA, BUDGET = 0.5, 60


def problem(n=600, d=4, seed=0):
    X = np.random.default_rng(seed).random((n, d))
    return X, np.where(X[:, 0] + X[:, 1] ** 2 + 0.2 * np.sin(9 * X[:, 2]) > 0.9, 1, -1)


def machine(budget=BUDGET, **settings):
    own = {"C": 8.0, "step": 0.3, "batch_size": 20, "passes": 1, "kernel": RBF(gamma=GAMMA)}
    return AdvSVM(expansion=SupportVectors(budget=budget), **own | settings)


def gram(A, B):
    return np.exp(-GAMMA * ((A[:, None] - B) ** 2).sum(2))


@pytest.fixture
def projections(monkeypatch):
    """What every projection was given and found."""
    seen = []

    def spy(space, kept, gone, weights):
        found = project(space, kept, gone, weights)
        seen.append((kept, gone, weights, found))
        return found

    monkeypatch.setattr(module, "project", spy)
    return seen


def test_a_projection_is_the_nearest_function_and_its_error_the_true_distance():
    rng = np.random.default_rng(1)
    kept, gone, w = rng.random((30, 3)), rng.random((20, 3)), rng.normal(size=(20, 1))
    space = KernelSpace(RBF(), (GAMMA,), 3, torch.float64, 0)
    found = project(space, *map(torch.from_numpy, (kept, gone, w)))
    best = np.linalg.lstsq(gram(kept, kept), gram(kept, gone) @ w, rcond=1e-12)[0]

    def distance(alpha):
        both, c = np.concatenate([gone, kept]), np.concatenate([w, -alpha])
        return float(np.sqrt(max((c.T @ gram(both, both) @ c).item(), 0.0)))

    assert distance(found.gained.numpy()) <= float(found.error) <= distance(found.gained.numpy()) + 1e-5
    assert distance(found.gained.numpy()) <= distance(best) + 1e-4


@pytest.mark.parametrize(
    "settings", [{}, {"schedule": "diminishing", "step": 2.0}, {"passes": 3}, {"averaging": "tail"}]
)
def test_scores_move_by_no_more_than_the_error_that_is_reported(settings, projections):
    X, y = problem()
    model = machine(**settings).fit(X, y)
    assert len(projections) > 1
    live = model.expansion_
    # The same terms without what the projections added to them: they stand last in their iterations.
    sizes = {len(kept) + len(gone) for kept, gone, *_ in projections}
    plain = SupportVectors().restore(live.space, live.arrays())
    added = iter(projections)
    left = next(added)
    for t, coefficients in enumerate(plain.coefficients):
        if left is None:
            break
        size = len(left[0]) + len(left[1])
        expected = torch.cat([-left[2], left[3].gained])
        if len(coefficients) >= size and torch.equal(coefficients[-size:], expected):
            plain.coefficients[t], plain.members[t] = coefficients[:-size], plain.members[t][:-size]
            left = next(added, None)
    assert left is None, f"all of {sizes} were found"
    plain.tail, plain.projection_error = live.tail, 0.0
    points = torch.from_numpy(np.random.default_rng(3).random((500, 4)))
    moved = (plain.scores(points) - live.scores(points)).abs().max()
    assert 0 < float(moved) <= live.projection_error < model.norm_


def test_no_more_vectors_count_than_the_budget_while_training_goes_on(projections):
    X, y = problem(1200)
    machine(schedule="diminishing", step=2.0).fit(X, y)
    # At most the budget and the violators of one window of eight batches; half of it stays.
    assert all(len(kept) == BUDGET // 2 and len(kept) + len(gone) <= BUDGET + 160 for kept, gone, *_ in projections)


@pytest.mark.parametrize("passes", [1, 3])
def test_what_the_curve_follows_is_the_function_that_is_fitted(passes):
    X, y = problem()
    model = machine(passes=passes).fit(X[:400], y[:400], eval_set=(X[400:], y[400:]))
    assert model.curve_["test_error"][-1] == np.mean(model.predict(X[400:]) != y[400:])
    np.testing.assert_allclose(model.staged_scores(X[400:])[-1], model.decision_function(X[400:]), atol=1e-9)


def test_a_budget_that_is_never_reached_changes_nothing():
    X, y = problem()
    one, other = machine(budget=10_000).fit(X, y), machine(budget=None).fit(X, y)
    np.testing.assert_array_equal(one.decision_function(X), other.decision_function(X))
    assert one.expansion_.projection_error == 0


def test_accuracy_is_that_of_the_exact_machine():
    X, y = problem(1200)
    exact, budgeted = (machine(b, schedule="diminishing", step=2.0).fit(X[:800], y[:800]) for b in (None, 120))
    assert abs(np.mean(exact.predict(X[800:]) == y[800:]) - np.mean(budgeted.predict(X[800:]) == y[800:])) <= 0.01


def test_certificates_subtract_the_error_and_files_keep_it(tmp_path):
    X, y = problem()
    model = machine().fit(X[:500], y[:500])
    error = model.expansion_.projection_error
    save(model, tmp_path)
    again = load(tmp_path)
    assert again.expansion_.projection_error == error > 0
    rows, labels = X[500:], y[500:]
    with_error = model.certified_radius(rows, labels)
    np.testing.assert_array_equal(again.certified_radius(rows, labels), with_error)
    proved = certify(again, rows, labels, 0.02, "l2")
    again.expansion_.projection_error = 0.0
    assert (again.certified_radius(rows, labels) >= with_error).all()
    assert (again.certified_radius(rows, labels) > with_error).any()
    margins = np.abs(model.decision_function(rows))
    assert not proved[margins <= error].any(), "a score below the error proves nothing of the sum without projections"
    again.expansion_.projection_error = 1e3
    assert not certify(again, rows, labels, 0.001, "l2").any()


@pytest.mark.parametrize("budget", [0, 1, -5])
def test_a_budget_out_of_range_is_named(budget):
    with pytest.raises(ValueError, match=r"expansion\.budget"):
        SupportVectors(budget=budget)
