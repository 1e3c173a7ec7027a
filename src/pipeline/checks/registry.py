"""The list of checks and the loop that runs them."""

from __future__ import annotations

from collections.abc import Callable

from pipeline.checks.base import Check, CheckContext

CHECKS: list[Callable[[CheckContext], Check]] = []


def run_checks(context: CheckContext, level: str) -> list[Check]:
    """Run the checks of a level (``off``, ``cheap``, ``full``)."""
    return [] if level == "off" else [check(context) for check in CHECKS]
