"""An evaluation that checks itself: every run carries the checks that apply to it."""

from pipeline.checks.base import Check
from pipeline.checks.context import CheckContext, ModelContext
from pipeline.checks.registry import check_model, run_checks

__all__ = ["Check", "CheckContext", "ModelContext", "check_model", "run_checks"]
