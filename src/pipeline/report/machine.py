"""What the numbers were made with: the class of machine (never its name) and the versions of the libraries."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

from pipeline.cores import available_cores

_LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn", "mlflow", "hydra-core")


def machine() -> str:
    """``2 cores, 24 GB, Intel(R) Xeon(R) …, Linux``."""
    parts = [f"{available_cores()} cores"]
    memory = _memory_gb()
    parts += [f"{memory:.0f} GB memory"] if memory else []
    processor = _processor()
    parts += [processor] if processor else []
    return ", ".join([*parts, platform.system()])


def versions() -> str:
    """``Python 3.11.7, numpy 2.4.6, …``."""
    found = [f"Python {platform.python_version()}"]
    return ", ".join(found + [f"{name} {metadata.version(name)}" for name in _LIBRARIES])


def _memory_gb() -> float | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
    except (ValueError, OSError, AttributeError):
        return None


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
