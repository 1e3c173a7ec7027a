"""Jobs of a sweep whose runs are finished: the driver reports them, and nothing is started for them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hydra.core.config_loader import ConfigLoader
from hydra.core.hydra_config import HydraConfig
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from omegaconf import DictConfig, open_dict

from pipeline import progress, sweep
from pipeline.identity import typed
from pipeline.interrupts import no_space_as_user_error
from pipeline.job import finished_outcome, objective


def check_jobs(loader: ConfigLoader, config: DictConfig, batch: Sequence[Sequence[str]]) -> None:
    """Compose every job, so that one that cannot be is said before any starts, and answer for those that are done."""
    first = sweep.SESSION.checked
    sweep.SESSION.checked += len(batch)
    # What was submitted before has numbers of its own.
    may_answer = bool(config.hydra.launcher.get("wait", True))
    with progress.watch("checking the jobs") as observer:
        for number, overrides in enumerate(batch, start=first):
            composed = loader.load_sweep_config(config, list(overrides))
            if may_answer:
                _answer(composed, number)
            observer("jobs", number - first + 1, len(batch))


def _answer(config: DictConfig, number: int) -> None:
    with open_dict(config):
        config.hydra.job.id = config.hydra.job.num = number
        folder = Path(str(config.hydra.sweep.dir)) / str(config.hydra.sweep.subdir)
        hydra = config.pop("hydra")
    before = HydraConfig.instance().cfg
    HydraConfig.instance().cfg = SimpleNamespace(hydra=hydra)  # type: ignore[assignment]
    progress.name_job(sweep.job_number(number))
    try:
        with progress.spoken():
            outcome = finished_outcome(config, typed(hydra), sweep.current_id() or "")
        if outcome is not None:
            with no_space_as_user_error():
                outcome.write(folder)
            answered = JobReturn(_return_value=objective(config, outcome), status=JobStatus.COMPLETED)
            sweep.SESSION.answered[number] = answered
    finally:
        progress.name_job(None)
        HydraConfig.instance().cfg = before


class Sparing(Launcher):
    """A launcher that is given only the jobs that are not answered yet."""

    def __init__(self, launcher: Launcher):
        self._launcher = launcher

    def setup(self, **kwargs: Any) -> None:
        """Set up the launcher itself."""
        self._launcher.setup(**kwargs)

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Launch what is left; the returns of all jobs in their order."""
        numbers = range(initial_job_idx, initial_job_idx + len(job_overrides))
        answered = sweep.SESSION.answered
        left = {n: overrides for n, overrides in zip(numbers, job_overrides) if n not in answered}
        if left:
            getattr(self._launcher, "get_ready", lambda: None)()
            sweep.make_store()
            launched = self._launcher.launch(list(left.values()), Numbers(left))
            if len(launched) < len(left):
                return launched  # submitted, not waited for
            answered |= zip(left, launched)
        return [answered[number] for number in numbers]


class Numbers(int):
    """The numbers of jobs, with gaps, for launchers: the first one, and by adding a position the one at it."""

    _all: list[int]

    def __new__(cls, numbers: Any) -> Numbers:
        every = list(numbers)
        made = super().__new__(cls, every[0])
        made._all = every
        return made

    def __add__(self, position: int) -> int:
        return self._all[position]
