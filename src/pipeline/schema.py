"""Types and ranges of all settings.

Settings of models and attacks are declared once, by their constructors (:func:`constructor`); those of the pipeline are
the dataclasses here, with the range of every number in the field's ``metadata``. Hydra checks names and types while it
composes; :mod:`pipeline.validation` checks the ranges before any work starts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, AnyNode, BooleanNode, DictConfig, FloatNode, IntegerNode, OmegaConf, StringNode

from pipeline.arguments import arguments_of
from pipeline.errors import UserError


def setting(default: Any = MISSING, **limits: Any) -> Any:
    """A dataclass field with limits: ``gt``, ``ge``, ``lt``, ``le`` for numbers, ``choices`` for words."""
    return field(default=default, metadata=limits)


def _powers() -> list[float]:
    return [2.0**k for k in range(-3, 4)]


@dataclass
class TuneConf:
    """The k-fold grid; one serves all seeds of an experiment.

    ``step`` is the paper's γ, ``width_scale`` the kernel's width. ``norm`` and ``radius`` are the threat of the robust
    and the certified metric: null is that of the run's attack, or L2 at ``evaluation.l2_cap``. ``within`` chooses the
    most robust setting at most that far below the best accuracy (0.01 is one point); ``select: one_se`` the most
    accurate setting at most one standard error (over folds) less robust than the most robust. An axis is a list of
    values; null leaves the model's own alone.
    """

    name: str = MISSING
    enabled: bool = True
    folds: int = setting(5, ge=2)
    metric: str = setting("accuracy", choices=("accuracy", "certified_accuracy", "robust_accuracy"))
    norm: str | None = setting(None, choices=("l2", "linf"))
    radius: float | None = setting(None, ge=0)
    max_rows: int = setting(500, ge=1)
    select: str | None = setting(None, choices=("robust", "within", "one_se"))
    within: float | None = setting(None, ge=0, le=1)
    C: list[float] = field(default_factory=_powers, metadata={"each_gt": 0})
    step: list[float] = field(default_factory=_powers, metadata={"each_gt": 0})
    width_scale: list[float] | None = field(default=None, metadata={"each_gt": 0})
    epsilon: list[float] | None = field(default=None, metadata={"each_ge": 0})
    C_f: list[float] | None = field(default=None, metadata={"each_ge": 0, "each_le": 1})
    n_features: list[int] | None = field(default=None, metadata={"each_gt": 0})
    learning_rate: list[float] = field(default_factory=lambda: [0.02, 0.05, 0.1], metadata={"each_gt": 0})
    epochs: list[int] = field(default_factory=lambda: [5, 10], metadata={"each_gt": 0})
    seed: int = setting(0, ge=0, lt=2**32)


@dataclass
class TrackingConf:
    """Where runs are kept: SQLite in ``folder`` when ``uri`` is null, else an MLflow server.

    ``register`` names a registered model that the run's model becomes a version of.
    """

    name: str = MISSING
    uri: str | None = None
    folder: str = "mlruns"
    experiment: str = "advsvm"
    register: str | None = None


@dataclass
class EvaluationConf:
    """How the trained model is judged. Radii and caps are L2 distances in [0, 1] pixels."""

    max_attacked: int | None = setting(None, ge=1)
    max_attacked_costly: int | None = setting(None, ge=1)
    certified_radius: float = setting(0.5, ge=0)
    l2_cap: float = setting(1.0, gt=0)
    certify_seconds: float | None = setting(30.0, ge=0)
    metrics: list[str] = field(default_factory=list)
    checks: list[str] = field(default_factory=list)
    convergence: bool = False


@dataclass
class ComputeConf:
    """``threads: null`` leaves torch its default (all cores), shared out when a launcher runs jobs side by side."""

    threads: int | None = setting(None, ge=1)


@dataclass
class CacheConf:
    """Finished stages are kept in ``folder``; null means ``stages/`` inside the tracking folder.

    When they take more than ``max_gb`` at the end of a run, those not used for longest go; null = no limit.
    """

    folder: str | None = None
    max_gb: float | None = setting(None, gt=0)


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
    seed: int = setting(0, ge=0, lt=2**32)
    checks: str = setting("auto", choices=("auto", "cheap", "full", "off"))
    figures: str = "auto"
    on_existing: str = setting("reuse", choices=("reuse", "rerun"))
    strict: bool = False
    objective: str | None = None
    notes: str | None = None
    trusted: list[str] = field(default_factory=list)


def register() -> None:
    """Put the schemas where the YAML files refer to them.

    ``/hydra/schema/tune`` sits below ``hydra/`` because those groups are not listed as choices in ``--help``;
    ``/constructor/attacks.PGD`` is made on demand (:func:`constructor`).
    """
    store = ConfigStore.instance()
    store.store(name="config_schema", node=Config)
    for name, node in {"tune": TuneConf, "tracking": TrackingConf}.items():
        store.store(group="hydra/schema", name=name, node=node)
    OmegaConf.register_new_resolver("attack_ball", _attack_ball, replace=True)


def _attack_ball(part: str, otherwise: Any, *, _root_: DictConfig) -> Any:
    """``epsilon`` or ``norm`` of the run's attack, for models that train against it; ``otherwise`` if it has no ball.

    A minimum-norm attack has a norm without a radius: that is no ball to train against.
    """
    attack = _root_.attack
    return attack[part] if attack.get("epsilon") else otherwise


# What the pipeline itself decides: a run's seed, and the data's box and shape.
NOT_SETTINGS = ("random_state", "box", "image_shape")
_NODES: dict[type | None, Any] = {int: IntegerNode, float: FloatNode, bool: BooleanNode, str: StringNode, None: AnyNode}


def constructor(target: str) -> DictConfig:
    """The settings of a model, an attack or a part of them: the arguments of its constructor, with their types.

    A new one needs no schema: its YAML begins with ``defaults: [/constructor/my_module.MyAttack@_here_, _self_]``.
    """
    arguments = arguments_of(target)
    if arguments is None:
        raise UserError(f"{target}: no such class in this project or in a module of yours that Python finds")
    settings = OmegaConf.create({"_target_": target})
    for name, argument in arguments.items():
        if name not in NOT_SETTINGS:
            value = MISSING if argument.required else argument.default
            optional = {} if argument.kind is None else {"is_optional": argument.optional or value is None}
            settings._set_item_impl(name, _NODES[argument.kind](value, **optional))
    return settings
