"""C&W and ZOO: they always succeed, near, within budget, and say so when nothing can be found."""

import numpy as np
import pytest
from sklearn.svm import SVC

from attacks import ZOO, CarliniWagner, MinNorm, accuracy_at, as_target, min_norm
from oracles_attacks import LinearModel, VanishingRBF

RBF_MODELS = ["svc_rbf", "scaled_svc", "doubly_stochastic", "fixed_features", "support_vectors", "kernel_svc"]


def vanishing(digits, gamma=3.0):
    X, y = digits[:2]
    return VanishingRBF(X, y, gamma)


@pytest.mark.parametrize("name", RBF_MODELS)
def test_unbounded_cw_reaches_zero_accuracy_on_every_rbf_model(name, fitted, digits):
    result = CarliniWagner()(fitted(name), *digits[2:])
    assert result.robust_accuracy == 0.0
    assert result.attack_success_rate == 1.0
    assert result.notes == ()


@pytest.mark.parametrize("name", ["svc_rbf", "support_vectors"])
def test_unbounded_zoo_reaches_zero_accuracy(name, fitted, digits):
    X, y = digits[2][:40], digits[3][:40]
    result = ZOO()(fitted(name), X, y)
    assert result.robust_accuracy == 0.0
    assert result.gradient_evaluations.sum() == 0


def test_cw_succeeds_where_the_textbook_attack_stalls(digits):
    model, X, y = vanishing(digits), digits[2][:20], digits[3][:20]
    textbook = CarliniWagner(warm_start=False, restarts=0, steps=50)(model, X, y)
    rescued = CarliniWagner(warm_start=False, restarts=2, steps=50)(model, X, y)
    ours = CarliniWagner(steps=50)(model, X, y)
    assert textbook.robust_accuracy > 0.2
    assert rescued.robust_accuracy == ours.robust_accuracy == 0.0
    assert rescued.history["restarted"] > 0
    # On a kernel this narrow either may end in the nearer of two local minima.
    assert np.median(ours.distortion_l2) <= 1.05 * np.median(rescued.distortion_l2)


def test_zoo_succeeds_where_scores_vanish(digits):
    result = ZOO(steps=20, binary_search_steps=1, coordinates=4)(vanishing(digits), digits[2][:8], digits[3][:8])
    assert result.robust_accuracy == 0.0


@pytest.mark.parametrize(
    ("attack", "slack"), [(CarliniWagner(), 1.002), (CarliniWagner(warm_start=False, steps=300), 1.05), (ZOO(), 1.1)]
)
def test_the_distance_to_a_linear_boundary_is_found(attack, slack):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal(30)
    X = rng.uniform(0.4, 0.6, size=(20, 30)).astype(np.float32)
    model = LinearModel(weights, -0.5 * weights.sum() + 0.4 * np.linalg.norm(weights))
    y = model.predict(X)
    result = attack(model, X, y)
    exact = np.abs(model.scores(X)) / np.linalg.norm(weights)
    assert (result.distortion_l2 >= exact * (1 - 1e-6)).all()
    assert (result.distortion_l2 <= exact * slack + 1e-3).all()


def test_confidence_pushes_beyond_the_boundary(fitted, digits):
    model, X, y = fitted("svc_rbf"), digits[2], digits[3]
    plain, deep = CarliniWagner()(model, X, y), CarliniWagner(confidence=0.5)(model, X, y)
    assert deep.robust_accuracy == 0.0
    assert deep.history["confidence_missed"] == 0
    assert (y * deep.scores)[deep.found].max() <= -0.5 + 1e-6
    assert np.median(deep.distortion_l2) > np.median(plain.distortion_l2)


def test_a_confidence_the_model_never_has_still_gives_examples(fitted, digits):
    result = CarliniWagner(confidence=1e3, steps=10, binary_search_steps=1)(fitted("svc_rbf"), *digits[2:])
    assert result.robust_accuracy == 0.0
    assert result.history["confidence_missed"] == (~result.already_misclassified).sum()


@pytest.mark.parametrize("attack", [CarliniWagner(), ZOO(steps=5, binary_search_steps=1)])
def test_a_model_of_one_class_is_reported_not_a_crash(attack, digits):
    constant = LinearModel(np.zeros(64), 1.0)
    result = attack(constant, digits[2][:10], np.ones(10))
    assert result.robust_accuracy == 1.0
    assert any("one class" in note for note in result.notes)
    np.testing.assert_array_equal(result.examples, digits[2][:10])


def test_reference_points_are_used_when_the_attacked_set_has_one_class(digits):
    model, X, y = vanishing(digits, gamma=5.0), digits[2], digits[3]
    one_class = X[y == 1][:10]
    result = CarliniWagner(warm_start=False, steps=5, binary_search_steps=1)(
        model, one_class, np.ones(10), reference=digits[0]
    )
    assert result.robust_accuracy == 0.0


def test_epsilons_cap_one_and_the_same_search(fitted, digits):
    model, X, y = fitted("svc_rbf"), digits[2], digits[3]
    free = CarliniWagner()(model, X, y)
    caps = [0.0, 0.5, 1.0, 10.0]
    results = CarliniWagner()(model, X, y, epsilons=caps)
    for cap, result in zip(caps, results):
        assert result.distortion_l2.max() <= cap
        assert result.robust_accuracy == pytest.approx(accuracy_at(free, cap))
        np.testing.assert_array_equal(result.success, model.predict(result.examples) != y)
    assert results[0].robust_accuracy == free.clean_accuracy


