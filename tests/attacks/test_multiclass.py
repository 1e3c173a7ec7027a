"""More than two classes: one margin per class whose sign is the prediction, and every attack on it."""

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, LinearSVC, NuSVC

from attacks import FGSM, PGD, ZOO, Auto, CarliniWagner, HopSkipJump, MinNorm, Suite, Transfer, as_target
from oracles_attacks import finite_differences

MAKERS = {
    "svc_rbf": lambda: SVC(C=4.0, gamma=0.1),
    "svc_poly": lambda: SVC(kernel="poly", degree=3, coef0=1.0),
    "svc_linear": lambda: SVC(kernel="linear"),
    "nu_svc": lambda: NuSVC(nu=0.1, gamma=0.1),
    "linear_svc": lambda: LinearSVC(C=0.1, random_state=0),
    "logistic": lambda: LogisticRegression(max_iter=300),
    "one_vs_rest": lambda: OneVsRestClassifier(SVC(C=4.0, gamma=0.1)),
    "scaled": lambda: make_pipeline(StandardScaler(), SVC(C=4.0)),
}
ATTACKS = {
    "fgsm": FGSM(epsilon=0.1),
    "pgd_l2": PGD(epsilon=0.8, norm="l2"),
    "auto": Auto(epsilon=0.1),
    "cw": CarliniWagner(steps=20),
    "min_norm": MinNorm(gradients=40),
    "zoo": ZOO(max_queries=3_000, steps=10),
    "suite": Suite([PGD(epsilon=0.1), MinNorm(gradients=20)]),
}


@pytest.fixture(scope="module")
def digits():
    """Five digits (labels are strings, so that numbers cannot be taken for codes): X, y, test X, test y."""
    data = load_digits(n_class=5)
    X, y = (data.data / 16).astype(np.float32), np.array(["zero", "one", "two", "three", "four"])[data.target]
    return X[200:600], y[200:600], X[:24], y[:24]


@pytest.fixture(scope="module")
def fitted(digits):
    made = {}

    def get(name):
        if name not in made:
            made[name] = MAKERS[name]().fit(*digits[:2])
        return made[name]

    return get


@pytest.mark.parametrize("name", MAKERS)
def test_the_sign_of_the_margin_is_the_prediction(name, fitted, digits):
    model = fitted(name)
    rng = np.random.default_rng(0)
    between = np.concatenate([digits[2], rng.uniform(size=(400, 64)), 0.5 * (digits[0] + digits[0][::-1])])
    predicted = model.predict(between)
    assert len(np.unique(predicted)) == 5
    for code, label in enumerate(model.classes_):
        margins = as_target(model).against(code).scores(between)
        np.testing.assert_array_equal(margins > 0, predicted == label)


@pytest.mark.parametrize("name", MAKERS)
def test_gradients_of_the_margins_are_their_slopes(name, fitted, digits):
    target = as_target(fitted(name)).against(2)
    X = digits[0][:6].astype(np.float64)
    scores, gradients = target.scores_and_gradients(X)
    np.testing.assert_allclose(scores, target.scores(X))
    np.testing.assert_allclose(gradients, finite_differences(target.scores, X, h=1e-6), atol=1e-4)


@pytest.mark.parametrize("name", MAKERS)
@pytest.mark.parametrize("attack", ATTACKS)
def test_every_attack_keeps_its_promises_on_many_classes(attack, name, fitted, digits):
    model, X, y, method = fitted(name), *digits[2:], ATTACKS[attack]
    result = method(model, X, y)
    np.testing.assert_array_equal(result.success, model.predict(result.examples) != y)
    np.testing.assert_array_equal(result.already_misclassified, model.predict(X) != y)
    assert result.distortion(result.threat.norm).max() <= result.threat.epsilon
    assert result.success.all() or result.threat.bounded
    np.testing.assert_array_equal(result.examples[result.already_misclassified], X[result.already_misclassified])


@pytest.mark.parametrize("name", MAKERS)
def test_a_targeted_attack_reaches_its_target(name, fitted, digits):
    model, X, y = fitted(name), *digits[2:]
    targets = np.where(y == "zero", "three", "zero")
    result, free = (MinNorm(gradients=60)(model, X, y, reference=digits[0], **k) for k in ({"targets": targets}, {}))
    np.testing.assert_array_equal(result.success, model.predict(result.examples) == targets)
    assert result.attack_success_rate == 1.0
    assert np.median(free.distortion_l2) <= np.median(result.distortion_l2)


