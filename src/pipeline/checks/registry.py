"""What a check says, how one is registered, and the loop that asks them all."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from importlib import import_module
from pkgutil import iter_modules
from typing import Any, NamedTuple

import numpy as np

from pipeline.checks.context import CheckContext, ModelContext, NotApplicable, Part


@dataclass(frozen=True)
class Check:
    """The outcome of one check: ``pass``, ``warn``, ``fail``, or ``skipped`` with the reason in ``message``."""

    id: str
    status: str
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)

    @property
    def stopped(self) -> bool:
        """Whether it failed by an exception of its own, which another attempt may not meet."""
        return "exception" in self.evidence


def passed(message: str, **evidence: Any) -> Check:
    """The promise was tested and held. (The registry adds the id of what these four return.)"""
    return Check("", "pass", message, evidence)


def warned(message: str, **evidence: Any) -> Check:
    """Nothing is proved wrong, but a reader must know."""
    return Check("", "warn", message, evidence)


def failed(message: str, **evidence: Any) -> Check:
    """The promise is broken: the run's numbers cannot be trusted."""
    return Check("", "fail", message, evidence)


def skipped(reason: str, **evidence: Any) -> Check:
    """The check could not be evaluated, and why."""
    return Check("", "skipped", reason, evidence)


def worst(answers: list[Check]) -> Check:
    """The gravest of several answers with the messages of all that are as grave; evidence of all."""
    order = ("skipped", "pass", "warn", "fail")
    status = max((answer.status for answer in answers), key=order.index)
    evidence = {name: value for answer in answers for name, value in answer.evidence.items()}
    message = "; ".join(dict.fromkeys(answer.message for answer in answers if answer.status == status))
    return Check(answers[0].id, status, message, evidence)


@dataclass(frozen=True)
class RegisteredCheck:
    """A check, the level from which on it runs, and what it asks: of the model, of the run, or of both.

    What is asked of the model has the same answer whatever the attack, and is asked once per trained model. ``direct``:
    the run's question is about an attack on this very model, not about examples made against a surrogate.
    """

    id: str
    level: str
    of_model: Callable[[ModelContext], Check] | None = None
    of_run: Callable[[CheckContext], Check] | None = None
    direct: bool = False
    module: str = __package__
    """Where it was written; a user's own are asked only in runs that name their module."""
    general: frozenset[tuple[str, str]] = frozenset()
    """What its questions, ``of_model`` and ``of_run``, do not ask for: two classes, an attacker without limits."""

    def ask(self, kind: str, context: Any) -> Check:
        """One of the two questions, or why it says nothing about these data."""
        data = context.data
        limited = kind == "of_run" and context.constraints is not None
        if (kind, "classes") not in self.general and data.n_classes > 2:
            return Check(self.id, "skipped", f"it looks at the one score of two classes; there are {data.n_classes}")
        if (kind, "limits") not in self.general and limited:
            reason = "it expects an attacker without limits of single features (dataset.mutable, raw units)"
            return Check(self.id, "skipped", reason)
        return _ask(self.id, getattr(self, kind), context)


_known: dict[str, RegisteredCheck] = {}


def _register(id: str, level: str, kind: str, question: Any, general: bool | str = False, **more: Any) -> Any:
    more = {"module": question.__module__} | more
    known = _known.get(id, RegisteredCheck(id, level))
    names = ("classes", "limits") if general is True else (general,) if general else ()
    everywhere = known.general | {(kind, name) for name in names}
    _known[id] = replace(known, level=level, general=everywhere, **{kind: question}, **more)
    return question


def of_model(id: str, level: str = "cheap", *, general: bool | str = False) -> Callable[[Any], Any]:
    """Register what a check asks of a model; one id may have a question of a model and one of a run.

    ``general``, here and below: it makes sense for any number of classes and for an attacker with limits; or for one of
    these alone, ``"classes"`` or ``"limits"``.
    """
    return lambda question: _register(id, level, "of_model", question, general)


def of_run(id: str, level: str = "cheap", *, direct: bool = False, general: bool | str = False) -> Callable[[Any], Any]:
    """Register what a check asks of a run; ``full`` marks those that train or attack again at length."""
    return lambda question: _register(id, level, "of_run", question, general, direct=direct)


class Among(NamedTuple):
    """Which attacks of a run a check is about, and why it is skipped where there is none."""

    parts: Callable[[CheckContext], list[Part]]
    otherwise: str = "nothing was attacked: attack=none or radius 0"


