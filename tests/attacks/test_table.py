"""Every attack on every model in every norm: the promises all of them keep."""

import numpy as np
import pytest

from attacks import APGD, FGSM, PGD, ZOO, Auto, CarliniWagner, HopSkipJump, MinNorm, NoAttack, Square, Suite
from oracles_attacks import MODEL_NAMES

ATTACKS = {
    "none": NoAttack(),
    "fgsm_linf": FGSM(epsilon=0.1),
    "fgsm_l2": FGSM(epsilon=0.8, norm="l2"),
    "pgd_linf": PGD(epsilon=0.1, steps=5),
    "pgd_l2": PGD(epsilon=0.8, steps=5, norm="l2"),
    "pgd_restarts": PGD(epsilon=0.1, steps=5, random_start=True, restarts=2),
    "cw": CarliniWagner(steps=30),
    "zoo": ZOO(steps=30, binary_search_steps=1, max_queries=5_000),
    "min_norm_l2": MinNorm(gradients=50),
    "min_norm_linf": MinNorm(norm="linf", gradients=50),
    "apgd_linf": APGD(epsilon=0.1, steps=10),
    "apgd_l2": APGD(epsilon=0.8, steps=10, norm="l2"),
    "square_linf": Square(epsilon=0.1, queries=40),
    "square_l2": Square(epsilon=0.8, queries=40, norm="l2"),
    "auto_linf": Auto(epsilon=0.1),
    "auto_l2": Auto(epsilon=0.8, norm="l2"),
    "hop_skip_jump": HopSkipJump(max_queries=400),
    "suite": Suite([FGSM(epsilon=0.1), CarliniWagner(steps=20)]),
}


@pytest.fixture(params=MODEL_NAMES)
def model(request, fitted):
    return fitted(request.param)


@pytest.fixture(params=ATTACKS)
def attack(request):
    return ATTACKS[request.param]


def test_every_attack_keeps_its_promises_on_every_model(attack, model, digits):
    X, y = digits[2][:24], digits[3][:24]
    result = attack(model, X, y)
    n = len(X)

    assert result.examples.shape == X.shape
    assert result.examples.dtype == np.float32
    assert result.examples.min() >= 0
    assert result.examples.max() <= 1

    # Success is what the model says about the very array that is returned.
    np.testing.assert_array_equal(result.success, model.predict(result.examples) != y)
    wrong = model.predict(X) != y
    np.testing.assert_array_equal(result.already_misclassified, wrong)
    np.testing.assert_array_equal(result.examples[wrong], X[wrong])
    assert result.success[wrong].all()
    assert result.queries[wrong].sum() + result.gradient_evaluations[wrong].sum() == 0

    delta = result.examples.astype(np.float64) - X
    np.testing.assert_allclose(result.distortion_l2, np.linalg.norm(delta, axis=1), atol=1e-12)
    np.testing.assert_allclose(result.distortion_linf, np.abs(delta).max(axis=1), atol=1e-12)
    assert (
        result.distortion_l2 if result.threat.norm == "l2" else result.distortion_linf
    ).max() <= result.threat.epsilon
    if not attack.bounded:
        assert result.success.all(), "a minimum-norm attack with budget left breaks every point"

    for values in (result.queries, result.gradient_evaluations, result.clean_scores, result.scores):
        assert values.shape == (n,)
    assert (result.clean_scores * np.where(y == model.classes_[1], 1, -1))[~wrong].min() >= 0
