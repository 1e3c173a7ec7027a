"""Check a composed configuration before any work: ranges, choices, values left open."""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterator
from typing import Any

from omegaconf import DictConfig, OmegaConf

from pipeline.errors import UserError

_COMPARISONS = {
    "gt": (lambda value, limit: value > limit, "greater than"),
    "ge": (lambda value, limit: value >= limit, "at least"),
    "lt": (lambda value, limit: value < limit, "less than"),
    "le": (lambda value, limit: value <= limit, "at most"),
}


def validate(cfg: DictConfig) -> None:
    """Raise :class:`UserError` naming the first setting that is missing or out of range."""
    missing = sorted(OmegaConf.missing_keys(cfg))
    if missing:
        raise UserError(f"{missing[0]} has no value: give one on the command line, {missing[0]}=…")
    if cfg.tracking.name == "server" and not cfg.tracking.uri:
        raise UserError("tracking.uri has no value: tracking=server needs the address, tracking.uri=http://…")
    for path, value, limits in _settings(cfg, ""):
        _check(path, value, limits)


def _settings(node: DictConfig, path: str) -> Iterator[tuple[str, Any, dict[str, Any]]]:
    schema = OmegaConf.get_type(node)
    limits = {f.name: dict(f.metadata) for f in dataclasses.fields(schema)} if dataclasses.is_dataclass(schema) else {}
    for key in node:
        value, here = node[key], f"{path}{key!s}"
        if isinstance(value, DictConfig):
            yield from _settings(value, f"{here}.")
        else:
            yield here, value, limits.get(str(key), {})


def _check(path: str, value: Any, limits: dict[str, Any]) -> None:
    if value is None:
        return
    if isinstance(value, float) and not math.isfinite(value):
        raise UserError(f"{path} must be a finite number; got {value}")
    for name, (holds, words) in _COMPARISONS.items():
        if name in limits and not holds(value, limits[name]):
            raise UserError(f"{path} must be {words} {limits[name]}; got {value}")
    if "each_gt" in limits:
        if len(value) == 0:
            raise UserError(f"{path} must list at least one value")
        for item in value:
            if not (math.isfinite(item) and item > limits["each_gt"]):
                raise UserError(f"{path} must hold numbers greater than {limits['each_gt']}; got {item}")
    if "choices" in limits and value not in limits["choices"]:
        raise UserError(
            f"{path} must be one of {', '.join(limits['choices'])}; got {value}{did_you_mean(value, limits['choices'])}"
        )


def did_you_mean(word: str, choices: Any) -> str:
    """`` (did you mean X?)`` when a choice is close to the word, else nothing."""
    close = difflib.get_close_matches(str(word), [str(c) for c in choices], n=1)
    return f" (did you mean {close[0]}?)" if close else ""
