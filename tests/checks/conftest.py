"""Honest contexts on the embedded digits, and ways to swap one part for a broken one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf
from sklearn.datasets import load_iris

from pipeline import schema
from pipeline.checks import Check, CheckContext
from pipeline.checks.registry import all_checks, run_check
from pipeline.cores import available_cores
from pipeline.data import build_dataset, load_dataset
from pipeline.paths import conf_dir
from pipeline.stages.attack import Attack, Attacked
from pipeline.stages.bracket import verdicts_on
from pipeline.stages.train import Train, Trained
from pipeline.stages.tune import Tuned

SMALL = ("tune=none", "attack=pgd", "model.C=4")
# Half the features of the dataset: twice as quick, and the answers are the same.
KERNEL = ("model.step=0.0625", "model.batch_size=32", "model/expansion=support_vectors", "dataset.n_features=128")


@lru_cache
def config(*overrides: str) -> DictConfig:
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    GlobalHydra.instance().clear()
    with initialize_config_dir(str(conf_dir()), version_base="1.3"):
        return compose("config", [*overrides])


@lru_cache
def digits() -> Any:
    return load_dataset(config().dataset)


@lru_cache
def iris(first: int = 1, second: int = 2) -> Any:
    """Two of the three species: 4 features, 76 rows to train on and 24 to test."""
    X, y = load_iris(return_X_y=True)
    X, y = X[np.isin(y, (first, second))], y[np.isin(y, (first, second))]
    X = ((X - X.min(axis=0)) / (X.max(axis=0) - X.min(axis=0))).astype(np.float32)
    y = np.where(y == first, 1, -1)
    rows = np.random.default_rng(0).permutation(len(y))
    train_ids, test_ids = rows[:76], rows[76:]
    return build_dataset(
        name="iris",
        X_train=X[train_ids],
        y_train=y[train_ids],
        X_test=X[test_ids],
        y_test=y[test_ids],
        image_shape=(4,),
        class_names=("one", "other"),
        train_ids=train_ids,
        test_ids=test_ids,
        source="scikit-learn",
    )


@lru_cache
def two_clouds(dimension: int, seed: int) -> Any:
    """Two overlapping normal clouds in the unit cube."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(360) % 2, 1, -1)
    centre = 0.5 + 0.15 * y[:, None] / np.sqrt(dimension)
    X = np.clip(centre + 0.25 / np.sqrt(dimension) * rng.standard_normal((360, dimension)), 0, 1).astype(np.float32)
    return build_dataset(
        name="clouds",
        X_train=X[:240],
        y_train=y[:240],
        X_test=X[240:],
        y_test=y[240:],
        image_shape=(dimension,),
        class_names=("one", "other"),
        train_ids=np.arange(240),
        test_ids=np.arange(240, 360),
        source="made here",
    )


@lru_cache
def trained_on(*overrides: str, data: Any = None) -> Trained:
    return Train(config(*overrides)).run(data or digits(), Tuned())


def context_of(
    *overrides: str,
    model: Callable[[Any], Any] | None = None,
    victim: Any = None,
    by: Any = None,
    data: Any = None,
    retrain: bool = False,
    tuned: Tuned | None = None,
    alter: Callable[[Attacked], Attacked] | None = None,
) -> CheckContext:
    """A run's context; ``model`` wraps the trained one, ``by`` replaces the attack, ``alter`` edits its result.

    ``data`` replaces the digits, for the model too with ``retrain``.
    """
    linear_or_svc = any(o in ("model=svc", "model=adv_linear_svm") for o in overrides)
    network = any(o.startswith("model=dnn_") for o in overrides)
    settings = (*(SMALL[:2] if network else SMALL), *(() if linear_or_svc or network else KERNEL), *overrides)
    cfg, rows = config(*settings), data or digits()
    trained = trained_on(*settings, data=rows if retrain else None)
    if model is not None:
        trained = replace(trained, model=model(trained.model))
    if victim is not None:
        trained = replace(trained, model=victim)
    attacked = Attack(cfg).run(rows, trained) if by is None else attack_with(by, rows, trained)
    attacked = alter(attacked) if alter else attacked
    radii = np.asarray(trained.model.certified_radius(rows.X_test, rows.y_test))
    correct = np.asarray(trained.model.predict(rows.X_test) == rows.y_test)
    verdicts = verdicts_on(rows, trained, attacked, radii, float(cfg.evaluation.l2_cap), 0.0)
    return CheckContext(cfg, rows, tuned or Tuned(), trained, correct, radii, attacked, by, verdicts)


def attack_with(by: Any, data: Any, trained: Trained) -> Attacked:
    X, y = data.X_test, data.y_test
    return Attacked(by(trained.model, X, y), np.arange(len(y)), trained.model.predict(X) != y, 0.1)


def outcome(id: str, context: CheckContext) -> Check:
    """Run the check whose id begins like this; a failure by an exception of its own proves nothing."""
    (entry,) = [entry for entry in all_checks() if entry.id.startswith(id)]
    check = run_check(entry, context)
    assert not check.stopped, check.evidence["exception"]
    return check


@pytest.fixture
def make() -> Callable[..., CheckContext]:
    return context_of


@pytest.fixture
def judge() -> Callable[..., Check]:
    return outcome


@pytest.fixture
def clouds() -> Callable[[int, int], Any]:
    return two_clouds


@pytest.fixture
def flowers() -> Callable[[int, int], Any]:
    return iris
