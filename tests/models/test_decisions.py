"""Fitted scikit-learn models are read once, for attacks and certificates alike; wrappers are read through."""

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.multiclass import OneVsRestClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, StandardScaler
from sklearn.svm import SVC

from attacks import PGD, Constraints, Threat, bracket
from models import certify
from models.certificates.contest import Contest
from models.certificates.forms import contest_of
from models.decisions import Decision, Linear, Sign, Unreadable, decision_of, read
from models.rounding import NoCertificate


def clouds(n=80, d=4, seed=0, classes=2):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % classes
    return rng.uniform(0, 1, (n, d)) * 0.6 + 0.2 * y[:, None] * (np.arange(d) < 2), y


def svc():
    return SVC(C=2.0, gamma=1.5)


WRAPPERS = {
    "pipeline": lambda: make_pipeline("passthrough", svc()),
    "search": lambda: GridSearchCV(svc(), {"C": [2.0]}, cv=2),
    "one vs rest": lambda: OneVsRestClassifier(svc()),
    "search over a pipeline": lambda: GridSearchCV(make_pipeline("passthrough", svc()), {"svc__C": [2.0]}, cv=2),
}


@pytest.mark.parametrize("name", WRAPPERS)
def test_a_wrapper_is_known_as_well_as_what_it_wraps(name):
    X, y = clouds()
    plain, wrapped = svc().fit(X, y), WRAPPERS[name]().fit(X, y)
    for epsilon in (0.02, 0.08):
        threat = Threat("linf", epsilon, (0.0, 1.0))
        one, other = bracket(plain, X, y, threat), bracket(wrapped, X, y, threat)
        np.testing.assert_array_equal(one.certified, other.certified)
        np.testing.assert_array_equal(one.broken, other.broken)


