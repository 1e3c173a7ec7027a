"""An evaluation that checks itself: every run carries the checks that apply to it.

A check is a function marked with `of_model`, `of_run` or `of_attack`, in a module of this package or in one that
``evaluation.checks=[my_checks]`` names: a new one is a file that is there.
"""

from pipeline.checks.context import CheckContext, ModelContext
from pipeline.checks.registry import (
    Check,
    check_model,
    failed,
    of_attack,
    of_model,
    of_run,
    passed,
    run_checks,
    skipped,
    warned,
)

__all__ = [
    "Check",
    "CheckContext",
    "ModelContext",
    "check_model",
    "failed",
    "of_attack",
    "of_model",
    "of_run",
    "passed",
    "run_checks",
    "skipped",
    "warned",
]
