"""What a run is, in one place: its settings, what tells it from other runs, and its name.

Everything here is computed from resolved, flat settings (``model.C``, ``attack.epsilon``, …), so that a run name, the
rows of a table, a summary, a report and the columns of the MLflow UI never tell two different runs alike.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

from omegaconf import DictConfig, OmegaConf

from pipeline.stages.base import AXES, HOMES, NO_RESULT, axis_path

# Where a run is computed and kept: no number depends on it.
NO_RESULT_GROUPS = (
    "threat", "chosen", "tracking", "compute", "cache", "figures", "on_existing", "objective", "notes", "trusted",
)  # fmt: skip
CORE = ("dataset", "model", "attack", "seed")
# Not settings of what is computed, but the names that the core labels show.
_SHOWN = ("dataset.name", "model.name", "attack.name", "surrogate.name", "seed")


def flat(cfg: DictConfig) -> dict[str, str]:
    """The resolved configuration as ``{"model.C": "1.0", …}``; lists keep their brackets."""
    settings: dict[str, str] = {}

    def walk(node: Any, path: str) -> None:
        if isinstance(node, dict):
            for key, value in node.items():
                walk(value, f"{path}.{key}" if path else str(key))
        else:
            settings[path] = str(node)

    walk(OmegaConf.to_container(cfg, resolve=True), "")
    return settings


def core(settings: Mapping[str, str]) -> dict[str, str]:
    """Dataset, model, attack (``pgd``, ``pgd from natural``) and seed, from flat settings."""
    labels = {name: settings.get(f"{name}.name", "") for name in CORE[:3]} | {"seed": settings.get("seed", "")}
    if "surrogate.name" in settings:
        labels["attack"] += f" from {settings['surrogate.name']}"
    return labels


def decisive(settings: Mapping[str, str]) -> dict[str, str]:
    """Without what changes no result, and without parameters that are results themselves.

    A tracked run names those in ``chosen``; the axes of a grid with several values are known without it.
    """
    left_out = set(settings.get("chosen", "").split(","))
    if settings.get("tune.enabled") == "True":
        varied = [name for name in AXES if "," in settings.get(f"tune.{name}", "")]
        left_out |= {f"{home}.{name}" for name in varied for home in HOMES}
    elif "tune.enabled" in settings:  # no grid: what it would be made of decides nothing
        left_out |= {key for key in settings if key.startswith("tune.")} - {"tune.name", "tune.enabled"}
    return {
        key: value
        for key, value in settings.items()
        if key.split(".")[0] not in NO_RESULT_GROUPS and key.split(".")[-1] not in NO_RESULT and key not in left_out
    }


def distinguish(runs: Sequence[Mapping[str, str]]) -> list[dict[str, str]]:
    """Per run, the settings that tell it from the others of the same dataset, model and attack, most important first.

    Settings that follow from others (the metric from the choice of ``tune``) are left out: two runs have equal mappings
    exactly when they differ in nothing but the seed.
    """
    known = [decisive(run) for run in runs]
    first = [tuple(value for name, value in core(run).items() if name != "seed") for run in runs]
    cells: list[Any] = list(first)
    keys = []
    for key in sorted(set().union(*known) - set(_SHOWN), key=_importance):
        values = [run.get(key) for run in known]
        if all(value == run.get("seed") for value, run in zip(values, known)):
            continue  # tune.seed=${seed}
        finer = list(zip(cells, values))
        if len(set(finer)) > len(set(cells)):
            keys.append(key)
            cells = finer
    within: dict[tuple[Any, str], set[Any]] = {}
    for cell, run in zip(first, known):
        for key in keys:
            within.setdefault((cell, key), set()).add(run.get(key))
    return [
        {key: run[key] for key in keys if key in run and len(within[cell, key]) > 1} for cell, run in zip(first, known)
    ]


def _importance(key: str) -> tuple[Any, ...]:
    """Names first, then kinds (``_target_``), then numbers; what a model is made of before how it was tuned."""
    path = key.split(".")
    groups = ("model", "attack", "dataset", "tune")
    group = groups.index(path[0]) if path[0] in groups else len(groups)
    return (path[-1] != "name", path[-1] != "_target_", group, len(path), key)


def words(settings: Mapping[str, str]) -> list[str]:
    """Settings as people read them: ``epsilon=0.1``, ``support_vectors``, ``tune=certified``; pixels as n/255."""
    said = []
    for key, value in settings.items():
        path = key.split(".")
        if path[-1] == "_target_":
            said.append(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", value.rsplit(".", 1)[-1]).lower())
        elif path[-1] == "name":
            said.append(f"{path[0]}={value}")
        else:
            said.append(f"{_short(path)}={_number(value)}")
    return said


def _short(path: list[str]) -> str:
    # epsilon is the model's and the attack's, steps that of one attack of a suite: they keep their owner's name.
    if path[0] in ("attack", "surrogate"):
        return ".".join(path)
    # A limit of one feature, dataset.box.age, is not a setting called age.
    return ".".join((path[0], path[-1])) if path[0] in ("model", "tune") else ".".join(path[1:] or path)


def _number(value: str) -> str:
    """8/255 for 0.03137254901960784; other numbers in at most six digits."""
    if not re.fullmatch(r"-?\d+\.\d{7,}(e-?\d+)?", value):
        return value
    number = float(value)
    pixels = number * 255
    return f"{round(pixels)}/255" if pixels >= 0.5 and abs(pixels - round(pixels)) < 1e-9 else f"{number:.6g}"


def given(cfg: DictConfig) -> dict[str, str]:
    """The settings that are not what the named dataset, model, attack and tuning come with."""
    here, usual = decisive(flat(cfg)), _usual(cfg)
    # A setting that is off is no news of a choice that brings it along.
    differing = {key: here[key] for key in sorted(here, key=_importance) if usual.get(key, "None") != here[key]}
    tuning = {} if cfg.tune.name == _usual(None).get("tune.name") else {"tune.name": cfg.tune.name}
    # A fixed axis of the grid is said once: by the model's setting.
    for axis in AXES:
        key, own = f"tune.{axis}", axis_path(cfg, axis)
        if key in differing and own in here and differing[key] == f"[{here[own]}]":
            del differing[key]
            differing[own] = here[own]
    return tuning | {key: value for key, value in differing.items() if key not in _SHOWN}


def given_of_model(cfg: DictConfig) -> list[str]:
    """The model's settings that are not what its name comes with, also those that a grid would choose."""
    here, usual = flat(cfg), _usual(cfg)
    return [key for key in here if key.startswith("model.") and key in usual and usual[key] != here[key]]