@pytest.mark.parametrize(
    ("name", "norm", "epsilons"), [("svc_rbf", "linf", (0.15, 0.08)), ("one_vs_rest", "l2", (0.8, 0.4))]
)
def test_auto_is_not_weaker_than_steps_towards_every_class_in_turn(name, norm, epsilons, fitted, digits):
    """A margin of votes has a valley for every rival; steps from the clean point find the nearest alone."""
    model, X, y = fitted(name), digits[2][:6], digits[3][:6]
    results = Auto(norm=norm)(model, X, y, epsilons=epsilons)
    for epsilon, result in zip(epsilons, results):
        np.testing.assert_array_equal(result.success, model.predict(result.examples) != y)
        assert result.distortion(norm).max() <= epsilon
        assert sum(result.history["broken_by"].values()) == result.found.sum()
        towards = np.zeros(len(y), dtype=bool)
        for label in model.classes_:
            aimed = PGD(epsilon=epsilon, norm=norm, steps=20)(model, X, y, targets=np.full(len(y), label))
            towards |= aimed.success & (y != label)
        assert (result.success | ~towards).all()
    assert (results[0].success | ~results[1].success).all()
    assert (results[0].gradient_evaluations >= results[1].gradient_evaluations).all()


def test_of_two_classes_the_target_is_the_other_one(digits):
    rows = np.isin(digits[1], ["one", "two"])
    model = SVC(gamma=0.1).fit(digits[0][rows], digits[1][rows])
    X, y = digits[0][rows][:20], digits[1][rows][:20]
    targets = np.where(y == "one", "two", "one")
    np.testing.assert_array_equal(
        PGD(epsilon=0.3)(model, X, y).examples, PGD(epsilon=0.3)(model, X, y, targets=targets).examples
    )


def test_a_suite_and_of_two_classes_too_reaches_its_targets(fitted, digits):
    model, X, y = fitted("svc_rbf"), *digits[2:]
    suite = Suite([PGD(epsilon=0.3), MinNorm(gradients=30)])
    targets = np.where(y == "zero", "three", "zero")
    result = suite(model, X, y, reference=digits[0], targets=targets)
    np.testing.assert_array_equal(result.success, model.predict(result.examples) == targets)
    assert result.success.any()
    np.testing.assert_array_equal(result.success, np.any([one.success for one in result.results.values()], axis=0))
    rows = np.isin(digits[1], ["one", "two"])
    binary = SVC(gamma=0.1).fit(digits[0][rows], digits[1][rows])
    X, y = digits[0][rows][:20], digits[1][rows][:20]
    targets = np.where(y == "one", "two", "one")
    free, aimed = (suite(binary, X, y, **k) for k in ({}, {"targets": targets}))
    np.testing.assert_array_equal(free.examples, aimed.examples)
    with pytest.raises(ValueError, match="targets must be one of the model's classes"):
        PGD()(binary, X, y, targets=np.full(20, "zero"))


def test_many_classes_are_attacked_by_their_labels_alone(digits):
    X, y = digits[2:]
    forest = RandomForestClassifier(20, random_state=0).fit(*digits[:2])
    result = HopSkipJump(max_queries=600)(forest, X, y, reference=digits[0])
    np.testing.assert_array_equal(result.success, forest.predict(result.examples) != y)
    assert result.success.all()
    targets = np.where(y == "zero", "three", "zero")
    aimed = HopSkipJump(max_queries=600)(forest, X, y, reference=digits[0], targets=targets)
    np.testing.assert_array_equal(aimed.success, forest.predict(aimed.examples) == targets)
    assert aimed.success.all()
    for attack in (PGD(), ZOO()):
        with pytest.raises(ValueError, match="model RandomForestClassifier gives labels only"):
            attack(forest, X, y)


def test_many_classes_are_attacked_by_their_scores_where_these_name_the_class(digits):
    X, y = digits[2][:6], digits[3][:6]
    model = SVC(C=4.0, gamma=0.1, break_ties=True).fit(*digits[:2])
    result = ZOO(max_queries=3_000, steps=10)(model, X, y, reference=digits[0])
    np.testing.assert_array_equal(result.success, model.predict(result.examples) != y)
    assert result.success.all()
    with pytest.raises(ValueError, match="model SVC gives scores only, but PGD needs gradients"):
        PGD()(model, X, y)
    # By votes the class is not the one of the highest decision value: only the labels can be relied on.
    voting = SVC(C=4.0, kernel=lambda a, b: a @ b.T).fit(*digits[:2])
    with pytest.raises(ValueError, match="model SVC gives labels only"):
        ZOO()(voting, X, y)


def test_examples_against_one_classifier_of_many_are_judged_on_another(fitted, digits):
    X, y = digits[2:]
    victim = fitted("linear_svc")
    result = Transfer(PGD(epsilon=0.3), fitted("svc_rbf"))(victim, X, y)
    np.testing.assert_array_equal(result.success, victim.predict(result.examples) != y)
    np.testing.assert_array_equal(result.already_misclassified, victim.predict(X) != y)
    assert result.found.any()


def test_labels_nobody_knows_are_refused_in_one_line(fitted, digits):
    X, y = digits[2:]
    with pytest.raises(ValueError, match="y must be one of the model's classes"):
        PGD()(fitted("svc_rbf"), X, np.full(len(y), "nine"))
    with pytest.raises(ValueError, match="targets must be one of the model's classes"):
        PGD()(fitted("svc_rbf"), X, y, targets=np.full(len(y), "nine"))
    with pytest.raises(ValueError, match="y and targets must have shape"):
        PGD()(fitted("svc_rbf"), X, y[:3])
