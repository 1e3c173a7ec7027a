"""What the attacker cannot do: every attack honours it exactly, and says in one line when it makes no sense."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.svm import SVC

from attacks import (
    APGD,
    FGSM,
    PGD,
    ZOO,
    Auto,
    CarliniWagner,
    Constraints,
    HopSkipJump,
    MinNorm,
    NoAttack,
    Square,
    Suite,
)

BOX = ([-3.0, -3.0, 0.0, 0.0, 0.0, 0.0, 0.0], [3.0, 3.0, 10.0, 10.0, 1.0, 1.0, 1.0])
GROUP = [4, 5, 6]
ATTACKS = {
    "none": NoAttack(),
    "fgsm": FGSM(epsilon=1.5),
    "pgd": PGD(epsilon=1.5, steps=10, restarts=2),
    "pgd_l2": PGD(epsilon=2.5, steps=10, norm="l2"),
    "apgd": APGD(epsilon=1.5, steps=10),
    "square": Square(epsilon=2.5, queries=50, norm="l2"),
    "auto": Auto(epsilon=1.5),
    "auto_l2": Auto(epsilon=2.5, norm="l2"),
    "cw": CarliniWagner(steps=20),
    "hop_skip_jump": HopSkipJump(max_queries=400),
    "zoo": ZOO(max_queries=2_000, steps=20),
    "min_norm": MinNorm(gradients=40),
    "min_norm_linf": MinNorm(norm="linf", gradients=40),
    "suite": Suite([PGD(epsilon=1.5), CarliniWagner(steps=10)]),
}
CONSTRAINTS = {
    "box": Constraints(),
    "mask": Constraints(mask=[0, 3]),
    "direction": Constraints(direction=[1, -1, 1, 0, 0, 0, 0]),
    "epsilon": Constraints(epsilon=[0.5, 0.1, 2.0, 3.0, 1.0, 1.0, 1.0]),
    "integer": Constraints(integer=[2, 3]),
    "groups": Constraints(groups=[GROUP]),
    "all": Constraints(mask=[0], direction=[0, 1, -1, 0, 0, 0, 0], integer=[2, 3], groups=[GROUP]),
}


@pytest.fixture(scope="module")
def table():
    """Two numbers, two whole numbers and a category; the model, X and y."""
    rng = np.random.default_rng(0)
    n = 200
    X = np.zeros((n, 7), dtype=np.float32)
    X[:, :2] = np.clip(rng.normal(size=(n, 2)), -3, 3)
    X[:, 2:4] = rng.integers(0, 11, size=(n, 2))
    kind = rng.integers(0, 3, size=n)
    X[np.arange(n), 4 + kind] = 1
    y = np.where(X[:, 0] + 0.4 * (X[:, 2] - 5) + (kind == 1) + 0.5 * np.sin(X[:, 3]) > 0, 1, -1)
    model = SVC(C=10.0, gamma=0.1).fit(X, y)
    return model, X[:30], y[:30]


def assert_honoured(constraints, examples, X):
    delta = examples.astype(np.float64) - X
    assert (examples >= np.float32(BOX[0])).all()
    assert (examples <= np.float32(BOX[1])).all()
    if constraints.mask is not None:
        assert (delta[:, constraints.mask] == 0).all()
    if constraints.direction is not None:
        assert (delta * np.asarray(constraints.direction) >= 0).all()
    if constraints.epsilon is not None:
        assert (np.abs(delta) <= np.asarray(constraints.epsilon)).all()
    if constraints.integer is not None:
        whole = examples[:, constraints.integer]
        np.testing.assert_array_equal(whole, np.round(whole))
    for group in constraints.groups:
        assert np.isin(examples[:, group], (0, 1)).all()
        assert (examples[:, group].sum(axis=1) == 1).all()


@pytest.mark.parametrize("name", CONSTRAINTS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_honours_every_constraint(attack, name, table):
    model, X, y = table
    constraints = CONSTRAINTS[name]
    method = ATTACKS[attack]
    if isinstance(method, Suite):
        method = replace(method, attacks=[replace(one, box=BOX) for one in method.attacks], constraints=constraints)
    else:
        method = replace(method, box=BOX, constraints=constraints)
    result = method(model, X, y)
    assert_honoured(constraints, result.examples, X)
    np.testing.assert_array_equal(result.success, model.predict(result.examples) != y)
    assert result.distortion(result.threat.norm).max() <= result.threat.epsilon
    if method.threat().bounded and attack != "none" and name != "epsilon":
        assert result.found.any(), "a constrained attacker still finds something here"


def test_whole_numbers_and_categories_are_searched_not_just_rounded(table):
    """Every point with one whole number or category changed is tried: no such single change is left that would do."""
    model, X, y = table
    constraints = Constraints(mask=[0, 1], integer=[2, 3], groups=[GROUP])
    result = Auto(epsilon=1.5, norm="l2", box=BOX, constraints=constraints)(model, X, y)
    for x, label, broken in zip(X, y, result.success):
        others = list(constraints.neighbours(x, x, np.float32(BOX[0]), np.float32(BOX[1])))
        others = [other for other in others if np.linalg.norm(other - x) <= 1.5]
        assert broken or (model.predict(np.stack(others)) == label).all()


@pytest.mark.parametrize("attack", ["cw", "hop_skip_jump", "zoo", "min_norm", "min_norm_linf"])
@pytest.mark.parametrize("feature", [0, 2])
def test_where_one_feature_is_the_attackers_the_nearest_point_on_its_line_is_found(attack, feature, table):
    """Other rows, cut to what may change, are mostly of x's own class: no row is given up for that."""
    model, X, y = table
    held = Constraints(mask=[j for j in range(7) if j != feature])
    values = np.linspace(BOX[0][feature], BOX[1][feature], 2001)
    nearest = np.full(len(X), np.inf)
    for i, x in enumerate(X):
        line = np.tile(x, (len(values), 1))
        line[:, feature] = values
        broken = model.predict(line) != y[i]
        nearest[i] = np.abs(values - x[feature])[broken].min(initial=np.inf)
    result = replace(ATTACKS[attack], box=BOX, constraints=held)(model, X, y)
    assert result.success.tolist() == np.isfinite(nearest).tolist()
    found = result.found
    assert np.median(result.distortion_l2[found] / nearest[found]) < 1.01


