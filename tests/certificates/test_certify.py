"""`models.certify`: one question for every model, norm and box."""

import numpy as np
import pytest
from brute_force import inside, random_regions
from hypothesis import given, settings
from hypothesis import strategies as st

from attacks import PGD
from models import AdvLinearSVM, AdvSVM, DoublyStochastic, KernelSVC, certify
from models.certificates import certify as api
from models.certificates.contest import Contest, Quick
from models.certificates.linear import LinearForm
from models.certificates.region import lowest_linear, region

seeds = st.integers(0, 2**32 - 1)


@given(seed=seeds)
@settings(max_examples=150, deadline=None)
def test_linear_term_is_the_minimum_over_ball_and_box(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 5))
    where, _ = random_regions(rng, d, 4)
    slopes = rng.standard_normal((4, d)) * 10.0 ** rng.uniform(-3, 3)
    bounds = lowest_linear(slopes, where)
    for row in range(4):
        found = min((inside(where, row, rng, 2000) - where.X[row]) @ slopes[row])
        scale = np.abs(slopes[row]).sum() * where.radius[row]
        assert bounds[row] <= found + 1e-12 * scale
        assert bounds[row] >= found - 0.12 * scale


@given(seed=seeds)
@settings(max_examples=100, deadline=None)
def test_linear_machine_is_certified_exactly(seed):
    rng = np.random.default_rng(seed)
    d = int(rng.integers(1, 6))
    form = LinearForm(rng.standard_normal(d), float(rng.standard_normal()))
    where, norm = random_regions(rng, d, 5)
    signs = np.where(form.quick(where.X, np.ones(5)).margins > 0, 1.0, -1.0)
    lower = form.lower_bounds(where, signs)
    for row in range(5):
        worst = np.where(signs[row] * form.weights > 0, where.lower[row], where.upper[row])
        if norm == "l2":
            free = -signs[row] * form.weights / np.linalg.norm(form.weights) * where.radius[row]
            if (free < where.lower[row]).any() or (free > where.upper[row]).any():
                continue
            worst = free
        exact = signs[row] * ((where.X[row] + worst) @ form.weights + form.intercept)
        assert lower[row] <= exact
        assert lower[row] >= exact - 1e-9 * (1 + abs(exact))


@pytest.fixture(scope="module")
def two_moons():
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 6))
    return X, np.where(X[:, 0] + 0.3 * np.sin(6 * X[:, 1]) > 0.6, 3, 1)


