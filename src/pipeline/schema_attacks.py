"""Typed schemas of the attacks; their fields are the constructors' arguments."""

from __future__ import annotations

from dataclasses import dataclass

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


ATTACKS: dict[str, type] = {"none": NoAttackConf, "fgsm": FGSMConf, "pgd": PGDConf}
