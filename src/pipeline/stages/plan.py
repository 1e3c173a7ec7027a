"""The keys of all stages of an experiment, known before any of them runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf, open_dict

from pipeline.stages.build import takes
from pipeline.stages.keys import stage_key

_TUNED = ("C", "step")
# What may differ without changing a number.
_NO_RESULT = ("name", "cache_mb", "chunk_size")

# `tune` records the digests of the rows it saw, `certify` compares them.
_DIGESTS = "pipeline.data.digests"

# Attacks that search long for every single example.
_COSTLY = ("attacks.CarliniWagner", "attacks.ZOO", "attacks.Suite")


@dataclass(frozen=True)
class Plan:
    """Stage keys; ``signature`` is the identity of the whole run."""

    tune: str
    train: str
    certify: str
    attack: str
    evaluate: str
    surrogate: Plan | None = None

    @property
    def signature(self) -> str:
        """The last key of the chain."""
        return self.evaluate

    @property
    def entries(self) -> dict[str, str]:
        """Stage → key of everything the run may load or leave behind."""
        names = ("tune", "train", "certify", "attack", "evaluate")
        return {name: getattr(self, name) for name in names}


def checks_level(cfg: DictConfig) -> str:
    """``checks: auto`` resolved: everything for the suite, the cheap ones otherwise."""
    if cfg.checks != "auto":
        return cfg.checks
    return "full" if cfg.attack.name == "suite" else "cheap"


def attack_limit(cfg: DictConfig) -> int | None:
    """How many test rows this attack gets: the lower of the two limits of ``evaluation`` that apply to it."""
    limits = [cfg.evaluation.max_attacked]
    if cfg.attack._target_ in _COSTLY:
        limits.append(cfg.evaluation.max_attacked_costly)
    return min((limit for limit in limits if limit is not None), default=None)


def attack_label(cfg: DictConfig) -> str:
    """Name of the attack as it appears in runs and tables: ``pgd``, ``pgd from natural``."""
    return cfg.attack.name if cfg.surrogate is None else f"{cfg.attack.name} from {cfg.surrogate.name}"


def surrogate_config(cfg: DictConfig) -> DictConfig:
    """The experiment that trains the surrogate: the same data, tuning and seed, another model."""
    other = cfg.copy()
    with open_dict(other):
        other.model, other.surrogate = cfg.surrogate, None
    return other


def plan(cfg: DictConfig, fingerprint: str) -> Plan:
    """Chain the keys: each stage's key holds its own settings, its code and the key of the stage before it."""
    model = _plain(cfg.model)
    tune_settings = _plain(cfg.tune)
    tuned = {name for name in _TUNED if cfg.tune.enabled and name in model}
    fixed = {name: value for name, value in model.items() if name not in tuned}
    own_model, own_attack = _home(cfg.model), _home(cfg.attack)
    if cfg.tune.enabled:
        tune = stage_key(
            "tune",
            {"model": fixed, "tune": tune_settings},
            fingerprint,
            ("models", own_model, "pipeline.stages.tune", _DIGESTS),
        )
    else:
        tune = fingerprint
    # A model without randomness is trained once for all seeds.
    settings = {"model": fixed, "seed": cfg.seed if takes(cfg.model, "random_state") else None}
    train = stage_key("train", settings, tune, ("models", own_model, "pipeline.stages.train"))
    attack_settings = {"attack": _plain(cfg.attack), "max_attacked": attack_limit(cfg), "seed": cfg.seed}
    surrogate = plan(surrogate_config(cfg), fingerprint) if cfg.surrogate is not None else None
    if surrogate is not None:
        attack_settings["surrogate"] = surrogate.train
    attack = stage_key(
        "attack", attack_settings, train, ("models", own_model, "attacks", own_attack, "pipeline.stages.attack")
    )
    # Which attack it is decides nothing here but whether there are checks at all.
    checked = {"checks": checks_level(cfg) != "off"}
    certify_code = ("models", own_model, "attacks", "pipeline.checks", "pipeline.stages.certify", _DIGESTS)
    certify = stage_key("certify", checked, train, certify_code)
    # The limits belong to the attack's key: one that does not apply to an attack must not repeat its run.
    judged = {name: value for name, value in _plain(cfg.evaluation).items() if not name.startswith("max_attacked")}
    evaluation = {"evaluation": judged, "checks": checks_level(cfg), "strict": cfg.strict, "certified": certify}
    code = ["models", "attacks", "pipeline.checks", "pipeline.stages.bracket", "pipeline.stages.evaluate"]
    if cfg.evaluation.convergence:
        code.append("pipeline.experiments.convergence")
    evaluate = stage_key("evaluate", evaluation, attack, tuple(code))
    return Plan(tune, train, certify, attack, evaluate, surrogate)


def _home(node: DictConfig) -> str:
    """Top-level package or module of what a node builds: its code is part of the key, also when it is a user's own."""
    return str(node._target_).split(".")[0]


def _plain(node: DictConfig) -> dict[str, Any]:
    settings = OmegaConf.to_container(node, resolve=True)
    assert isinstance(settings, dict)
    return _without(settings)


def _without(settings: dict[Any, Any]) -> dict[str, Any]:
    kept = {str(key): value for key, value in settings.items() if key not in _NO_RESULT}
    return {key: _without(value) if isinstance(value, dict) else value for key, value in kept.items()}
