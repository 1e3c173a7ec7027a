"""How many cores this process may use."""

from __future__ import annotations

import os

_SHARE = "ADVSVM_JOB_THREADS"
LIBRARIES = ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def available_cores() -> int:
    """Cores of the cluster allocation if there is one, else those this process may be scheduled on."""
    allocated = os.environ.get("SLURM_CPUS_PER_TASK")
    if allocated and allocated.isdigit():
        return int(allocated)
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def share_out(jobs: int, cores_per_job: int | None = None) -> int:
    """Threads of each of ``jobs`` a launcher is about to start side by side; they learn it from the environment."""
    share = cores_per_job or max(1, available_cores() // max(1, jobs))
    os.environ[_SHARE] = str(share)
    return share


def job_threads(asked: int | None) -> int | None:
    """Threads of this job: what was asked for, else its allocation or share; None leaves the libraries' default."""
    if asked is not None:
        return asked
    if os.environ.get("SLURM_JOB_ID"):
        return available_cores()
    share = os.environ.get(_SHARE, "")
    return int(share) if share.isdigit() else None


def limit_threads(threads: int) -> None:
    """Limit torch and the libraries beneath numpy and scikit-learn, those loaded and those still to come."""
    import torch
    from threadpoolctl import threadpool_limits

    for variable in LIBRARIES:
        os.environ[variable] = str(threads)
    torch.set_num_threads(threads)
    threadpool_limits(threads)