CALIBRATED = {
    "svc": svc,
    "scaled svc": lambda: make_pipeline(StandardScaler(), SVC()),
    "logistic": lambda: LogisticRegression(),
    "linear svc kernel": lambda: SVC(kernel="linear"),
}


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", CALIBRATED)
def test_a_calibrated_classifier_is_read_through(name, dtype):
    X, y = clouds()
    X = X.astype(dtype)
    model = CalibratedClassifierCV(CALIBRATED[name](), ensemble=False, cv=3).fit(X, y)
    decision = decision_of(model)
    np.testing.assert_array_equal(model.classes_[(decision.machine.scores(X)[:, 0] > 0).astype(int)], model.predict(X))
    found = bracket(model, X, y, 0.05, "linf", box=(0.0, 1.0))
    assert found.certified.any()
    assert (model.predict(X[found.certified]) == y[found.certified]).all()
    assert (model.predict(found.examples[found.broken]) != y[found.broken]).all()
    assert found.undecided.sum() <= 2
    # Certificates next to the boundary hold for the calibrated labels, ties at one half included.
    low, high = X[model.predict(X) == 0][:20].astype(float), X[model.predict(X) == 1][:20].astype(float)
    low, high = low[: min(len(low), len(high))], high[: min(len(low), len(high))]
    for _ in range(60):
        middle = (low + high) / 2
        second = (model.predict(middle.astype(dtype)) == 1)[:, None]
        high, low = np.where(second, middle, high), np.where(second, low, middle)
    low, high = low.astype(dtype), high.astype(dtype)
    apart = np.abs(low.astype(float) - high.astype(float)).max()
    for rows in (low, high):
        labels = model.predict(rows)
        assert not certify(model, rows, labels, 2 * apart + 1e-15, "linf", None)[
            model.predict(low) != model.predict(high)
        ].any()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: RandomForestClassifier(5), "RandomForestClassifier"),
        (lambda: make_pipeline(FunctionTransformer(np.tanh), SVC()), "functiontransformer"),
        (lambda: make_pipeline(MinMaxScaler(clip=True), SVC()), "minmaxscaler"),
        (lambda: SVC(kernel=lambda A, B: A @ B.T), "callable"),
        (lambda: CalibratedClassifierCV(SVC(), method="isotonic", ensemble=False), "CalibratedClassifierCV"),
        (lambda: CalibratedClassifierCV(SVC(), ensemble=True), "ensemble=False"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line_that_names_it(make, named):
    X, y = clouds()
    model = make().fit(X, y)
    with pytest.raises(Unreadable, match=named):
        decision_of(model)
    with pytest.raises(NoCertificate, match=named) as told:
        certify(model, X, y, 0.1)
    assert "\n" not in str(told.value)


def test_a_new_kind_of_model_is_one_function():
    class Mean:
        """Somebody's own classifier: the sign of the mean less one half."""

        def fit(self, X, y):
            self.classes_, self.coef, self.fitted_ = np.unique(y), np.full(X.shape[1], 1 / X.shape[1]), True
            return self

        def predict(self, X):
            return self.classes_[(X @ self.coef - 0.5 > 0).astype(int)]

    X, y = clouds()
    model = Mean().fit(X, y)
    with pytest.raises(NoCertificate):
        certify(model, X, y, 0.01)

    @read.register
    def _(model: Mean) -> Decision:
        return Decision(model.classes_, Linear(model.coef[None], np.array([-0.5])), Sign())

    assert isinstance(contest_of(model), Contest)
    found = bracket(model, X, model.predict(X), 0.05, "linf")
    margin = np.abs(X @ model.coef - 0.5)
    assert found.certified[margin > 0.051].all()
    assert PGD(epsilon=0.2)(model, X, model.predict(X)).success.any()


def test_one_threat_says_it_all():
    X, y = clouds()
    model = svc().fit(X, y)
    fixed = Constraints(mutable=[0, 1])
    threat = Threat("linf", 0.1, (0.0, 1.0), constraints=fixed)
    np.testing.assert_array_equal(
        certify(model, X, y, threat), certify(model, X, y, 0.1, "linf", fixed.region(X, (0.0, 1.0)))
    )
    by_threat, by_hand = bracket(model, X, y, threat), bracket(model, X, y, 0.1, "linf", constraints=fixed)
    np.testing.assert_array_equal(by_threat.certified, by_hand.certified)
    np.testing.assert_array_equal(by_threat.examples, by_hand.examples)
    assert (by_threat.examples[:, 2:] == X[:, 2:]).all()
    attack = PGD.of(threat, steps=20)
    assert attack.threat() == threat
    assert (attack(model, X, y).examples[:, 2:] == X[:, 2:].astype(np.float32)).all()


def test_constraints_by_either_name_are_the_same():
    X, _ = clouds()
    for one, other in (
        (Constraints(mask=[2, 3]), Constraints(mutable=[0, 1])),
        (Constraints(direction=[1, 0, -1, 0]), Constraints(monotone=[1, 0, -1, 0])),
    ):
        for mine, yours in zip(one.region(X, (0.0, 1.0)), other.region(X, (0.0, 1.0))):
            np.testing.assert_array_equal(mine, yours)
    with pytest.raises(ValueError, match=r"constraints\.mask and constraints\.mutable"):
        Constraints(mask=[0], mutable=[1])
    with pytest.raises(ValueError, match=r"constraints\.monotone"):
        Constraints(monotone=[2, 0, 0, 0]).region(X, None)


def test_without_a_box_an_attack_may_go_anywhere_in_its_ball():
    X, y = clouds()
    model = svc().fit(X, y)
    free, wide = PGD(epsilon=0.3, box=None)(model, X, y), PGD(epsilon=0.3, box=(-5.0, 5.0))(model, X, y)
    np.testing.assert_array_equal(free.examples, wide.examples)
    assert free.examples.min() < 0
    assert bracket(model, X, y, 0.3, "linf", box=None).broken.sum() >= free.success.sum()


def test_constraints_are_compared_by_what_they_say():
    one, other = (
        Constraints(mask=np.array([True, False]), epsilon=np.array([0.1, 0.2])),
        Constraints(mask=[True, False], epsilon=[0.1, 0.2]),
    )
    assert one == other
    assert hash(one) == hash(other)
    assert one != Constraints(mask=[False, True], epsilon=[0.1, 0.2])
    assert Threat("l2", 1.0, constraints=one) == Threat("l2", 1.0, constraints=other)
    assert Threat("l2", 1.0, constraints=one) != Threat("l2", 1.0)
