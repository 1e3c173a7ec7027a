"""Typed schemas of the configuration groups, with the range of every number declared beside it.

Hydra checks names and types against these dataclasses while it composes; :mod:`pipeline.validation` checks the
ranges before any work starts. A field's ``metadata`` is the only place a range is written down.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

EPSILON = 8 / 255


def setting(default: Any = MISSING, **limits: Any) -> Any:
    """A dataclass field with limits: ``gt``, ``ge``, ``lt``, ``le`` for numbers, ``choices`` for words."""
    return field(default=default, metadata=limits)


# --- models ----------------------------------------------------------------------------------------------------------


@dataclass
class KernelConf:
    """A radial kernel; ``gamma: null`` takes ``width_scale`` / median(distance)² (RBF) of the training data."""

    _target_: str = MISSING
    width_scale: float = setting(4.0, gt=0)
    gamma: float | None = setting(None, gt=0)


@dataclass
class SupportVectorsConf:
    """The exact kernel sum over margin violators; ``cache_mb`` bounds memory and changes no result."""

    _target_: str = "models.expansions.SupportVectors"
    cache_mb: float = setting(1024.0, ge=0)


@dataclass
class RandomFeaturesConf(SupportVectorsConf):
    """Random features: ``n_features`` of them per iteration, or in all."""

    _target_: str = MISSING
    n_features: int = setting(1024, ge=1)


@dataclass
class AdvSVMConf:
    """Kernel SVM trained by (doubly) stochastic gradients; ``epsilon: 0`` is the natural model."""

    _target_: str = "models.AdvSVM"
    name: str = MISSING
    schedule: str = setting("constant", choices=("constant", "diminishing"))
    kernel: Any = MISSING
    expansion: Any = MISSING
    epsilon: float = setting(EPSILON, ge=0)
    C: float = setting(1.0, gt=0)
    step: float = setting(0.125, gt=0)
    # Small datasets name a batch size of their own: with 500 of 270 rows a pass would be one iteration.
    batch_size: int = setting("${oc.select:dataset.batch_size,500}", ge=1)
    passes: int = setting(1, ge=1)
    decay: str = setting("literal", choices=("literal", "proximal"))
    dtype: str = setting("float32", choices=("auto", "float32", "float64"))


@dataclass
class AdvLinearSVMConf:
    """Linear SVM of Zhou et al. (2012), free-range attacker."""

    _target_: str = "models.AdvLinearSVM"
    name: str = MISSING
    C: float = setting(1.0, gt=0)
    C_f: float = setting(0.1, ge=0, le=1)
    attacked_class: str = setting("positive", choices=("positive", "negative", "both"))


@dataclass
class SVCConf:
    """scikit-learn's SVC behind the same protocol."""

    _target_: str = "models.KernelSVC"
    name: str = MISSING
    C: float = setting(1.0, gt=0)
    width_scale: float = setting(4.0, gt=0)
    gamma: float | None = setting(None, gt=0)


# --- tuning ----------------------------------------------------------------------------------------------------------


@dataclass
class TuneConf:
    """The k-fold grid over C and the step size (the paper's γ); one grid serves all seeds of an experiment."""

    name: str = MISSING
    enabled: bool = True
    folds: int = setting(5, ge=2)
    metric: str = setting("accuracy", choices=("accuracy", "certified_accuracy"))
    radius: float = setting(0.878, ge=0)
    C: list[float] = field(default_factory=lambda: [2.0**k for k in range(-3, 4)], metadata={"each_gt": 0})
    step: list[float] = field(default_factory=lambda: [2.0**k for k in range(-3, 4)], metadata={"each_gt": 0})
    width_scale: list[float] | None = field(default=None, metadata={"each_gt": 0})
    seed: int = setting(0, ge=0)


# --- everything else -------------------------------------------------------------------------------------------------


@dataclass
class TrackingConf:
    """Where runs are kept: SQLite in ``folder`` when ``uri`` is null, else an MLflow server."""

    name: str = MISSING
    uri: str | None = None
    folder: str = "mlruns"
    experiment: str = "advsvm"


@dataclass
class EvaluationConf:
    """How the trained model is judged. Radii and caps are L2 distances in [0, 1] pixels."""

    max_attacked: int | None = setting(None, ge=1)
    max_attacked_costly: int | None = setting(None, ge=1)
    certified_radius: float = setting(0.5, ge=0)
    l2_cap: float = setting(1.0, gt=0)
    convergence: bool = False


@dataclass
class ComputeConf:
    """``threads: null`` leaves torch its default (all cores), shared out when a launcher runs jobs side by side."""

    threads: int | None = setting(None, ge=1)


@dataclass
class CacheConf:
    """Finished stages are kept in ``folder``; null means ``stages/`` inside the tracking folder."""

    folder: str | None = None


@dataclass
class Config:
    """One experiment: dataset × model × attack, with everything that decides its numbers."""

    dataset: Any = MISSING
    model: Any = MISSING
    attack: Any = MISSING
    surrogate: Any = None
    tune: TuneConf = MISSING
    tracking: TrackingConf = MISSING
    evaluation: EvaluationConf = field(default_factory=EvaluationConf)
    compute: ComputeConf = field(default_factory=ComputeConf)
    cache: CacheConf = field(default_factory=CacheConf)
    seed: int = setting(0, ge=0)
    checks: str = setting("auto", choices=("auto", "cheap", "full", "off"))
    on_existing: str = setting("reuse", choices=("reuse", "rerun"))
    strict: bool = False
    notes: str | None = None


def register() -> None:
    """Put the schemas where the YAML files refer to them (``/hydra/schema/...``).

    The group sits below ``hydra/`` because those groups are not listed as choices in ``--help``.
    """
    from pipeline.schema_attacks import ATTACKS

    store = ConfigStore.instance()
    store.store(name="config_schema", node=Config)
    models = {
        "adv_svm": AdvSVMConf,
        "adv_linear_svm": AdvLinearSVMConf,
        "svc": SVCConf,
        "kernel": KernelConf,
        "support_vectors": SupportVectorsConf,
        "random_features": RandomFeaturesConf,
    }
    groups = models | {"tune": TuneConf, "tracking": TrackingConf} | {f"attack_{k}": v for k, v in ATTACKS.items()}
    for name, node in groups.items():
        store.store(group="hydra/schema", name=name, node=node)
