"""Whatever is wrong, the message names the argument."""

import numpy as np
import pytest

from attacks import FGSM, PGD, ZOO, CarliniWagner, Suite
from oracles_attacks import LinearModel

MODEL = LinearModel(np.ones(4), -2.0)
X = np.full((3, 4), 0.5)
Y = np.array([1, -1, 1])


class Broken(LinearModel):
    def scores(self, X):
        return np.full(len(X), np.nan)


@pytest.mark.parametrize("attack", [FGSM(), PGD(), CarliniWagner(), ZOO()])
@pytest.mark.parametrize(
    ("model", "points", "labels", "message"),
    [
        (MODEL, X + 0.6, Y, r"X must lie in box=\(0.0, 1.0\), but its values span \[1.1"),
        (MODEL, X - 0.6, Y, r"X must lie in box"),
        (MODEL, np.full((3, 4), np.nan), Y, "X must be finite"),
        (MODEL, X[0], Y, "X must be a non-empty array of shape"),
        (MODEL, X[:0], Y[:0], "X must be a non-empty array of shape"),
        (MODEL, np.full((3, 4), "a"), Y, "X must hold numbers"),
        (MODEL, X, np.array([0, 1, 1]), r"y must be one of the model's classes \[-1, 1\], got \[0\]"),
        (MODEL.scores, X, np.array([0, 1, 1]), "y must be -1 or \\+1"),
        (MODEL, X, Y[:2], "y must have shape"),
        (Broken(np.ones(4)), X, Y, "model gives scores that are NaN"),
        (object(), X, Y, "model must have scores"),
        (LinearModel, X, Y, "model must be a fitted object"),
        (lambda X: X, X, Y, "model must give one score per row"),
    ],
)
def test_bad_data_and_models_are_refused(attack, model, points, labels, message):
    if callable(model) and not isinstance(model, type) and attack.needs_gradients:
        message = "model .* gives scores only"
    with pytest.raises(ValueError, match=message):
        attack(model, points, labels)


@pytest.mark.parametrize(
    ("attack", "settings", "name"),
    [
        (FGSM, {"epsilon": -0.1}, "epsilon"),
        (FGSM, {"epsilon": float("nan")}, "epsilon"),
        (FGSM, {"epsilon": np.full(3, 0.1)}, "epsilon must be"),
        (FGSM, {"epsilon": "large"}, "epsilon"),
        (FGSM, {"epsilon": None}, "epsilon"),
        (FGSM, {"norm": "l1"}, "norm"),
        (PGD, {"epsilon": float("inf")}, "epsilon"),
        (PGD, {"steps": 0}, "steps"),
        (PGD, {"steps": 2.5}, "steps"),
        (PGD, {"step_size": 0.0}, "step_size"),
        (PGD, {"restarts": 0}, "restarts"),
        (PGD, {"box": (1.0, 0.0)}, "box"),
        (PGD, {"box": 3}, "box"),
        (PGD, {"chunk_size": 0}, "chunk_size"),
        (PGD, {"dtype": "float16"}, "dtype"),
        (PGD, {"random_state": -1}, "random_state"),
        (PGD, {"constraints": {"mask": [0]}}, r"constraints must be attacks.Constraints\(...\), got dict"),
        (Suite, {"constraints": {"mask": [0]}}, "constraints must be attacks.Constraints"),
        (CarliniWagner, {"steps": 0}, "steps"),
        (CarliniWagner, {"binary_search_steps": 0}, "binary_search_steps"),
        (CarliniWagner, {"confidence": -1}, "confidence"),
        (CarliniWagner, {"learning_rate": 0}, "learning_rate"),
        (CarliniWagner, {"initial_const": 0}, "initial_const"),
        (CarliniWagner, {"restarts": -1}, "restarts"),
        (ZOO, {"max_queries": 0}, "max_queries"),
        (ZOO, {"coordinates": 0}, "coordinates"),
        (ZOO, {"h": 0}, "h must"),
        (ZOO, {"beta1": 1.0}, "beta1"),
        (ZOO, {"steps": 0}, "steps"),
        (Suite, {"attacks": []}, "attacks"),
        (Suite, {"epsilon": -1}, "epsilon"),
    ],
)
def test_bad_settings_are_refused_at_once(attack, settings, name):
    with pytest.raises(ValueError, match=name):
        attack(**settings)


def test_bad_arguments_of_the_call_are_refused():
    with pytest.raises(ValueError, match="epsilons"):
        PGD()(MODEL, X, Y, epsilons=[0.1, -0.1])
    with pytest.raises(ValueError, match="epsilons"):
        PGD()(MODEL, X, Y, epsilons=[])
    with pytest.raises(ValueError, match="epsilons must be one number"):
        PGD()(MODEL, X, Y, epsilons=[[0.1, 0.2]])
    with pytest.raises(ValueError, match="reference must lie in box"):
        CarliniWagner()(MODEL, X, Y, reference=X + 1)
    with pytest.raises(ValueError, match="reference must have 4 columns"):
        CarliniWagner()(MODEL, X, Y, reference=X[:, :2])


def test_other_boxes_are_respected():
    result = PGD(epsilon=5.0, box=(0.0, 255.0))(LinearModel(np.ones(4), -600.0), np.full((1, 4), 200.0), [1])
    assert result.distortion_linf.max() <= 5.0
    assert result.examples.max() > 1.0
