"""A new dataset, model, attack and kernel are one file and one YAML each; a figure, metric or check is one file.

All of them outside the package.
"""

from __future__ import annotations

import sqlite3
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
from attacks.problem import RunResult

@dataclass(frozen=True)
class Darken(FixedEpsilonAttack):
    """Subtracts epsilon from every pixel; the base class clips, judges and measures."""

    epsilon: float = 0.1
    norm: str = "linf"
    name: ClassVar[str] = "darken"
    needs_gradients: ClassVar[bool] = False

    def run(self, problem):
        return RunResult((problem.X - self.epsilon).astype(problem.X.dtype))
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
    arguments = ("--config-dir", str(conf), "dataset=mine", "model=mine", "attack=mine", "figures=off")
    refused = run_cli(*arguments, PYTHONPATH=str(tmp_path))
    assert "error: model._target_=my_model.Centroids: code that a configuration names is run" in refused.stderr
    assert refused.stderr.count("\n") == refused.returncode == 1
    arguments = (*arguments, "trusted=[my_data,my_model,my_attack]")
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


FIGURE = """
from matplotlib.figure import Figure
from pipeline.figures import Drawing, run_figure, sweep_figure

@run_figure
def margins(cfg, results):
    def paint():
        figure = Figure()
        figure.subplots().hist(results.attacked.result.clean_scores)
        return figure
    return Drawing(f"Scores of {cfg.model.name}", paint)

@run_figure
def nothing_to_show(cfg, results):
    return None

@run_figure
def out_of_order(cfg, results):
    return Drawing("", lambda: 1 / 0)

@sweep_figure
def jobs(dataset, jobs):
    return Drawing(f"{len(jobs)} jobs on {dataset}", Figure)
"""


def test_a_figure_of_ones_own_is_one_file(run_cli, tmp_path: Path):
    (tmp_path / "my_figures.py").write_text(FIGURE)
    arguments = (
        "-m",
        "attack=fgsm",
        "tune=none",
        "checks=off",
        "evaluation.certify_seconds=0",
        "figures=my_figures",
        f"tracking.folder={tmp_path}/mine",
    )
    done = run_cli(*arguments, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    drawn = {path.name for path in (tmp_path / "mine" / "artifacts").rglob("*.png")}
    # Ours are still there, a figure without data is none, and one that fails is said and costs nothing else.
    assert {"margins.png", "jobs_digits_1v7.png", "training_curve.png"} <= drawn
    assert not drawn & {"nothing_to_show.png", "out_of_order.png"}
    assert "figure  out_of_order could not be drawn (ZeroDivisionError" in done.stdout
    wrong = run_cli("figures=no_such_module")
    assert wrong.returncode == 1
    assert "figures: 'no_such_module' is neither auto, nor off, nor a module" in wrong.stdout + wrong.stderr


METRIC = """
import numpy as np

def share_of_positives(run):
    return float(np.mean(run.trained.model.predict(run.data.X_test) == 1))
"""


def test_a_metric_of_ones_own_is_one_function(run_cli, tmp_path: Path):
    (tmp_path / "my_metrics.py").write_text(METRIC)
    quick = (
        "tune=none",
        "attack=none",
        "checks=off",
        "figures=off",
        "model=svc",
        "evaluation.metrics=[my_metrics.share_of_positives]",
    )
    done = run_cli(*quick, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert 0.3 < _metric(tmp_path, "share_of_positives")[-1] < 0.7
    # A changed metric is computed again.
    (tmp_path / "my_metrics.py").write_text(METRIC.replace("== 1", "== 3"))
    again = run_cli(*quick, PYTHONPATH=str(tmp_path))
    assert "reused run" not in again.stdout
    assert _metric(tmp_path, "share_of_positives")[-1] == 0


KERNEL = '''
from dataclasses import dataclass
from typing import ClassVar
import numpy as np
from models.kernels import Kernel

@dataclass(frozen=True)
class InverseQuadratic(Kernel):
    """g(r) = 1 / (1 + gamma r²): a mixture of Gaussians with exponential weights."""

    name: ClassVar[str] = "inverse_quadratic"
    median_power: ClassVar[int] = 2

    def from_squared_distance_(self, squared, gamma):
        return squared.mul_(gamma).add_(1.0).reciprocal_()

    def slope(self, squared, values, gamma):
        return -gamma * values**2

    def drop(self, distance, gamma):
        scaled = gamma * np.square(distance, dtype=np.float64)
        return scaled / (1.0 + scaled)

    def inverse_profile(self, value, gamma):
        return np.sqrt((1.0 / value - 1.0) / gamma)

    def frequency_lengths(self, rng, n_features):
        return np.sqrt(rng.standard_exponential(n_features, dtype=np.float32))

    def frequency_scale(self, gamma):
        return float(np.sqrt(2.0 * gamma))
'''
CHECK = """
from pipeline.checks import failed, of_model, of_run, passed

@of_model("90_has_classes")
def classes(context):
    return passed("two") if len(context.model.classes_) == 2 else failed("not two")

@of_run("91_never_content")
def never(context):
    return failed("nothing is good enough")
"""


def test_a_kernel_and_a_check_of_ones_own(run_cli, tmp_path: Path):
    (tmp_path / "my_conf" / "model" / "kernel").mkdir(parents=True)
    defaults = "defaults: [/constructor/my_kernel.InverseQuadratic@_here_, _self_]\n"
    (tmp_path / "my_conf" / "model" / "kernel" / "mine.yaml").write_text(defaults)
    (tmp_path / "my_kernel.py").write_text(KERNEL)
    (tmp_path / "my_checks.py").write_text(CHECK)
    quick = (
        "--config-dir",
        str(tmp_path / "my_conf"),
        "tune=none",
        "attack=fgsm",
        "figures=off",
        "evaluation.certify_seconds=0",
        "evaluation.max_attacked=20",
        "trusted=[my_kernel]",
    )
    ours = (*quick, "model/kernel=mine", "evaluation.checks=[my_checks]")
    done = run_cli(*ours, PYTHONPATH=str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "check   91_never_content failed: nothing is good enough" in done.stdout
    assert "check   90" not in done.stdout
    # Without a rounding bound exact sums have no certificate: the run says so and proves nothing.
    exact = run_cli(*quick, "model/kernel=mine", "model/expansion=support_vectors", PYTHONPATH=str(tmp_path))
    assert exact.returncode == 0, exact.stdout + exact.stderr
    assert "certified 0.00%" in exact.stdout
    assert "91_never_content" not in exact.stdout
    wrong = run_cli("evaluation.checks=[no_such_module]")
    assert wrong.returncode == 1
    assert "evaluation.checks: no_such_module cannot be had" in wrong.stdout + wrong.stderr


def _metric(folder: Path, name: str) -> list[float]:
    """Values of a metric in the order in which they were logged."""
    with sqlite3.connect(folder / "mlruns" / "mlflow.db") as database:
        rows = database.execute("select value from metrics where key = ? order by timestamp", (name,))
        return [value for (value,) in rows]
