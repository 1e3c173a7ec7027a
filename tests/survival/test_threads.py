"""jobs × threads ≤ cores, unless asked otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from pipeline.cores import available_cores, job_threads, share_out


@pytest.fixture(autouse=True)
def outside_a_sweep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ADVSVM_JOB_THREADS", "")
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)


@pytest.mark.parametrize("cores", [1, 2, 8, 64])
@pytest.mark.parametrize("jobs", [1, 2, 3, 8, 100])
def test_jobs_share_the_cores_out(monkeypatch: pytest.MonkeyPatch, cores: int, jobs: int) -> None:
    monkeypatch.setattr("pipeline.cores.available_cores", lambda: cores)
    share = share_out(jobs)
    assert share == job_threads(None) >= 1
    assert share == 1 or jobs * share <= cores


def test_what_was_asked_for_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    share_out(4)
    assert job_threads(7) == 7


def test_a_single_run_keeps_the_libraries_default() -> None:
    assert job_threads(None) is None


def test_a_cluster_job_takes_its_allocation(monkeypatch: pytest.MonkeyPatch) -> None:
    share_out(1)
    monkeypatch.setenv("SLURM_JOB_ID", "12")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "3")
    assert job_threads(None) == available_cores() == 3


def test_the_limit_reaches_torch_and_the_libraries_below_numpy() -> None:
    code = (
        "import numpy; from pipeline.cores import limit_threads; limit_threads(1);"
        "import torch; from threadpoolctl import threadpool_info;"
        "print(torch.get_num_threads(), max(i['num_threads'] for i in threadpool_info()))"
    )
    environment = {k: v for k, v in os.environ.items() if not k.endswith("_NUM_THREADS")}
    answer = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["1", "1"]
