"""What a check says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


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


@dataclass(frozen=True)
class Verdict:
    """What a check returns; the registry adds its id."""

    status: str
    message: str
    evidence: dict[str, Any]


def passed(message: str, **evidence: Any) -> Verdict:
    """The promise was tested and held."""
    return Verdict("pass", message, evidence)


def warned(message: str, **evidence: Any) -> Verdict:
    """Nothing is proved wrong, but a reader must know."""
    return Verdict("warn", message, evidence)


def failed(message: str, **evidence: Any) -> Verdict:
    """The promise is broken: the run's numbers cannot be trusted."""
    return Verdict("fail", message, evidence)


def skipped(reason: str, **evidence: Any) -> Verdict:
    """The check could not be evaluated, and why."""
    return Verdict("skipped", reason, evidence)


def worst(verdicts: list[Verdict]) -> Verdict:
    """The gravest of several verdicts with the messages of all that are as grave; evidence of all."""
    order = ("skipped", "pass", "warn", "fail")
    status = max((v.status for v in verdicts), key=order.index)
    evidence: dict[str, Any] = {}
    for verdict in verdicts:
        evidence |= verdict.evidence
    return Verdict(status, "; ".join(dict.fromkeys(v.message for v in verdicts if v.status == status)), evidence)
