"""The list of checks and the loop that runs them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from pipeline.checks.base import Check, CheckContext, Verdict, failed, skipped
from pipeline.checks.parts import NotApplicable

_FAMILIES = ("gradients", "bounds", "ordering", "effort", "certificates", "provenance", "training")
# Families that ask how well an attack did on the model it saw.
_OF_THE_ATTACK = ("ordering", "effort")
LEVELS = ("off", "cheap", "full")


@dataclass(frozen=True)
class Registered:
    """A check, and the level from which on it runs."""

    id: str
    level: str
    run: Callable[[CheckContext], Verdict]


_known: dict[str, Registered] = {}


def check(id: str, level: str = "cheap") -> Callable[[Callable[[CheckContext], Verdict]], Any]:
    """Register a check under a readable id; ``full`` marks those that train or attack again at length."""

    def register(run: Callable[[CheckContext], Verdict]) -> Callable[[CheckContext], Verdict]:
        _known[id] = Registered(id, level, run)
        return run

    return register


def all_checks() -> list[Registered]:
    """Every check there is, by id."""
    for family in _FAMILIES:
        import_module(f"pipeline.checks.{family}")
    return [_known[id] for id in sorted(_known)]


def run_checks(context: CheckContext, level: str) -> list[Check]:
    """Run the checks of a level (``off``, ``cheap``, ``full``); the others are listed with the reason.

    An exception inside a check is a failure of the run's trustworthiness like any other: it becomes a ``fail``.
    """
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")
    return [] if level == "off" else [run_check(entry, context, level) for entry in all_checks()]


def run_check(entry: Registered, context: CheckContext, level: str = "full") -> Check:
    """Run one check."""
    if entry.level == "full" and level != "full":
        return Check(entry.id, "skipped", "costly: runs with checks=full, which attack=suite turns on")
    if context.cfg.get("surrogate") is not None and entry.run.__module__.endswith(_OF_THE_ATTACK):
        return Check(entry.id, "skipped", "the examples were made against a surrogate, not by an attack on this model")
    started = time.perf_counter()
    try:
        verdict = entry.run(context)
    except NotApplicable as reason:
        verdict = skipped(str(reason))
    except Exception as error:
        where = traceback.format_exc(limit=-3)
        verdict = failed(f"the check itself stopped: {type(error).__name__}: {error}", exception=where)
    evidence = {k: _plain(v) for k, v in verdict.evidence.items()} | {
        "seconds": round(time.perf_counter() - started, 3)
    }
    return Check(entry.id, verdict.status, verdict.message, evidence)


def _plain(value: Any) -> Any:
    """As JSON: numbers rounded to what a reader needs, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else str(value)
    return value
