"""Hydra's launchers for local cores and clusters, such that the death of one job does not stop the others.

Hydra looks for plugins in the namespace ``hydra_plugins`` only, hence this folder. The stock launchers raise at the
first job that died, while others still run.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.core.singleton import Singleton
from hydra.core.utils import JobReturn, JobStatus, run_job, setup_globals
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from hydra_plugins.hydra_submitit_launcher.submitit_launcher import (
    BaseSubmititLauncher,
    LocalLauncher,
    SlurmLauncher,
)
from omegaconf import DictConfig, open_dict

from pipeline import workers
from pipeline.interrupts import winding_up

Jobs = Sequence[Sequence[str]]

_POLL_SECONDS = 0.5
# submitit asks for the state of old jobs every ten minutes; a cancelled one should be noticed sooner.
_STATE_SECONDS = 10.0
_CANCEL_SECONDS = 30.0
# Settings of ours, which submitit does not know.
_OURS = ("wait", "jobs_per_task")


class PatientJoblib(Launcher):
    """The local cores, in the place of joblib's own launcher, whose workers each import everything and die together.

    Parameters
    ----------
    n_jobs : int
        Jobs at once; as joblib counts, -1 is one for every core, -2 one less.
    """

    # Raised in a worker, the end of one cancelled job would end the jobs that it has still to do.
    cancelled_jobs_return = True

    # Where joblib's own launcher is installed, Hydra adds the settings of that.
    def __init__(self, n_jobs: int = -1, **unused: Any) -> None:
        self.n_jobs = n_jobs
        self._job: Any = None

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before the sweep."""
        from pipeline.errors import UserError

        if type(self.n_jobs) is not int or not self.n_jobs:
            raise UserError(f"hydra.launcher.n_jobs must be a whole number other than 0; got {self.n_jobs}")
        self.config = config
        self._job = partial(_in_worker, hydra_context, config, task_function)

    def get_ready(self) -> None:
        """Called when there are jobs to come."""
        workers.get_ready()

    def launch(self, job_overrides: Jobs, initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; those whose process died are noted as failed."""
        from pipeline import sweep
        from pipeline.cores import available_cores, share_out

        count = min(self.n_jobs if self.n_jobs > 0 else max(1, available_cores() + 1 + self.n_jobs), len(job_overrides))
        share_out(count)
        Path(str(self.config.hydra.sweep.dir)).mkdir(parents=True, exist_ok=True)
        state = Singleton.get_state()
        numbers = [initial_job_idx + position for position in range(len(job_overrides))]
        calls = [partial(self._job, state, number, list(job)) for number, job in zip(numbers, job_overrides)]
        returned = workers.run(calls, count)
        for number, value in zip(numbers, returned):
            if isinstance(value, workers.Died):
                sweep.note_death(number, value.reason)
        return [_noted() if isinstance(value, workers.Died) else value for value in returned]


def _in_worker(
    context: HydraContext, config: DictConfig, task: TaskFunction, state: dict, number: int, overrides: list[str]
) -> JobReturn:
    """One job, as Hydra's own launchers run it."""
    setup_globals()
    Singleton.set_state(state)
    job = context.config_loader.load_sweep_config(config, overrides)
    with open_dict(job):
        job.hydra.job.id, job.hydra.job.num = f"{job.hydra.job.name}_{number}", number
    HydraConfig.instance().set_config(job)
    return run_job(task, job, "hydra.sweep.dir", "hydra.sweep.subdir", context)


class _PatientSubmitit(BaseSubmititLauncher):
    """submitit, waiting for every job; a job that was cancelled or killed is noted with the state it ended in."""

    def launch(self, job_overrides: Jobs, initial_job_idx: int) -> Sequence[JobReturn]:
        """Submit all jobs, wait for all of them; Ctrl-C cancels those that still run."""
        self._check()
        self._folder()
        calls, jobs = self._calls(job_overrides, initial_job_idx), dict[int, Any]()
        try:
            return self._wait(jobs, self._submit(self._executor(), calls, jobs), [call[2] for call in calls])
        except BaseException:
            winding_up()
            self._cancel([job for job in dict.fromkeys(jobs.values()) if not job.done()])
            raise

    def _folder(self) -> Path:
        """The sweep's folder, made if needed."""
        assert self.config is not None
        folder = Path(str(self.config.hydra.sweep.dir)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _calls(self, job_overrides: Jobs, first: int) -> list[tuple]:
        """What every job is called with; the third part is its number."""
        return [
            (list(overrides), "hydra.sweep.dir", first + at, f"job_id_for_{first + at}", Singleton.get_state())
            for at, overrides in enumerate(job_overrides)
        ]

    def _check(self) -> None:
        """Raise when there is nothing to submit to."""

    def _refresh(self, jobs: dict[int, Any]) -> None:
        """Ask for the jobs' states where that takes more than a look at a process."""

    def _cancel(self, jobs: list[Any]) -> None:
        """Cancel, and give the jobs the time to end their runs."""
        if jobs:
            _say(f"cancelling {len(jobs)} jobs")
        for job in jobs:
            self._cancel_one(job)
        limit = time.monotonic() + _CANCEL_SECONDS
        while time.monotonic() < limit and not all(job.done(force_check=True) for job in jobs):
            time.sleep(1.0)

    def _executor(self) -> Any:
        import submitit
        from hydra_plugins.hydra_submitit_launcher.config import BaseQueueConf
        from omegaconf import OmegaConf

        settings = {name: value for name, value in self.params.items() if value is not None and name not in _OURS}
        start = {"folder": settings.pop("submitit_folder")}
        if "max_num_timeout" in settings:
            start[f"{self._EXECUTOR}_max_num_timeout"] = settings.pop("max_num_timeout")
        executor = submitit.AutoExecutor(cluster=self._EXECUTOR, **start)
        shared = set(OmegaConf.structured(BaseQueueConf))
        executor.update_parameters(
            **{name if name in shared else f"{self._EXECUTOR}_{name}": value for name, value in settings.items()}
        )
        return executor

    @abstractmethod
    def _submit(self, executor: Any, calls: list[tuple], jobs: dict[int, Any]) -> Callable[[], bool]:
        """Submit what may run now into ``jobs``; the function returned submits more and says whether all are."""

    def _wait(self, jobs: dict[int, Any], submit: Callable[[], bool], numbers: list[int]) -> list[JobReturn]:
        returns: dict[int, JobReturn] = {}
        asked = time.monotonic()
        while not submit() or len(returns) < len(numbers):
            if time.monotonic() - asked > _STATE_SECONDS:
                asked = time.monotonic()
                self._refresh(jobs)
            for number, job in jobs.items():
                if number not in returns and job.done():
                    returns[number] = _result(number, job)
                    _say(f"job {number} ended ({len(returns)} of {len(numbers)})")
            time.sleep(_POLL_SECONDS)
        return [returns[number] for number in numbers]

    def _cancel_one(self, job: Any) -> None:
        job.cancel(check=False)


class PatientSlurm(_PatientSubmitit, SlurmLauncher):
    """A SLURM cluster: one array of tasks, each of one job of the sweep or of several (``jobs_per_task``).

    Several share one start of Python, which takes longer than a small job. When their task dies, those that ended have
    ended, and the others are reported with it.

    With ``wait: false`` the driver submits and returns. What it submitted stands in a file beside the sweep's folders,
    by which the same command finds the jobs again: it says which still run, or makes the table of those that ended.
    """

    def launch(self, job_overrides: Jobs, initial_job_idx: int) -> Sequence[JobReturn]:
        """Run all jobs; without waiting, submit them or collect what was submitted before."""
        if self.params.get("wait", True):
            return super().launch(job_overrides, initial_job_idx)
        from pipeline import sweep
        from pipeline.errors import UserError

        self._check()
        assert self.config is not None
        started = sweep.SESSION.sweep
        assert started is not None
        if len(job_overrides) != len(started.jobs):
            sweep.SESSION.sweep = None
            raise UserError(
                "hydra.launcher.wait=false submits all jobs at once: leave hydra.sweeper.max_batch_size out"
            )
        note = started.folder.parent / f"submitted-{started.id}.json"
        if note.is_file():
            sweep.SESSION.sweep = _collected(note, started)
        else:
            self._leave(job_overrides, note)
            sweep.SESSION.sweep = None  # nothing to make a table of yet
        return []

    def __call__(self, calls: list[tuple]) -> JobReturn:
        """Called on a node: the jobs of one task, one after the other."""
        # Not by the name of this class: a job loads Hydra's plugins anew, and the name then stands for another one.
        run = super().__call__
        # A job writes down how it ended; what is returned only tells that the task came to its end.
        return [run(*call) for call in calls][-1]

    def _leave(self, job_overrides: Jobs, note: Path) -> None:
        """Submit, and write down where the jobs are."""
        folder, calls, jobs = self._folder(), self._calls(job_overrides, 0), dict[int, Any]()
        executor = self._executor()
        self._submit(executor, calls, jobs)
        ids = [jobs[number].job_id for number in range(len(calls))]
        note.write_text(json.dumps({"folder": str(folder), "logs": str(executor.folder.absolute()), "jobs": ids}))
        _say("the same command later says what still runs, or collects the table")

    def _check(self) -> None:
        from omegaconf import OmegaConf

        from pipeline.cache.locks import check_locks_are_shared, check_reads_are_fresh
        from pipeline.errors import UserError

        size = self.params.get("jobs_per_task", 1)
        if not isinstance(size, int) or size < 1:
            raise UserError(f"hydra.launcher.jobs_per_task must be a whole number from 1; got {size}")

        for command, why in (("sbatch", "submits jobs"), ("sacct", "tells how a job ended; it needs accounting")):
            if shutil.which(command) is None:
                raise UserError(
                    f"hydra/launcher=slurm: no {command} on this machine ({why}); "
                    "hydra/launcher=submitit_local is a dry run without a cluster"
                )
        assert self.config is not None
        for setting in ("tracking.folder", "cache.folder"):
            folder = OmegaConf.select(self.config, setting)
            if folder:
                check_locks_are_shared(setting, folder)
        if not self.config.tracking.uri:
            check_reads_are_fresh("tracking.folder", self.config.tracking.folder)

    def _refresh(self, jobs: dict[int, Any]) -> None:
        for job in list(jobs.values())[:1]:  # one question covers them all
            job.watcher.update()

    def _submit(self, executor: Any, calls: list[tuple], jobs: dict[int, Any]) -> Callable[[], bool]:
        size = int(self.params.get("jobs_per_task") or 1)
        tasks = [calls[start : start + size] for start in range(0, len(calls), size)]
        for task, job in zip(tasks, executor.map_array(self, tasks)):
            jobs.update((call[2], job) for call in task)
        arrays = ", ".join(sorted({job.job_id.split("_")[0] for job in jobs.values()}))
        _say(f"{len(jobs)} jobs submitted to SLURM as {arrays}; logs below {Path(str(executor.folder)).parent}")
        return lambda: True


def _collected(note: Path, started: Any) -> Any:
    """The sweep that was submitted earlier, if all its jobs ended; otherwise None, and a line on those that did not."""
    from dataclasses import replace

    from submitit import SlurmJob

    submitted = json.loads(note.read_text())
    jobs: list[Any] = [SlurmJob(folder=submitted["logs"], job_id=job_id) for job_id in submitted["jobs"]]
    left = [job.job_id for job in jobs if not job.done(force_check=True)]
    if left:
        waiting = ", ".join(dict.fromkeys(left))
        _say(f"{len(jobs) - len(left)} of {len(jobs)} jobs ended; still waiting or running: {waiting}")
        return None
    for number, job in enumerate(jobs):
        _result(number, job)  # notes how it died, where it did
    note.unlink()
    return replace(started, folder=Path(submitted["folder"]))


class PatientLocal(_PatientSubmitit, LocalLauncher):
    """Processes of this machine, as many at once as its cores allow."""

    def _cancel_one(self, job: Any) -> None:
        # submitit's own way gives a job one second; its controller passes SIGTERM on, as SLURM does.
        with suppress(ProcessLookupError):
            os.kill(int(job.job_id), signal.SIGTERM)

    def _submit(self, executor: Any, calls: list[tuple], jobs: dict[int, Any]) -> Callable[[], bool]:
        from pipeline.cores import available_cores, share_out

        cpus = share_out(len(calls), cores_per_job=int(self.params.get("cpus_per_task") or 1))
        slots = max(1, available_cores() // cpus)
        waiting = list(calls)

        def submit() -> bool:
            while waiting and sum(not job.done() for job in jobs.values()) < slots:
                call = waiting.pop(0)
                # Ctrl-C is for the driver, which then cancels the jobs: they start with it ignored.
                handler = signal.signal(signal.SIGINT, signal.SIG_IGN)
                try:
                    jobs[call[2]] = executor.submit(self, *call)
                finally:
                    signal.signal(signal.SIGINT, handler)
            return not waiting

        return submit


def _result(number: int, job: Any) -> JobReturn:
    """What the job returned; when it left nothing, how it ended, without the log that submitit would quote."""
    from submitit.core.utils import FailedJobError, UncompletedJobError

    from pipeline import sweep

    try:
        return job.results()[0]
    except (UncompletedJobError, FailedJobError) as error:
        state = f"the job ended as {job.state}" if isinstance(error, UncompletedJobError) else "the job failed"
        sweep.note_death(number, f"{state} (job {job.job_id}, log {job.paths.stderr})")
        return _noted()


def _say(text: str) -> None:
    from pipeline.progress import console

    console().print(text, markup=False, highlight=False, soft_wrap=True)


def _noted() -> JobReturn:
    """A return value that does not raise: the sweep's summary reports the failure."""
    return JobReturn(_return_value={"status": "noted"}, status=JobStatus.COMPLETED)