MODELS = {
    "exact": AdvSVM(expansion="support_vectors", C=4.0, batch_size=50, passes=3, epsilon=1e-3),
    "exact float32": AdvSVM(expansion="support_vectors", C=4.0, batch_size=50, passes=3, epsilon=1e-3, dtype="float32"),
    "laplacian": AdvSVM(expansion="support_vectors", kernel="laplacian", C=4.0, batch_size=50, passes=3, epsilon=1e-3),
    "features": AdvSVM(expansion=DoublyStochastic(n_features=128), C=4.0, batch_size=50, passes=3, epsilon=1e-3),
    "svc": KernelSVC(),
    "linear": AdvLinearSVM(),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_answers_and_larger_threats_certify_less(two_moons, name):
    X, y = two_moons
    model = MODELS[name].fit(X, y)
    rows, labels = X[:80], y[:80]
    assert not certify(model, rows, np.where(labels == 3, 1, 3), 0.0)[model.predict(rows) == labels].any()
    for norm in ("l2", "linf"):
        before = np.ones(80, dtype=bool)
        for epsilon in (0.0, 0.003, 0.01, 0.05, 0.3):
            boxed, free = (model.certify(rows, labels, epsilon, norm, box) for box in ((0, 1), None))
            assert not (free & ~boxed).any()
            assert not (boxed & ~before).any()
            before = boxed
        assert model.certify(rows, labels, 1e-4, norm).any()


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("norm", ["l2", "linf"])
@pytest.mark.parametrize("box", [None, (0.0, 1.0)])
def test_certified_radius_is_a_radius_that_is_certified(two_moons, name, norm, box):
    X, y = two_moons
    model = MODELS[name].fit(X, y)
    rows, labels = X[:40], y[:40]
    radius = model.certified_radius(rows, labels, norm=norm, box=box)
    wrong = model.predict(rows) != labels
    assert not radius[wrong].any()
    for row in np.flatnonzero(np.isfinite(radius) & (radius > 0)):
        assert model.certify(rows[row : row + 1], labels[row : row + 1], radius[row] * 0.999, norm, box)[0]


@pytest.mark.parametrize("name", ["exact", "features", "svc"])
@pytest.mark.parametrize("norm", ["l2", "linf"])
def test_dearer_proofs_stretch_the_radius_and_no_attack_gets_inside(two_moons, name, norm):
    X, y = two_moons
    model = MODELS[name].fit(X, y)
    rows, labels = X[:5], y[:5]
    cheap, dear = (model.certified_radius(rows, labels, norm=norm, box=(0, 1), seconds=s) for s in (0.0, None))
    assert (dear >= cheap).all()
    assert (dear > 1.1 * cheap)[cheap > 0].any()
    for row in np.flatnonzero(np.isfinite(dear) & (dear > 0)):
        attack = PGD(epsilon=float(dear[row]), norm=norm, steps=50, restarts=3, dtype="float64")
        assert not attack(model, rows[row : row + 1], labels[row : row + 1]).success[0]
        assert model.certify(rows[row : row + 1], labels[row : row + 1], float(dear[row]), norm)[0]


def test_rows_may_have_boxes_of_their_own(two_moons):
    X, y = two_moons
    model = MODELS["exact"].fit(X, y)
    low, high = np.maximum(X - 0.01 * (np.arange(6) % 2), 0), np.minimum(X + 0.01, 1)
    together = certify(model, X, y, 0.1, "linf", (low, high))
    alone = [certify(model, X[i : i + 1], y[i : i + 1], 0.1, "linf", (low[i], high[i]))[0] for i in range(40)]
    assert (together[:40] == alone).all()
    assert together.sum() > certify(model, X, y, 0.1, "linf", (0, 1)).sum()


def test_linf_is_never_below_the_cover(two_moons):
    X, y = two_moons
    for model in MODELS.values():
        model.fit(X, y)
        for epsilon in (0.003, 0.01, 0.03):
            cover = model.certified_radius(X, y) >= epsilon * np.sqrt(X.shape[1]) * (1 + 1e-9)
            assert not (cover & ~model.certify(X, y, epsilon, "linf", None)).any()


def test_points_outside_the_box_are_named():
    with pytest.raises(ValueError, match="box"):
        region(np.array([[2.0]]), 0.1, "linf", (0, 1))
    with pytest.raises(ValueError, match="norm"):
        region(np.array([[0.5]]), 0.1, "l1")


def test_a_model_without_certificate_is_refused_in_one_line():
    from sklearn.tree import DecisionTreeClassifier

    model = DecisionTreeClassifier().fit(np.eye(3), [0, 1, 1])
    with pytest.raises(ValueError, match="DecisionTreeClassifier"):
        certify(model, np.eye(3), [0, 1, 1], 0.1)


def test_progress_is_told_and_no_time_means_the_cheapest_bound(two_moons):
    X, y = two_moons
    model = MODELS["svc"].fit(X, y)
    told = []
    certified = certify(model, X, y, 0.01, "linf", seconds=0, observer=lambda *a, **k: told.append((a, k)))
    assert told[-1][0] == ("certify", len(X), len(X))
    assert told[-1][1]["certified"] == certified.mean()


class Clocked:
    """A form whose cheap proof proves nothing and whose dear one takes a second of a clock."""

    def __init__(self, clock, values, provable=True):
        self.clock, self.values, self.provable = clock, values, provable

    def quick(self, X, signs):
        return Quick(signs * self.values[X[:, 0].astype(int)], lambda where: np.zeros(len(where), dtype=bool))

    def prove(self, where, signs):
        self.clock.append((int(where.X[0, 0]), self))
        return np.full(len(where), self.provable)

    @property
    def stages(self):
        return ((self.prove, 1),)


def question_on_a_clock(monkeypatch, hopeless=()):
    """Four classes, five rows of the first, each with its own margins; row 0 has the smallest."""
    clock = []
    monkeypatch.setattr(api.time, "perf_counter", lambda: float(len(clock)))
    forms = [Clocked(clock, np.arange(1.0, 6.0) * scale, scale not in hopeless) for scale in (3, 1, 2)]
    contest = Contest(np.arange(4), forms, [[(0, 1.0), (1, 1.0), (2, 1.0)], [], [], []])
    numbers, right = np.zeros(5, dtype=int), np.ones(5, dtype=bool)
    return api.Question(contest, np.arange(5.0)[:, None], numbers, right, "linf", None), clock


def test_short_of_time_whole_rows_are_certified_the_likeliest_first(monkeypatch):
    asked, clock = question_on_a_clock(monkeypatch)
    proved = api.certified(asked, 0.1, seconds=6.5)
    assert proved.tolist() == [False, False, False, True, True]
    assert [form.values[0] for _, form in clock[:3]] == [1.0, 2.0, 3.0]


def test_no_time_goes_into_rows_whose_nearest_rival_stays_open(monkeypatch):
    asked, clock = question_on_a_clock(monkeypatch, hopeless=(1,))
    assert not api.certified(asked, 0.1, seconds=None).any()
    assert len(clock) == 5
