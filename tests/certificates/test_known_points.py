"""`attacks.bracket`: per point certified, broken or undecided, and never two of them."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.tree import DecisionTreeClassifier

from attacks import APGD, PGD, Auto, Constraints, bracket
from models import AdvLinearSVM, AdvSVM, DoublyStochastic, KernelSVC


@pytest.fixture(scope="module")
def sevens():
    X, y = load_digits(return_X_y=True)
    keep = (y == 1) | (y == 7)
    return (X[keep] / 16).astype(np.float32), y[keep]


MODELS = {
    "exact": AdvSVM(expansion="support_vectors", C=8.0, batch_size=50),
    "svc": KernelSVC(),
    "linear": AdvLinearSVM(),
    "pipeline": make_pipeline(StandardScaler(), SVC()),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.06), ("l2", 0.4), ("linf", 0.0)])
def test_every_point_gets_one_answer_and_every_example_is_one(sevens, name, norm, epsilon):
    X, y = sevens
    model = MODELS[name].fit(X[:250], y[:250])
    rows, labels = X[250:330], y[250:330]
    known = bracket(model, rows, labels, epsilon, norm)
    assert (known.certified.astype(int) + known.broken + known.undecided == 1).all()
    assert (model.predict(known.examples) != labels)[known.broken].all()
    moves = known.examples.astype(np.float64) - rows
    size = np.linalg.norm(moves, axis=1) if norm == "l2" else np.abs(moves).max(1)
    assert (size <= epsilon * (1 + 1e-9)).all()
    assert not moves[~known.broken].any()
    assert known.lower <= known.upper
    hard = (
        PGD(epsilon=epsilon, norm=norm, steps=100, restarts=3, random_state=1)(model, rows, labels) if epsilon else None
    )
    if hard is not None:
        assert not (hard.success & known.certified).any()


def test_the_linear_machine_is_known_exactly(sevens):
    X, y = sevens
    model = AdvLinearSVM().fit(X[:250], y[:250])
    for norm, epsilon in (("linf", 0.05), ("l2", 0.5)):
        known = bracket(model, X, y, epsilon, norm)
        assert known.undecided.mean() < 0.01
        assert known.broken.any()


@pytest.mark.parametrize("kind", [SVC(C=4.0, gamma=3.0), LogisticRegression(C=50.0)])
@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_many_classes_are_certified_or_broken_and_brute_force_agrees(kind, norm):
    rng = np.random.default_rng(0)
    X = rng.uniform(0, 1, (300, 2))
    y = np.array(["a", "b", "c", "d"])[(2 * X[:, 0]).astype(int) + 2 * (X[:, 1] > 0.5)]
    model, rows, labels, epsilon = kind.fit(X[:200], y[:200]), X[200:], y[200:], 0.1
    known = bracket(model, rows, labels, epsilon, norm)
    steps = epsilon * np.stack(np.meshgrid(*[np.linspace(-1, 1, 41)] * 2), -1).reshape(-1, 2)
    if norm == "l2":
        steps = steps[np.linalg.norm(steps, axis=1) <= epsilon]
    around = np.clip(rows[:, None] + steps, 0, 1)
    wrong = (model.predict(around.reshape(-1, 2)).reshape(len(rows), -1) != labels[:, None]).any(1)
    assert not (known.certified & wrong).any()
    assert (known.broken >= wrong).mean() > 0.95
    assert known.undecided.mean() < 0.1
    assert (model.predict(known.examples) != labels)[known.broken].all()
    assert known.broken.any()
    assert known.certified.any()


@pytest.mark.parametrize("name", ["exact", "linear", "pipeline"])
def test_constraints_and_boxes_per_feature_narrow_both_sides(sevens, name):
    X, y = sevens
    model = MODELS[name].fit(X[:250], y[:250])
    rows, labels = X[250:], y[250:]
    d = X.shape[1]
    mask = np.arange(d) % 2 == 0
    epsilon = np.linspace(0.01, 0.1, d)
    limits = Constraints(mask=mask, direction=np.where(np.arange(d) % 3 == 0, 1, 0), epsilon=epsilon)
    box = np.zeros(d), np.linspace(1.0, 1.2, d)
    free = bracket(model, rows, labels, 0.1, "linf", box)
    bound = bracket(model, rows, labels, 0.1, "linf", box, constraints=limits)
    moves = bound.examples.astype(np.float64) - rows
    assert not moves[:, mask].any()
    assert (moves[:, np.arange(d) % 3 == 0] >= 0).all()
    assert (np.abs(moves) <= epsilon).all()
    assert (model.predict(bound.examples) != labels)[bound.broken].all()
    assert bound.certified.sum() > free.certified.sum()
    # What the constrained attacker breaks the free one may not have, but nobody may have proved it.
    assert not (bound.broken & free.certified).any()
    hard = PGD(epsilon=0.1, steps=100, restarts=2, random_state=1, box=box, constraints=limits)(model, rows, labels)
    assert not (hard.success & bound.certified).any()


def test_whole_numbers_are_covered_and_a_given_attack_must_keep_them(sevens):
    X, y = sevens
    X = np.round(X * 16)
    model = AdvLinearSVM().fit(X[:250], y[:250])
    whole = Constraints(integer=np.ones(X.shape[1], dtype=bool))
    known = bracket(model, X[250:], y[250:], 1.0, "linf", (0.0, 16.0), constraints=whole)
    assert (known.examples == np.round(known.examples)).all()
    careless = PGD(epsilon=1.0, box=(0.0, 16.0), step_size=0.3, steps=1)
    loose = bracket(model, X[250:], y[250:], 1.0, "linf", (0.0, 16.0), attack=careless, constraints=whole)
    assert not (loose.broken & (model.predict(X[250:]) == y[250:])).any()


def test_what_has_no_certificate_is_refused(sevens):
    X, y = sevens
    with pytest.raises(ValueError, match="DecisionTree"):
        bracket(DecisionTreeClassifier().fit(X, y), X, y, 0.1)


def test_no_time_leaves_points_undecided_and_not_broken(sevens):
    X, y = sevens
    model = MODELS["exact"].fit(X[:250], y[:250])
    quick, slow = (bracket(model, X[250:], y[250:], 0.08, seconds=seconds) for seconds in (0.0, None))
    assert not (quick.certified & ~slow.certified).any()
    assert quick.undecided.sum() > slow.undecided.sum()


HARD = {
    "exact": AdvSVM(expansion="support_vectors", C=8.0, batch_size=50),
    "features": AdvSVM(
        schedule="diminishing", expansion=DoublyStochastic(n_features=128), C=0.125, step=0.5, batch_size=20
    ),
    "svc": SVC(),
}


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", [*HARD, "ten classes"])
@pytest.mark.parametrize(("norm", "epsilon"), [("linf", 0.0625), ("l2", 0.5)])
def test_ten_times_the_steps_and_many_restarts_break_nothing_that_is_certified(sevens, name, norm, epsilon):
    X, y = sevens
    if name == "ten classes":
        X, y = load_digits(return_X_y=True)
        X = X[:1000] / 16
    model, rows, labels = HARD.get(name, SVC(C=10.0)).fit(X[:250], y[:250]), X[250:290], y[250:290]
    known = bracket(model, rows, labels, epsilon, norm)
    assert known.certified.any()
    certified = np.flatnonzero(known.certified)
    dtype = "float64" if X.dtype == np.float64 else "float32"
    threat = {"epsilon": epsilon, "norm": norm, "random_state": 7, "dtype": dtype}
    attacks = [
        PGD(steps=400, step_size=epsilon / 40, restarts=3, **threat),
        APGD(steps=500, restarts=3, **threat),
        Auto(**threat),
    ]
    for attack in attacks:
        assert not attack(model, rows[certified], labels[certified]).success.any()