@settings(max_examples=40, deadline=None)
@given(seed=st.integers(0, 10**6), epsilon=st.floats(0.3, 4.0), norm=st.sampled_from(["linf", "l2"]))
def test_snapping_stays_within_the_ball_and_the_limits(seed, epsilon, norm):
    rng = np.random.default_rng(seed)
    X = np.zeros((5, 7), dtype=np.float32)
    X[:, 2:4] = rng.integers(0, 11, size=(5, 2))
    X[np.arange(5), 4 + rng.integers(0, 3, 5)] = 1
    constraints = Constraints(integer=[2, 3], groups=[GROUP])
    low, high = constraints.limits(X, *BOX)

    def within(points):
        delta = points.astype(np.float64) - X
        return (np.linalg.norm(delta, axis=1) if norm == "l2" else np.abs(delta).max(axis=1)) <= epsilon

    points = np.clip(X + rng.normal(size=X.shape).astype(np.float32), low, high)
    sizes = np.linalg.norm(points - X, axis=1, keepdims=True)
    points = X + (points - X) * np.minimum(1, 0.999 * epsilon / np.maximum(sizes, 1e-9))
    snapped = constraints.snap(points.astype(np.float32), X, low, high, within)
    assert within(snapped).all()
    assert_honoured(constraints, snapped, X)


@pytest.mark.parametrize(
    ("constraints", "message"),
    [
        (Constraints(mask=range(7)), "constraints.mask leaves nothing to attack"),
        (Constraints(mask=[]), "constraints.mask is empty"),
        (Constraints(mask=[True, False]), "constraints.mask must have one entry"),
        (Constraints(mask=[9]), "constraints.mask must be"),
        (Constraints(direction=[1, 0]), "constraints.direction must have one entry"),
        (Constraints(direction=[2, 0, 0, 0, 0, 0, 0]), "constraints.direction must be -1, 0"),
        (Constraints(epsilon=[0.1] * 3), "constraints.epsilon must have one entry for each of the 7 features"),
        (Constraints(epsilon=[-0.1] * 7), "constraints.epsilon must be >= 0"),
        (Constraints(integer=[0]), "constraints.integer: X itself is not whole in feature 0"),
        (Constraints(groups=[[2, 3]]), "constraints.groups: X itself is not one-hot in group 0"),
        (Constraints(groups=[[4, 5], [5, 6]]), "constraints.groups: "),
        (Constraints(groups=[[4, 99]]), "constraints.groups: group 0"),
    ],
)
def test_constraints_that_make_no_sense_are_refused_in_one_line(constraints, message, table):
    with pytest.raises(ValueError, match=message) as error:
        PGD(box=BOX, constraints=constraints)(*table)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("box", "message"),
    [
        (([0.0] * 3, [1.0] * 3), "box must hold one limit or one per feature"),
        (([-3.0] * 7, [1.0] * 7), "X must lie in box, but feature"),
        (([1.0] * 7, [0.0] * 7), "box must be a pair"),
    ],
)
def test_boxes_that_make_no_sense_are_refused_in_one_line(box, message, table):
    with pytest.raises(ValueError, match=message) as error:
        PGD(box=box)(*table)
    assert "\n" not in str(error.value)