# What a choice of names comes with, per configuration loader: composing takes tenths of a second and is asked often.
_composed: WeakKeyDictionary[Any, dict[Any, dict[str, str]]] = WeakKeyDictionary()


def _usual(cfg: DictConfig | None) -> dict[str, str]:
    """The flat settings that the named choices of ``cfg`` come with, composed without anything else."""
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig

    if not GlobalHydra.instance().is_initialized():
        return {} if cfg is None else flat(cfg)
    loader = GlobalHydra.instance().config_loader()
    hydra = HydraConfig.get() if HydraConfig.initialized() else None
    names = {} if cfg is None else {group: cfg[group].name for group in ("dataset", "model", "attack", "tune")}
    if cfg is not None and cfg.surrogate is not None:
        names["model@surrogate"] = cfg.surrogate.name
    # A file may give its choice another name.
    choices = {} if hydra is None else hydra.runtime.choices
    chosen = {group: (name, choices.get(group)) for group, name in names.items()}
    config_name = hydra.job.config_name if hydra else "config"
    known, key = _composed.setdefault(loader, {}), (config_name, *chosen.items())
    if key not in known:
        as_named = cfg is not None and hydra is not None and _only_names(typed(hydra), names)
        known[key] = flat(cfg) if cfg is not None and as_named else _compose(loader, config_name, chosen)
    return known[key]


def typed(hydra: Any) -> list[str]:
    """The overrides as they were typed: ${…} of a value is not Hydra's to resolve."""
    overrides: Any = OmegaConf.to_container(hydra.overrides.task)
    return overrides


def _only_names(overrides: Any, names: Mapping[str, str]) -> bool:
    """Whether a job was asked for by nothing but the names of its choices: then it is what they come with."""
    pairs = (text.partition("=")[::2] for text in overrides)
    return all(names.get(key) == value or key.split(".")[0] in NO_RESULT_GROUPS for key, value in pairs)


def _compose(loader: Any, config_name: str | None, chosen: Mapping[str, tuple[str, str | None]]) -> dict[str, str]:
    from hydra.types import RunMode

    overrides = []
    for group, (name, choice) in chosen.items():
        options = loader.get_group_options(group.split("@")[0])
        if name in options or choice in options:
            overrides.append(f"{group}={name if name in options else choice}")
    composed = loader.load_configuration(config_name, overrides, RunMode.RUN)
    return flat(OmegaConf.create({n: composed._get_node(n) for n in composed if n != "hydra"}))


def run_name(cfg: DictConfig) -> str:
    """``adv_svm_c · pgd · mnist_1v7 · seed 0``, then what is not as usual: ``· attack.epsilon=16/255``."""
    start = "{model} · {attack} · {dataset} · seed {seed}".format(**core(flat(cfg)))
    return " · ".join([start, *words(given(cfg))])