ALL = Among(lambda context: context.parts)
BOUNDED = Among(lambda context: [p for p in context.parts if p.bounded], "no attack of this run has an epsilon")
UNBOUNDED = Among(
    lambda context: [p for p in context.parts if not p.bounded], "there is no minimum-norm attack in this run"
)


def of_attack(
    id: str, level: str = "cheap", *, among: Among = ALL, direct: bool = False, general: bool | str = False
) -> Callable[[Any], Any]:
    """Register what a check asks of every attack of a run (a suite has several) out of ``among``.

    The evidence of each is marked with its name.
    """

    def register(question: Callable[[CheckContext, Part], Check]) -> Callable[[CheckContext, Part], Check]:
        def of_each(context: CheckContext) -> Check:
            answers = [(part.name, question(context, part)) for part in among.parts(context)]
            named = [
                replace(answer, evidence={f"{name}_{key}": value for key, value in answer.evidence.items()})
                for name, answer in answers
            ]
            return worst(named) if named else skipped(among.otherwise)

        _register(id, level, "of_run", of_each, general, direct=direct, module=question.__module__)
        return question

    return register


def all_checks(more: Iterable[str] = ()) -> list[RegisteredCheck]:
    """Every check there is, by id: those of all modules of this package, and of the modules named in ``more``."""
    import pipeline.checks as package

    asked = [*(f"{package.__name__}.{module.name}" for module in iter_modules(package.__path__)), *more]
    for module in asked:
        import_module(module)
    return [_known[id] for id in sorted(_known) if _known[id].module in asked]


def check_model(context: ModelContext, level: str) -> list[Check]:
    """Ask the cheap questions that concern the model alone; nothing at level ``off``."""
    entries = [] if level == "off" else all_checks(context.cfg.evaluation.checks)
    cheap = [entry for entry in entries if entry.level == "cheap"]
    return [entry.ask("of_model", context) for entry in cheap if entry.of_model is not None]


def run_checks(context: CheckContext, level: str, of_model: list[Check] | None = None) -> list[Check]:
    """Run the checks of a level (``off``, ``cheap``, ``full``); the others are listed with the reason.

    ``of_model`` holds what `check_model` found; what is not in it is asked here.
    """
    if level not in ("off", "cheap", "full"):
        raise ValueError(f"level must be one of off, cheap, full, got {level!r}")
    found = {check.id: check for check in of_model or []}
    entries = [] if level == "off" else all_checks(context.cfg.evaluation.checks)
    return [run_check(entry, context, level, found.get(entry.id)) for entry in entries]


def run_check(
    entry: RegisteredCheck, context: CheckContext, level: str = "full", of_model: Check | None = None
) -> Check:
    """Run one check: both its questions, where it has two."""
    if entry.level == "full" and level != "full":
        return Check(entry.id, "skipped", "costly: runs with checks=full, which attack=suite turns on")
    answers = []
    if entry.of_model is not None:
        answers.append(of_model or entry.ask("of_model", context))
    if entry.of_run is not None:
        reason = "the examples were made against a surrogate, not by an attack on this model"
        elsewhere = entry.direct and context.cfg.get("surrogate") is not None
        answers.append(Check(entry.id, "skipped", reason) if elsewhere else entry.ask("of_run", context))
    if len(answers) == 1:
        return answers[0]
    summed: dict[str, Any] = {"seconds": round(sum(answer.evidence.get("seconds", 0.0) for answer in answers), 4)}
    if traces := [answer.evidence["exception"] for answer in answers if answer.stopped]:
        summed["exception"] = "\n".join(traces)
    found = worst(answers)
    return replace(found, evidence=found.evidence | summed)


def _ask(id: str, question: Callable[[Any], Check], context: ModelContext) -> Check:
    """An exception inside a check is a failure of the run's trustworthiness like any other: it becomes a ``fail``."""
    from attacks import Unattackable

    started = time.perf_counter()
    try:
        answer = question(context)
    except (NotApplicable, Unattackable) as reason:
        answer = skipped(str(reason))
    except Exception as error:
        where = traceback.format_exc(limit=-3)
        answer = failed(f"the check itself stopped: {type(error).__name__}: {error}", exception=where)
    evidence = {name: _plain(value) for name, value in answer.evidence.items()}
    return replace(answer, id=id, evidence=evidence | {"seconds": round(time.perf_counter() - started, 4)})


def _plain(value: Any) -> Any:
    """As JSON: numbers rounded to what a reader needs, arrays as lists."""
    if isinstance(value, dict):
        return {str(key): _plain(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(inner) for inner in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return _plain(value.tolist())
    if isinstance(value, float):
        return float(f"{value:.6g}") if np.isfinite(value) else str(value)
    return value
