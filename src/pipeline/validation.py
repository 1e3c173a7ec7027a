"""Check a composed configuration before any work: ranges, choices, values left open."""

from __future__ import annotations

import dataclasses
import importlib.util
import math
import re
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipeline import fitted, identity
from pipeline.arguments import arguments_of
from pipeline.cores import available_cores
from pipeline.errors import UserError, did_you_mean
from pipeline.paths import check_writable
from pipeline.schema import NOT_SETTINGS, Config
from pipeline.stages.base import AXES, axis_path
from pipeline.stages.build import LABELS, build, takes
from pipeline.stages.units import check_units

_COMPARISONS = {
    "gt": (lambda value, limit: value > limit, "greater than"),
    "ge": (lambda value, limit: value >= limit, "at least"),
    "lt": (lambda value, limit: value < limit, "less than"),
    "le": (lambda value, limit: value <= limit, "at most"),
}


def validate(cfg: DictConfig) -> None:
    """Raise :class:`UserError` naming the first setting that is missing or out of range."""
    check_groups(cfg)
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise UserError(f"{missing[0]} has no value: give one on the command line, {missing[0]}=…")
    if cfg.tracking.name == "server" and not cfg.tracking.uri:
        raise UserError("tracking.uri has no value: tracking=server needs the address, tracking.uri=http://…")
    for setting in ("folder", "experiment"):
        if not cfg.tracking[setting].strip():
            raise UserError(f"tracking.{setting} has no value: give one, or leave it out")
    if cfg.tracking.register is not None and not re.fullmatch(r"\w[\w .-]{0,99}", cfg.tracking.register):
        raise UserError(f"tracking.register: {cfg.tracking.register!r} must be letters, digits, spaces and . _ - only")
    if cfg.figures not in ("auto", "off"):
        from pipeline.figures.registry import load

        load(cfg.figures)
    for path, value, limits in _settings(cfg, ""):
        _check(_given_as(cfg, path, value), value, limits)
    _check_tuning(cfg.tune)
    check_units(cfg)
    if cfg.evaluation.convergence and importlib.util.find_spec("cvxpy") is None:
        raise UserError("evaluation.convergence needs cvxpy: pip install 'advsvm[convergence]'")
    from pipeline.data import check_settings

    check_settings(cfg.dataset)
    fitted.check(cfg)
    most = 4 * available_cores()
    if cfg.compute.threads is not None and cfg.compute.threads > most:
        raise UserError(f"compute.threads must be at most {most}, four for every core; got {cfg.compute.threads}")
    for name, other in (("natural", "adv_svm_d"), ("dnn_natural", "dnn_standard")):
        if cfg.model.name == name and cfg.model.get("epsilon"):
            raise UserError(f"model.epsilon={cfg.model.epsilon:g}: a natural model has none; take model={other}")
    if cfg.evaluation.convergence and not takes(cfg.model, "expansion"):
        raise UserError(f"evaluation.convergence: {cfg.model.name} has no iterates of a kernel machine")
    if cfg.cache.folder is not None:
        check_writable("cache.folder", cfg.cache.folder, make=False)


def _given_as(cfg: DictConfig, path: str, value: Any) -> str:
    """``model.C`` for an axis of the grid that is there because of it (`fix_axes`), else the path itself."""
    axis = path.removeprefix("tune.")
    origin = axis_path(cfg, axis) if path.startswith("tune.") and axis in AXES else None
    return origin if origin is not None and value == [OmegaConf.select(cfg, origin)] else path


def check_groups(cfg: DictConfig) -> None:
    """Raise :class:`UserError` unless all settings are there, every group chosen, and its name fit for a file's."""
    gone = [f.name for f in dataclasses.fields(Config) if f.name not in list(cfg)]  # not: those without a value
    if gone:
        raise UserError(f"~{gone[0]}: this setting cannot be taken out; give it another value")
    for group in ("dataset", "model", "attack", "tune", "tracking"):
        if not isinstance(cfg[group], DictConfig):
            raise UserError(f"{group}={cfg[group]}: choose one; python -m pipeline.run --help lists them")
        name = str(cfg[group].get("name") or "")
        if not name.strip() or re.search(r"[/\\\x00-\x1f]", name) or name.startswith("."):
            raise UserError(f"{group}.name must be a name without / and control characters; got {name!r}")
    if cfg.surrogate is not None and not isinstance(cfg.surrogate, DictConfig):
        raise UserError(f"surrogate={cfg.surrogate}: choose a model, model@surrogate={cfg.surrogate}")


