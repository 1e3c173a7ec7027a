"""More than two classes around our machines: what is trained, attacked and certified is one and the same classifier."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from attacks import PGD, as_target
from models import (
    AdvLinearSVM,
    AdvSVM,
    DoublyStochastic,
    KernelSVC,
    OneVsRest,
    certify,
    grid_search,
    load,
    save,
    with_settings,
)
from models.certificates.differences import CosineDifference, difference, highest_score
from models.certificates.forms import contest_of
from models.kernels import RBF

MACHINES = {
    "exact": AdvSVM(expansion="support_vectors", C=8.0, step=0.25, epsilon=0.05, batch_size=20, passes=3),
    "features": AdvSVM(
        expansion=DoublyStochastic(n_features=128),
        C=8.0,
        step=0.25,
        epsilon=0.05,
        batch_size=20,
        passes=3,
        dtype="float32",
    ),
    "linear": AdvLinearSVM(),
}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    X, y = load_digits(n_class=4, return_X_y=True)
    return (X[:240] / 16).astype(np.float32), y[:240]


@pytest.fixture(scope="module", params=MACHINES)
def fitted(request, rows) -> OneVsRest:
    X, y = rows
    machine = MACHINES[request.param]
    if request.param == "features":
        machine = with_settings(machine, {"n_features": 128})
    return OneVsRest(machine).fit(X[:200], y[:200])


def test_the_highest_score_wins(fitted, rows):
    X, y = rows[0][200:], rows[1][200:]
    scores = np.stack([one.scores(X) for one in fitted.estimators_], axis=1)
    assert np.array_equal(fitted.decision_function(X), scores)
    assert np.array_equal(fitted.predict(X), fitted.classes_[scores.argmax(axis=1)])
    assert np.mean(fitted.predict(X) == y) > 0.75
    # A machine of its own gives the same: they know nothing of each other.
    alone = clone(fitted.base).fit(rows[0][:200], np.where(rows[1][:200] == 2, 1, -1))
    assert np.array_equal(alone.scores(X), scores[:, 2])


def test_certificates_and_attacks_meet_and_never_contradict(fitted, rows):
    X, y = rows[0][200:], rows[1][200:]
    radius = fitted.certified_radius(X, y)
    wrong = fitted.predict(X) != y
    assert (radius[wrong] == 0).all()
    assert np.median(radius[~wrong]) > 0.02
    for norm, epsilon in (("linf", 0.01), ("l2", 0.08)):
        certified = certify(fitted, X, y, epsilon, norm, (0.0, 1.0), seconds=2.0)
        result = PGD(epsilon=epsilon, norm=norm, steps=20)(fitted, X, y)
        assert np.array_equal(result.success, fitted.predict(result.examples) != y)
        assert not (certified & result.success).any()
        assert certified.any()
    far = PGD(epsilon=3.0, norm="l2", steps=20)(fitted, X, y)
    assert far.success.all()
    assert (far.distortion_l2[~wrong] >= radius[~wrong] * (1 - 1e-5)).all()


def test_gradients_of_the_margin_are_its_slopes(fitted, rows):
    X = rows[0][200:206].astype(np.float64)
    one = as_target(fitted).against(1)
    margins, gradients = one.scores_and_gradients(X)
    scores = fitted.decision_function(X)
    others = np.delete(scores, 1, axis=1).max(axis=1)
    np.testing.assert_allclose(margins, scores[:, 1] - others, atol=1e-5)
    step = 1e-3
    for j in (10, 27, 36):
        moved = X + step * np.eye(64)[j]
        np.testing.assert_allclose((one.scores(moved) - margins) / step, gradients[:, j], atol=0.05, rtol=0.05)


def test_the_difference_of_two_feature_machines_is_one_function(rows):
    X, y = rows
    machine = with_settings(MACHINES["features"], {"n_features": 64})
    model = OneVsRest(machine).fit(X[:200], y[:200])
    contest = contest_of(model)
    assert all(isinstance(form, CosineDifference) for form in contest.forms)
    points = X[200:210].astype(np.float64)
    quick = contest.forms[0].quick(points, np.ones(10))
    scores = model.decision_function(points)
    np.testing.assert_allclose(quick.margins, scores[:, 0] - scores[:, 1], atol=1e-4)
    # The bound of its curvature holds between any two points.
    form = contest.forms[0]
    _, slopes = form._at(points, np.ones(10))
    change = np.linalg.norm(slopes[:5] - slopes[5:], axis=1) / np.linalg.norm(points[:5] - points[5:], axis=1)
    assert (change <= form.curvature).all()


def test_machines_with_other_features_are_certified_by_their_signs(rows):
    X, y = rows
    forms = []
    for label, seed in ((0, 0), (1, 1), (2, 2)):
        machine = with_settings(MACHINES["features"], {"n_features": 64}).set_params(random_state=seed)
        forms.append(contest_of(machine.fit(X[:200], np.where(y[:200] == label, 1, -1))).forms[0])
    assert difference(forms[0], forms[1]) is None
    contest = highest_score(np.arange(3), forms)
    assert contest.comparisons[1] == [(0, -1.0), (1, 1.0), (2, -1.0)]
    widths = [AdvSVM(expansion="support_vectors", kernel=RBF(gamma=g)) for g in (0.1, 0.2)]
    gaussians = [contest_of(one.fit(X[:100], np.where(y[:100] == 0, 1, -1))).forms[0] for one in widths]
    assert difference(*gaussians) is None


def test_a_saved_one_scores_the_same_and_labels_keep_their_type(fitted, rows, tmp_path):
    X, y = rows
    save(fitted, tmp_path / "kept")
    again = load(tmp_path / "kept")
    assert np.array_equal(again.decision_function(X[200:]), fitted.decision_function(X[200:]))
    assert again.classes_.dtype == fitted.classes_.dtype
    assert type(again.base) is type(fitted.base)
    names = OneVsRest(AdvLinearSVM()).fit(X[:100], np.array(["a", "b", "c", "d"])[y[:100]])
    assert set(names.predict(X[200:])) <= {"a", "b", "c", "d"}


def test_a_file_cannot_name_any_other_machine(rows, tmp_path):
    model = OneVsRest(AdvLinearSVM()).fit(rows[0][:100], rows[1][:100])
    meta, arrays = model.get_state()
    with pytest.raises(ValueError, match="unknown model 'Popen'"):
        OneVsRest.from_state(meta | {"machine": "Popen"}, arrays)


def test_the_grid_is_the_binary_machines_own_averaged_over_the_classes(rows):
    X, y = rows
    machine = MACHINES["exact"]
    found = grid_search(OneVsRest(machine), X, y, C=[0.5, 8.0], step=[0.25], folds=2)
    single = [grid_search(machine, X, np.where(y == k, 1, -1), C=[0.5, 8.0], step=[0.25], folds=2) for k in range(4)]
    expected = np.mean([one.table["mean_accuracy"] for one in single], axis=0)
    np.testing.assert_allclose(found.table["mean_accuracy"], expected)
    assert "one class against the rest" in found.messages[0]
    assert set(found.best) == {"C", "step"}
    assert found.best["C"] == with_settings(OneVsRest(machine), found.best).base.C


def test_two_classes_need_no_wrapper():
    machine = AdvSVM()
    assert machine.for_classes(2) is machine
    assert isinstance(machine.for_classes(3), OneVsRest)
    assert not isinstance(KernelSVC().for_classes(3), OneVsRest)
    with pytest.raises(ValueError, match="one class only"):
        OneVsRest(machine).fit(np.zeros((4, 2)), np.zeros(4))
