"""Several jobs of a sweep in one SLURM task; the real cluster is in tests/slurm."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import BaseSubmititLauncher

from hydra_plugins.advsvm import launchers
from hydra_plugins.advsvm.launchers import PatientSlurm
from pipeline.errors import UserError

CALLS = [([f"seed={n}"], "hydra.sweep.dir", n, f"job_id_for_{n}", {}) for n in range(7)]


class Array:
    """What submitit's executor is asked for."""

    folder = Path("sweep") / ".submitit" / "%j"

    def map_array(self, function, tasks):
        self.function, self.tasks = function, tasks
        return [SimpleNamespace(job_id=f"12_{number}") for number in range(len(tasks))]


@pytest.mark.parametrize(("size", "tasks"), [(1, [1] * 7), (3, [3, 3, 1]), (10, [7])])
def test_every_job_is_in_one_task_and_they_run_in_order(monkeypatch, size, tasks):
    ran = []

    def run(self, *call):
        ran.append(call)
        # As in a real job, which loads Hydra's plugins anew: the name stands for another class from then on.
        monkeypatch.setattr(launchers, "PatientSlurm", type("PatientSlurm", (), {}))
        return call[2]

    monkeypatch.setattr(BaseSubmititLauncher, "__call__", run)
    array, jobs = Array(), {}
    assert PatientSlurm(jobs_per_task=size)._submit(array, CALLS, jobs)()
    assert [len(task) for task in array.tasks] == tasks
    assert [jobs[n].job_id for n in range(7)] == [f"12_{n // size}" for n in range(7)]
    assert [array.function(task) for task in array.tasks] == [task[-1][2] for task in array.tasks]
    assert ran == CALLS


@pytest.mark.parametrize("size", [0, -1, "many", 1.5])
def test_a_task_of_no_jobs_is_refused(size):
    with pytest.raises(UserError, match=r"hydra\.launcher\.jobs_per_task must be a whole number from 1; got "):
        PatientSlurm(jobs_per_task=size)._check()
