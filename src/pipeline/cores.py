"""How many cores this process may use."""

from __future__ import annotations

import os


def available_cores() -> int:
    """Cores of the cluster allocation if there is one, else those this process may be scheduled on."""
    allocated = os.environ.get("SLURM_CPUS_PER_TASK")
    if allocated and allocated.isdigit():
        return int(allocated)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
