"""An evaluation that checks itself: every run carries the checks that apply to it."""

from pipeline.checks.base import Check, CheckContext
from pipeline.checks.registry import run_checks

__all__ = ["Check", "CheckContext", "run_checks"]
