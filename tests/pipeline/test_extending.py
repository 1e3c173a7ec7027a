"""A new dataset, model and attack are one file and one YAML each, also outside the package."""

from __future__ import annotations

from pathlib import Path

DATASET = """
import numpy as np
from pipeline.data import build_dataset

def load(settings, data_dir, progress=None):
    rng = np.random.default_rng(settings["seed"])
    X = rng.uniform(0, 1, (60, 4)).astype(np.float32)
    y = np.where(X[:, 0] > 0.5, 1, -1)
    return build_dataset(
        name="mine", X_train=X[:40], y_train=y[:40], X_test=X[40:], y_test=y[40:], image_shape=(2, 2),
        class_names=("low", "high"), train_ids=np.arange(40), test_ids=np.arange(40, 60), source="made here",
    )
"""
MODEL = '''
import numpy as np
from sklearn.base import BaseEstimator, ClassifierMixin

class Centroids(ClassifierMixin, BaseEstimator):
    """Nearest centroid: a linear score, so all of the protocol is one line each."""

    def __init__(self, C=1.0):
        self.C = C

    def fit(self, X, y, eval_set=None, observer=None):
        self.classes_, self.n_features_in_ = np.unique(y), X.shape[1]
        low, high = (X[y == c].mean(axis=0).astype(float) for c in self.classes_)
        self.w_, self.b_ = high - low, float(low @ low - high @ high) / 2
        return self

    def scores(self, X):
        return np.asarray(X, dtype=float) @ self.w_ + self.b_

    decision_function = scores

    def predict(self, X):
        return self.classes_[(self.scores(X) > 0).astype(int)]

    def scores_and_gradients(self, X):
        return self.scores(X), np.tile(self.w_, (len(X), 1))

    def probe(self, X, coords, h):
        odd = h * np.tile(self.w_[coords], (len(X), 1))
        return self.scores(X)[:, None] + odd, self.scores(X)[:, None] - odd

    def certified_radius(self, X, y):
        sign = np.where(y == self.classes_[1], 1, -1)
        return np.maximum(sign * self.scores(X) / np.linalg.norm(self.w_) * (1 - 1e-9), 0)

    def get_state(self):
        return {"C": self.C, "b": self.b_, "classes": self.classes_.tolist()}, {"w": self.w_}

    @classmethod
    def from_state(cls, meta, arrays):
        model = cls(C=meta["C"])
        model.classes_, model.b_, model.w_ = np.array(meta["classes"]), meta["b"], arrays["w"]
        model.n_features_in_ = len(model.w_)
        return model
'''
ATTACK = '''
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from attacks import FixedEpsilonAttack
from attacks.problem import Found

@dataclass(frozen=True)
class Darken(FixedEpsilonAttack):
    """Subtracts epsilon from every pixel; the base class clips, judges and measures."""

    epsilon: float = 0.1
    norm: str = "linf"
    name: ClassVar[str] = "darken"
    needs_gradients: ClassVar[bool] = False

    def run(self, problem):
        return Found((problem.X - self.epsilon).astype(problem.X.dtype))
'''


def test_a_dataset_a_model_and_an_attack_of_ones_own(run_cli, tmp_path: Path):
    conf = tmp_path / "my_conf"
    for group, yaml in {
        "dataset": "name: mine\nloader: my_data.load\nseed: 3\n",
        "model": "_target_: my_model.Centroids\nname: mine\nC: 1.0\n",
        "attack": "_target_: my_attack.Darken\nname: mine\nepsilon: 0.2\n",
    }.items():
        (conf / group).mkdir(parents=True)
        (conf / group / "mine.yaml").write_text(yaml)
    for name, code in (("my_data", DATASET), ("my_model", MODEL), ("my_attack", ATTACK)):
        (tmp_path / f"{name}.py").write_text(code)
    arguments = ("--config-dir", str(conf), "dataset=mine", "model=mine", "attack=mine")
    done = run_cli(*arguments, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "mine · mine · mine · seed 0" in done.stdout
    again = run_cli(*arguments, PYTHONPATH=str(tmp_path))
    assert "reused run" in again.stdout
    # A changed model file is another model: nothing stale is reused.
    (tmp_path / "my_model.py").write_text(MODEL.replace("/ 2", "/ 2 + 0.01"))
    changed = run_cli(*arguments, PYTHONPATH=str(tmp_path))
    assert changed.returncode == 0
    assert "reused run" not in changed.stdout