def check_rows(cfg: DictConfig, y: Any) -> None:
    """Raise :class:`UserError` when the training rows are too few, or too many, for what is asked of them."""
    import numpy as np

    labels, counts = np.unique(y, return_counts=True)
    fewest, label = int(counts.min()), labels[counts.argmin()]
    if len(labels) < 2:
        raise UserError(f"dataset: all training rows are of class {label}; raise dataset.max_train")
    if cfg.tune.enabled and cfg.tune.folds > fewest:
        raise UserError(
            f"tune.folds={cfg.tune.folds}: class {label} has {fewest} training rows; use fewer folds or tune=none"
        )
    if cfg.evaluation.convergence:
        from pipeline.stages import convergence

        convergence.check(cfg, y)


def _settings(node: DictConfig, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    limits = _limits(node, path)
    for key in node:
        value, here = node[key], f"{path}{key!s}"
        if isinstance(value, DictConfig):
            yield from _settings(value, f"{here}.")
        else:
            yield here, value, limits.get(str(key), {})


def _limits(node: DictConfig, path: str) -> dict[str, dict[str, Any]]:
    """Limits by setting: of the schema's fields, or of the constructor that the settings are for."""
    schema = OmegaConf.get_type(node)
    if dataclasses.is_dataclass(schema):
        return {f.name: {**f.metadata, "list": str(f.type).startswith("list")} for f in dataclasses.fields(schema)}
    arguments = arguments_of(str(node._target_)) if "_target_" in node else None
    if arguments is None:
        return {}
    known = LABELS if path.startswith("attack.") else ("name",)
    unknown = [str(key) for key in node if key not in {"_target_", *known, *arguments} or key in NOT_SETTINGS]
    if unknown:
        kind = str(node._target_).rsplit(".", 1)[-1]
        hint = "; the pipeline gives it" if unknown[0] in NOT_SETTINGS else did_you_mean(unknown[0], arguments)
        raise UserError(f"{path}{unknown[0]}: {kind} has no such setting{hint}")
    return {name: argument.limits for name, argument in arguments.items()}


def _check(path: str, value: Any, limits: dict[str, Any]) -> None:
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{path} must be a finite number; got {value}")
    if limits.get("list") and not OmegaConf.is_list(value):  # ${seed} is not looked at when it is given
        raise UserError(f"{path} must be a list, [A,B]; got {value}")
    if "words" in limits:
        if value in limits["words"]:
            return
        if not isinstance(value, int):
            raise UserError(f"{path} must be a whole number or {' or '.join(limits['words'])}; got {value}")
    for name, (holds, words) in _COMPARISONS.items():
        if name in limits and not holds(value, limits[name]):
            raise UserError(f"{path} must be {words} {limits[name]}; got {value}")
    each = {name.removeprefix("each_"): limit for name, limit in limits.items() if name.startswith("each_")}
    if each and len(value) == 0:
        raise UserError(f"{path} must list at least one value")
    for item in value if each else ():
        for name, limit in each.items():
            holds, words = _COMPARISONS[name]
            if not (isinstance(item, (int, float)) and math.isfinite(item) and holds(item, limit)):
                raise UserError(f"{path} must hold numbers {words} {limit}; got {item}")
    if "choices" in limits and value not in limits["choices"]:
        raise UserError(
            f"{path} must be one of {', '.join(limits['choices'])}; got {value}{did_you_mean(value, limits['choices'])}"
        )


def check_by_building(cfg: DictConfig) -> None:
    """Let the constructors judge their arguments; what they refuse is said of the setting. Imports torch."""
    for group in ("model", "attack", "surrogate"):
        if cfg[group] is None:
            continue
        try:
            built = build(cfg[group], random_state=cfg.seed)
            _check_settings_of(built)
        except UserError:
            raise
        except Exception as error:
            raise UserError(_refusal(group, cfg[group], error)) from error
    from hydra.utils import get_method

    for setting, find in (("metrics", get_method), ("checks", importlib.import_module)):
        for path in cfg.evaluation[setting]:
            try:
                find(path)
            except Exception as error:
                reason = " ".join(str(error.__cause__ or error).split())
                raise UserError(f"evaluation.{setting}: {path} cannot be had ({reason})") from error


def _check_settings_of(built: Any) -> None:
    """What estimators look at when they are fitted: ours by ``models.limits``, scikit-learn's by their own table."""
    from sklearn.base import BaseEstimator

    own = getattr(type(built), "_validate_params", None)
    if own is not None and (own is not BaseEstimator._validate_params or hasattr(built, "_parameter_constraints")):
        built._validate_params()


def _refusal(group: str, node: DictConfig, error: Exception) -> str:
    """What a constructor said, with the setting's full name in front."""
    path = re.search(r"full_key: (\S+)", str(error))
    cause = error.__cause__ or error
    home = ".".join([group, *([path[1]] if path else [])])
    text = " ".join(str(cause).split())
    named = re.match(r"([\w.]*?)(\w+)(?=[ =])", text)
    if named and named[2] in (OmegaConf.select(node, path[1]) if path else node):
        return f"{home}.{text.removeprefix(named[1])}"
    return f"{home}: {text}" if text else f"{home}: {type(cause).__name__}"


def _check_tuning(tune: DictConfig) -> None:
    """Refuse settings of the grid that its metric or its rule would ignore."""
    if not tune.enabled:
        return
    if tune.metric == "accuracy":
        unheard = next((name for name in ("norm", "radius", "select", "within") if tune[name] is not None), None)
        if unheard:
            raise UserError(f"tune.{unheard}: tuning by accuracy knows no threat; take tune=robust or tune=certified")
    if tune.norm is not None and tune.radius is None:
        raise UserError(f"tune.norm={tune.norm} needs a radius in that norm: give tune.radius, too")
    if (tune.select == "within") > (tune.within is not None):
        raise UserError("tune.select=within: give tune.within, 0.01 for one point of accuracy")
    if tune.select not in (None, "within") and tune.within is not None:
        raise UserError(f"tune.select={tune.select} and tune.within are both given: leave one of them out")
    if tune.max_rows < tune.folds:
        raise UserError(f"tune.max_rows must be at least tune.folds={tune.folds}; got {tune.max_rows}")


def fix_axes(cfg: DictConfig, overrides: list[str]) -> list[str]:
    """Let a setting that the user gave win over the grid that would choose it: its axis becomes that one value.

    Returns a line for each; raises :class:`UserError` where the user asked for both, or for what a model has not.
    """
    given = {override.lstrip("+").split("=")[0] for override in overrides} | set(identity.given_of_model(cfg))
    if not cfg.tune.enabled:
        return []
    notes = []
    if fitted.is_fitted(cfg):
        if any(name == "tune" or name.startswith("tune.") for name in given):
            raise UserError("tune: the model of model.path is fitted already, there is nothing to tune; leave it out")
        cfg.tune.enabled, cfg.tune.name = False, "none"
        return []
    for axis in AXES:
        path = axis_path(cfg, axis)
        if path is None and f"tune.{axis}" in given:
            raise UserError(f"tune.{axis}: the model {cfg.model.name} has no {axis} to tune")
        if any(f"surrogate.{part}{axis}" in given for part in ("", "kernel.", "expansion.")) and cfg.tune[axis]:
            raise UserError(f"surrogate.{axis}: the grid of tune chooses it; tune=none uses the value given")
        if path not in given or cfg.tune[axis] is None:
            continue
        if f"tune.{axis}" in given:
            raise UserError(f"{path} and tune.{axis} are both given: leave one of them out")
        value = OmegaConf.select(cfg, path)
        cfg.tune[axis] = [value]
        notes.append(f"{path}={value:g} is given: the grid does not vary it")
    width = next((path for path in ("model.gamma", "model.kernel.gamma") if OmegaConf.select(cfg, path)), None)
    if width and cfg.tune.width_scale is not None:
        if "tune.width_scale" in given:
            raise UserError(f"{width} fixes the kernel's width, and tune.width_scale would vary it: leave one out")
        cfg.tune.width_scale = None
        notes.append(f"{width}={OmegaConf.select(cfg, width):g} is given: the grid does not vary the width")
    if cfg.model.name == "natural" and cfg.tune.epsilon is not None:
        raise UserError("tune.epsilon: a natural model has no epsilon to tune; take model=adv_svm_d")
    return notes
