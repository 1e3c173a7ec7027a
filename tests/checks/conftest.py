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

from pipeline import schema
from pipeline.checks import Check, CheckContext
from pipeline.checks.registry import all_checks, run_check
from pipeline.cores import available_cores
from pipeline.data import load_dataset
from pipeline.paths import conf_dir
from pipeline.stages.attack import Attacked, attack
from pipeline.stages.train import Trained, train
from pipeline.stages.tune import Tuned

SMALL = ("tune=none", "attack=pgd", "model.C=4")
KERNEL = ("model.step=0.0625", "model.batch_size=32", "model/expansion=support_vectors")


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
def trained_on(*overrides: str) -> Trained:
    return train(config(*overrides), digits(), Tuned())


def context_of(
    *overrides: str,
    model: Callable[[Any], Any] | None = None,
    victim: Any = None,
    by: Any = None,
    data: Any = None,
    tuned: Tuned | None = None,
    alter: Callable[[Attacked], Attacked] | None = None,
) -> CheckContext:
    """A run's context; ``model`` wraps the trained one, ``by`` replaces the attack, ``alter`` edits its result."""
    linear_or_svc = any(o in ("model=svc", "model=adv_linear_svm") for o in overrides)
    settings = (*SMALL, *(() if linear_or_svc else KERNEL), *overrides)
    cfg, rows = config(*settings), data or digits()
    trained = trained_on(*settings)
    if model is not None:
        trained = replace(trained, model=model(trained.model))
    if victim is not None:
        trained = replace(trained, model=victim)
    attacked = attack(cfg, rows, trained) if by is None else attack_with(by, rows, trained)
    attacked = alter(attacked) if alter else attacked
    radii = np.asarray(trained.model.certified_radius(rows.X_test, rows.y_test))
    correct = np.asarray(trained.model.predict(rows.X_test) == rows.y_test)
    return CheckContext(cfg, rows, tuned or Tuned(), trained, correct, radii, attacked, by)


def attack_with(by: Any, data: Any, trained: Trained) -> Attacked:
    X, y = data.X_test, data.y_test
    return Attacked(by(trained.model, X, y), np.arange(len(y)), trained.model.predict(X) != y, 0.1)


def outcome(id: str, context: CheckContext) -> Check:
    """Run the check whose id begins like this."""
    (entry,) = [entry for entry in all_checks() if entry.id.startswith(id)]
    return run_check(entry, context)


@pytest.fixture
def make() -> Callable[..., CheckContext]:
    return context_of


@pytest.fixture
def judge() -> Callable[..., Check]:
    return outcome
