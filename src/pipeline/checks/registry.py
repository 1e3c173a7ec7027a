"""The list of checks and the loop that runs them."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any

import numpy as np

from pipeline.checks.base import Check, Verdict, failed, skipped, worst
from pipeline.checks.context import CheckContext, ModelContext
from pipeline.checks.parts import NotApplicable

_FAMILIES = ("gradients", "bounds", "ordering", "effort", "certificates", "provenance", "training")
# Families that ask how well an attack did on the model it saw.
_OF_THE_ATTACK = ("ordering", "effort")
LEVELS = ("off", "cheap", "full")


@dataclass(frozen=True)
class Registered:
    """A check, the level from which on it runs, and what it asks: of the model, of the run, or of both.

    What is asked of the model has the same answer whatever the attack, and is asked once per trained model.
    """

    id: str
    level: str
    of_model: Callable[[ModelContext], Verdict] | None = None
    of_run: Callable[[CheckContext], Verdict] | None = None


_known: dict[str, Registered] = {}


def check(id: str, level: str = "cheap") -> Callable[[Callable[[CheckContext], Verdict]], Any]:
    """Register what a check asks of a run; ``full`` marks those that train or attack again at length."""

    def register(question: Callable[[CheckContext], Verdict]) -> Callable[[CheckContext], Verdict]:
        _known[id] = replace(_known.get(id, Registered(id, level)), level=level, of_run=question)
        return question

    return register


def model_check(id: str, level: str = "cheap") -> Callable[[Callable[[ModelContext], Verdict]], Any]:
    """Register what a check asks of a model; one id may have a question of both kinds."""

    def register(question: Callable[[ModelContext], Verdict]) -> Callable[[ModelContext], Verdict]:
        _known[id] = replace(_known.get(id, Registered(id, level)), level=level, of_model=question)
        return question

    return register


def all_checks() -> list[Registered]:
    """Every check there is, by id."""
    for family in _FAMILIES:
        import_module(f"pipeline.checks.{family}")
    return [_known[id] for id in sorted(_known)]


def check_model(context: ModelContext, level: str) -> list[Check]:
    """Ask the cheap questions that concern the model alone; nothing at level ``off``."""
    _validate(level)
    cheap = [] if level == "off" else [entry for entry in all_checks() if entry.level == "cheap"]
    return [_ask(entry.id, entry.of_model, context) for entry in cheap if entry.of_model is not None]


def run_checks(context: CheckContext, level: str, of_model: list[Check] | None = None) -> list[Check]:
    """Run the checks of a level (``off``, ``cheap``, ``full``); the others are listed with the reason.

    ``of_model`` holds what `check_model` found; what is not in it is asked here.
    """
    _validate(level)
    found = {check.id: check for check in of_model or []}
    entries = [] if level == "off" else all_checks()
    return [run_check(entry, context, level, found.get(entry.id)) for entry in entries]


def run_check(entry: Registered, context: CheckContext, level: str = "full", of_model: Check | None = None) -> Check:
    """Run one check: both its questions, where it has two."""
    if entry.level == "full" and level != "full":
        return Check(entry.id, "skipped", "costly: runs with checks=full, which attack=suite turns on")
    answers = []
    if entry.of_model is not None:
        answers.append(of_model or _ask(entry.id, entry.of_model, context))
    if entry.of_run is not None:
        transferred = context.cfg.get("surrogate") is not None and entry.of_run.__module__.endswith(_OF_THE_ATTACK)
        reason = "the examples were made against a surrogate, not by an attack on this model"
        answers.append(Check(entry.id, "skipped", reason) if transferred else _ask(entry.id, entry.of_run, context))
    if len(answers) == 1:
        return answers[0]
    verdict = worst([Verdict(answer.status, answer.message, answer.evidence) for answer in answers])
    summed = {"seconds": round(sum(answer.evidence.get("seconds", 0.0) for answer in answers), 4)}
    traces = [answer.evidence["exception"] for answer in answers if answer.stopped]
    if traces:
        summed["exception"] = "\n".join(traces)
    return Check(entry.id, verdict.status, verdict.message, verdict.evidence | summed)


def _ask(id: str, question: Callable[[Any], Verdict], context: ModelContext) -> Check:
    """An exception inside a check is a failure of the run's trustworthiness like any other: it becomes a ``fail``."""
    started = time.perf_counter()
    try:
        verdict = question(context)
    except NotApplicable as reason:
        verdict = skipped(str(reason))
    except Exception as error:
        where = traceback.format_exc(limit=-3)
        verdict = failed(f"the check itself stopped: {type(error).__name__}: {error}", exception=where)
    evidence = {name: _plain(value) for name, value in verdict.evidence.items()}
    return Check(id, verdict.status, verdict.message, evidence | {"seconds": round(time.perf_counter() - started, 4)})


def _validate(level: str) -> None:
    if level not in LEVELS:
        raise ValueError(f"level must be one of {', '.join(LEVELS)}, got {level!r}")


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