def test_accuracy_at_counts_only_examples_within_the_cap(fitted, digits):
    result = CarliniWagner()(fitted("svc_rbf"), *digits[2:])
    caps = np.linspace(0, 4, 9)
    expected = [1 - np.mean(result.success & (result.distortion_l2 <= cap)) for cap in caps]
    np.testing.assert_allclose(accuracy_at(result, caps), expected)
    assert accuracy_at(result, np.inf) == result.robust_accuracy
    with pytest.raises(ValueError, match="cap"):
        accuracy_at(result, -1.0)


class Counting:
    """A model that counts what it is asked, row by row."""

    classes_ = np.array([-1, 1])

    def __init__(self, model):
        self.model, self.asked = model, 0

    def scores(self, X):
        self.asked += len(X)
        return self.model.decision_function(X)

    def predict(self, X):
        return self.model.predict(X)


@pytest.mark.parametrize("budget", [13, 200, 1000])
def test_zoo_counts_every_query_and_keeps_its_budget(budget, digits):
    model = Counting(SVC(C=8.0, gamma=0.2).fit(*digits[:2]))
    X, y = digits[2][:10], digits[3][:10]
    result = ZOO(max_queries=budget, coordinates=16)(model, X, y)
    assert result.queries.max() <= budget
    evaluators_own = 2 * len(X)  # the clean points and the final judgement
    assert model.asked == result.queries.sum() + evaluators_own


def test_zoo_sees_no_gradient(digits):
    model = SVC(C=8.0, gamma=0.2).fit(*digits[:2])
    X, y = digits[2][:20], digits[3][:20]
    attack = ZOO(steps=30, binary_search_steps=1)
    fast, blind = attack(model, X, y), attack(model.decision_function, X, y)
    np.testing.assert_allclose(fast.examples, blind.examples, atol=1e-3)
    np.testing.assert_array_equal(fast.queries, blind.queries)


def test_finished_examples_leave_the_batch(fitted, digits):
    result = CarliniWagner(binary_search_steps=9, steps=100)(fitted("svc_rbf"), *digits[2:])
    assert result.gradient_evaluations.max() < 9 * 100
    assert len(np.unique(result.gradient_evaluations)) > 2


@pytest.mark.parametrize("name", ["svc_rbf", "doubly_stochastic", "support_vectors"])
def test_zoo_is_as_near_as_carlini_wagner_within_few_queries_on_few_pixels(name, fitted, digits):
    X, y = digits[2][:40], digits[3][:40]
    result = ZOO(max_queries=8_000)(fitted(name), X, y)
    reference = CarliniWagner()(fitted(name), X, y)
    both = result.found & reference.found
    assert result.queries.max() <= 8_000
    # A walk that has come to rest is not followed by ADAM, which alone takes 5,000.
    assert np.median(result.queries) <= 2_500
    assert np.median(result.distortion_l2[both]) <= 1.01 * np.median(reference.distortion_l2[both])


def test_zoo_says_how_much_of_its_work_is_done(fitted, digits):
    """The time left is judged by what is reported: the share of all queries spent, never off by a factor of three."""
    X, y = digits[2], digits[3]
    model = fitted("svc_rbf")
    asked, seen = [0], []

    class Counting:
        classes_, scores = model.classes_, staticmethod(as_target(model).scores)

        def probe(self, X, coords, h):
            asked[0] += X.shape[0] * len(coords)
            return as_target(model).probe(X, coords, h)

    ZOO()(Counting(), X, y, observer=lambda event, step, total, **_: seen.append((step / total, asked[0])))
    shares = np.array([(done, spent / asked[0]) for done, spent in seen if done >= 0.2])
    assert len(shares) > 5
    assert (shares[:, 1] / shares[:, 0]).min() > 1 / 3
    assert (shares[:, 1] / shares[:, 0]).max() < 3


@pytest.mark.parametrize("name", ["linear_svc", "doubly_stochastic", "support_vectors", "svc_rbf"])
def test_few_gradients_in_linf_cross_the_boundary_where_it_is_near(name, fitted, digits):
    """Damped steps stopped short of it, and the way to the other class crosses it far away."""
    model, X, y = fitted(name), digits[2][:30], digits[3][:30]
    few = MinNorm(norm="linf", gradients=15, starts=0)(model, X, y)
    many = MinNorm(norm="linf")(model, X, y)
    assert np.median(few.distortion_linf[many.found] / many.distortion_linf[many.found]) < 1.1


def test_rows_that_no_step_breaks_close_in_from_the_way_to_the_other_class(digits, monkeypatch):
    """Scores of a narrow kernel vanish between the classes: many rows know no adversarial point to begin with."""
    model = SVC(C=8.0, gamma=1.0).fit(*digits[:2])
    found = MinNorm(norm="linf", gradients=30, starts=1)(model, *digits[2:])
    monkeypatch.setattr(min_norm, "SEARCH", 2.0)  # never
    without = MinNorm(norm="linf", gradients=30, starts=1)(model, *digits[2:])
    assert found.success.all()
    assert found.distortion_linf.mean() < 0.9 * without.distortion_linf.mean()
    assert np.median(found.distortion_linf) <= np.median(without.distortion_linf)
    assert found.gradient_evaluations.max() <= 30
