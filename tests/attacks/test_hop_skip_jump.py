"""HopSkipJump: labels are all it sees, and it gets near nevertheless."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier

from attacks import PGD, ZOO, CarliniWagner, Constraints, HopSkipJump


class Labels:
    """A model that says nothing but its class."""

    def __init__(self, model):
        self.model, self.classes_, self.asked = model, model.classes_, 0

    def predict(self, X):
        self.asked += len(X)
        return self.model.predict(X)


@pytest.mark.parametrize("name", ["svc_rbf", "linear_svc", "support_vectors"])
def test_labels_alone_lead_near(name, fitted, digits):
    model, X, y = Labels(fitted(name)), digits[2][:16], digits[3][:16]
    result = HopSkipJump(max_queries=4_000)(model, X, y)
    best = CarliniWagner()(fitted(name), X, y)
    assert result.success.all()
    np.testing.assert_array_equal(result.success, model.model.predict(result.examples) != y)
    assert result.queries.max() <= 4_000
    assert np.median(result.distortion_l2) <= 1.25 * np.median(best.distortion_l2)


def test_more_labels_lead_nearer_and_every_one_is_counted(fitted, digits):
    X, y = digits[2][:8], digits[3][:8]
    medians = []
    for budget in (20, 400, 2_000):
        model = Labels(fitted("svc_rbf"))
        result = HopSkipJump(max_queries=budget)(model, X, y)
        medians.append(np.median(result.distortion_l2))
        assert result.queries.max() <= budget
        # Beyond the attack's own: the clean points and the final judgement.
        assert model.asked <= result.queries.sum() + 9 * len(X)
    assert medians[0] > medians[1] > medians[2]


def test_a_row_that_no_known_point_leads_to_is_begun_at_random():
    """Of two features one is the attacker's: other rows, cut to what may change, lie in the same class."""
    rng = np.random.default_rng(0)
    X = np.c_[rng.random(40) * 0.2, np.where(np.arange(40) % 2, 0.2, 0.6)].astype(np.float32)
    y = np.where(X[:, 0] + X[:, 1] > 0.5, 1, -1)
    held = Constraints(mask=[1])

    def model(points):
        return np.where(points.sum(axis=1) > 0.5, 1.0, -1.0)

    low = y < 0  # these can be lifted to 1, the others cannot be lowered enough
    result = HopSkipJump(max_queries=300, constraints=held)(model, X, y)
    assert result.success.tolist() == low.tolist()
    np.testing.assert_allclose(result.distortion_l2[low], 0.5 - X[low].sum(axis=1), rtol=0.02)
    assert result.queries.max() <= 300


def test_a_forest_is_attacked_by_its_labels_and_by_nothing_that_needs_more(digits):
    forest = RandomForestClassifier(30, random_state=0).fit(*digits[:2])
    X, y = digits[2][:10], digits[3][:10]
    assert HopSkipJump(max_queries=1_000)(forest, X, y).success.all()
    for attack in (PGD(), ZOO()):
        with pytest.raises(ValueError, match="model RandomForestClassifier gives labels only"):
            attack(forest, X, y)
