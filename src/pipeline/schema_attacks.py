"""Typed schemas of the attacks; their fields are the constructors' arguments."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import MISSING

from pipeline.schema import EPSILON, setting

_NORMS = ("linf", "l2")


@dataclass
class AttackConf:
    """What every attack has; ``chunk_size`` bounds its memory and changes no result."""

    _target_: str = MISSING
    name: str = MISSING
    chunk_size: int = setting(512, ge=1)
    dtype: str = setting("float32", choices=("float32", "float64"))


@dataclass
class NoAttackConf(AttackConf):
    """Clean accuracy in the form of a result."""

    _target_: str = "attacks.NoAttack"


@dataclass
class FGSMConf(AttackConf):
    """One step of length ``epsilon``."""

    _target_: str = "attacks.FGSM"
    epsilon: float = setting(EPSILON, ge=0)
    norm: str = setting("linf", choices=_NORMS)


@dataclass
class PGDConf(AttackConf):
    """Projected gradient descent on the margin; ``step_size: null`` is epsilon / 4."""

    _target_: str = "attacks.PGD"
    epsilon: float = setting(EPSILON, ge=0)
    steps: int = setting(10, ge=1)
    step_size: float | None = setting(None, gt=0)
    norm: str = setting("linf", choices=_NORMS)
    random_start: bool = False
    restarts: int = setting(1, ge=1)


@dataclass
class CarliniWagnerConf(AttackConf):
    """Minimum-norm L2 attack; ``initial_const: null`` is found by the warm start."""

    _target_: str = "attacks.CarliniWagner"
    binary_search_steps: int = setting(9, ge=1)
    steps: int = setting(100, ge=1)
    learning_rate: float = setting(0.01, gt=0)
    confidence: float = setting(0.0, ge=0)
    initial_const: float | None = setting(None, gt=0)
    abort_early: bool = True
    warm_start: bool = True
    warm_steps: int = setting(30, ge=1)
    restarts: int = setting(3, ge=0)


@dataclass
class ZOOConf(AttackConf):
    """Black-box, minimum-norm; ``max_queries`` counts score queries per example."""

    _target_: str = "attacks.ZOO"
    max_queries: int = setting(200_000, ge=1)
    coordinates: int = setting(128, ge=1)
    h: float = setting(1e-4, gt=0)
    learning_rate: float = setting(0.01, gt=0)
    beta1: float = setting(0.9, ge=0, lt=1)
    beta2: float = setting(0.999, ge=0, lt=1)
    binary_search_steps: int = setting(3, ge=1)
    steps: int = setting(1000, ge=1)
    confidence: float = setting(0.0, ge=0)
    initial_const: float | None = setting(None, gt=0)
    patience: int = setting(4, ge=1)
    restarts: int = setting(1, ge=0)


@dataclass
class SuiteConf:
    """Every attack of ``attacks``, worst case per example; ``l2_cap`` limits the minimum-norm ones."""

    _target_: str = "attacks.Suite"
    name: str = MISSING
    attacks: Any = MISSING
    l2_cap: float | None = setting(None, gt=0)


ATTACKS: dict[str, type] = {
    "none": NoAttackConf,
    "fgsm": FGSMConf,
    "pgd": PGDConf,
    "cw": CarliniWagnerConf,
    "zoo": ZOOConf,
    "suite": SuiteConf,
}
