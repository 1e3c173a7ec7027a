"""A sweep: which jobs it has, the Hydra callback that prepares it, and the outcomes its jobs leave behind."""

from __future__ import annotations

import hashlib
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hydra._internal.utils import get_args_parser
from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf, read_write

from pipeline.errors import UserError
from pipeline.identity import typed
from pipeline.interrupts import no_space_as_user_error
from pipeline.job import RESULT_FILE, Outcome
from pipeline.progress import console

# What decides where a sweep runs and is kept, not what it computes: the same sweep may be resumed elsewhere.
_NOT_IDENTITY = ("hydra", "tracking", "compute", "cache", "figures", "on_existing", "notes", "trusted")
# … but what a sweeper searches does belong to it; how many trials it takes does not: more of them go on with the same.
_IDENTITY = re.compile(r"\+*hydra\.sweeper\.(params|seed|direction|startup|batch)\b")
_ID, _FOLDER, _JOBS = "ADVSVM_SWEEP_ID", "ADVSVM_SWEEP", "ADVSVM_SWEEP_JOBS"


@dataclass(frozen=True)
class Sweep:
    """A multirun: identity, folder, the overrides of every job, and the composed configuration.

    A sweeper that decides as it goes adds its jobs as they come (:func:`add_jobs`).
    """

    id: str
    folder: Path
    jobs: list[list[str]]
    cfg: DictConfig
    maximize: bool = True
    """What is wanted of ``cfg.objective``."""


@dataclass
class Session:
    """What this process knows about the command that it runs: its sweep, or the outcome of its single run."""

    sweep: Sweep | None = None
    single: Outcome | None = None
    deaths: dict[int, str] = field(default_factory=dict)
    """Job number → what a launcher learned about a job that could not speak for itself."""
    checked: int = 0
    """How many jobs of the sweep were composed."""
    answered: dict[int, JobReturn] = field(default_factory=dict)
    """Job number → what is returned for it; :mod:`pipeline.answers` for those that were finished before."""


# One per process: Hydra makes callbacks and launchers itself, and passes nothing on to them.
SESSION = Session()


class Refused(BaseException):
    """The sweep cannot start; the cause says why. Hydra makes warnings of a callback's exceptions and goes on."""


class SweepCallback(Callback):
    """Refuses what no job could do, asks the tracking server, and notes the sweep for the summary."""

    def on_run_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called before Hydra writes the configuration of a single run down."""
        try:
            _hide_credentials(config)
        except Exception as error:
            raise Refused from error
        for plugin, does in (("hydra/launcher", "starts"), ("hydra/sweeper", "chooses")):
            choice = config.hydra.runtime.choices.get(plugin)
            if choice != "basic":
                raise Refused from UserError(f"{plugin}={choice} {does} the jobs of a sweep: add -m")
        _refuse_chdir(config)

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called in a job, after Hydra wrote its configuration down; only a YAML file can have put a secret there."""
        secret = urlsplit(config.tracking.uri or "").password
        if secret and config.hydra.output_subdir:
            for file in (Path(config.hydra.runtime.output_dir) / config.hydra.output_subdir).glob("*.yaml"):
                file.write_text(file.read_text().replace(f":{secret}@", ":***@"))

    def on_multirun_start(self, config: DictConfig, **kwargs: Any) -> None:
        """Called in the driver, before the launcher starts jobs anywhere."""
        try:
            _refuse_chdir(config)
            SESSION.sweep = _prepare(config)
        except Exception as error:
            raise Refused from error


def _prepare(config: DictConfig) -> Sweep:
    from pipeline.tracking.store import open_store, prepare
    from pipeline.trust import check_trusted
    from pipeline.validation import validate

    _hide_credentials(config)
    cfg, (jobs, count) = _job_config(config), _planned(config)
    if not count:
        raise UserError("the sweep has no jobs: one of its settings has no values, such as seed=range(0)")
    os.environ[_JOBS] = str(count)
    # The first line: what follows takes seconds to import.
    console().print(f"{count} jobs in {config.hydra.sweep.dir}", markup=False, highlight=False, soft_wrap=True)
    check_trusted(cfg, typed(config.hydra))
    validate(cfg)
    with no_space_as_user_error():
        prepare(cfg.tracking)
        if cfg.tracking.uri:
            open_store(cfg.tracking)
    maximize = config.hydra.sweeper.get("direction", "maximize") == "maximize"
    return Sweep(current_id() or "sweep", Path(config.hydra.sweep.dir).absolute(), jobs, cfg, maximize)


def make_store() -> None:
    """Make the local store, if there is none, before jobs start that would all make it: after those were checked."""
    from pipeline.paths import DATABASE
    from pipeline.tracking.store import open_store

    tracking = SESSION.sweep.cfg.tracking if SESSION.sweep is not None else None
    if tracking is None or tracking.uri or (Path(tracking.folder) / DATABASE).exists():
        return
    with no_space_as_user_error():
        open_store(tracking)


def _refuse_chdir(config: DictConfig) -> None:
    if config.hydra.job.chdir:
        raise Refused from UserError("hydra.job.chdir=true would move the runs into the job's folder: leave it out")


def _hide_credentials(config: DictConfig) -> None:
    from pipeline.tracking.credentials import take_credentials

    if config.tracking.uri:
        with read_write(config):
            config.tracking.uri = take_credentials(config.tracking.uri)


def _job_config(config: DictConfig) -> DictConfig:
    cfg = config.copy()
    OmegaConf.set_struct(cfg, False)
    cfg.pop("hydra", None)
    return cfg


def _planned(config: DictConfig) -> tuple[list[list[str]], int]:
    """The jobs that are known before the first one runs, and how many there will be."""
    plan = getattr(get_class(config.hydra.sweeper._target_), "plan", None)
    if plan is not None:
        return [], plan(config)
    jobs = job_overrides(config)
    return jobs, len(jobs)


def add_jobs(jobs: Sequence[Sequence[str]]) -> None:
    """Called by a sweeper that decides as it goes, before it launches these jobs."""
    if SESSION.sweep is not None:
        SESSION.sweep.jobs.extend(list(job) for job in jobs)


def job_overrides(config: DictConfig) -> list[list[str]]:
    """The overrides of every job of a multirun, in the order in which Hydra's basic sweeper numbers them."""
    from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
    from hydra.core.override_parser.overrides_parser import OverridesParser

    params = OmegaConf.to_container(config.hydra.sweeper.get("params") or OmegaConf.create({}))
    assert isinstance(params, dict)
    arguments = [f"{key!s}={value}" for key, value in params.items()] + typed(config.hydra)
    parsed = OverridesParser.create().parse_overrides(arguments)
    batches = BasicSweeper.split_arguments(parsed, None)
    return [list(job) for batch in batches for job in batch]


def name_sweep(arguments: list[str]) -> None:
    """Give this command a sweep identity (same command, same identity) and a folder of its own.

    Both travel in the environment, so that jobs of every launcher know them.
    """
    flags, _ = get_args_parser().parse_known_args(arguments)
    # --config-dir=conf is another configuration in another folder.
    folder = flags.config_dir and Path(flags.config_dir).resolve()
    files = {"--config-dir": folder, "--config-path": flags.config_path, "--config-name": flags.config_name}
    named = [f"{flag}={value}" for flag, value in files.items() if value]
    given = (
        a for a in flags.overrides if _IDENTITY.match(a) or re.split(r"[=./]", a.lstrip("+~"))[0] not in _NOT_IDENTITY
    )
    kept = sorted([*named, *given])
    digest = hashlib.sha256("\n".join(kept).encode()).hexdigest()[:8]
    label = next((a.split("=", 1)[1] for a in kept if a.startswith("experiment=")), "sweep")
    os.environ[_ID] = f"{label}-{digest}"
    os.environ[_FOLDER] = f"{label}-{digest}/{time.strftime('%Y-%m-%d_%H-%M-%S')}-{os.getpid()}"


def job_number(number: int) -> str:
    """``3 of 4`` for job number 2 of a sweep of four."""
    return f"{number + 1} of {os.environ.get(_JOBS, '?')}"


def current_id() -> str | None:
    """Identity of the sweep that this process belongs to."""
    return os.environ.get(_ID)


def note_death(number: int, reason: str) -> None:
    """Called by a launcher when a job's process is gone; the summary gives the reason."""
    SESSION.deaths[number] = reason


def has_begun(sweep: Sweep) -> bool:
    """Whether there is anything to make a table of."""
    return bool(SESSION.deaths) or any(has_result(sweep.folder, number) for number in range(len(sweep.jobs)))


def has_result(folder: Path, number: int) -> bool:
    """Whether a job of the sweep in ``folder`` ended by itself."""
    return (folder / str(number) / RESULT_FILE).is_file()


def outcomes(sweep: Sweep) -> list[Outcome]:
    """What every job left behind, in order; a job that left nothing died or never ran."""
    found = []
    for number, overrides in enumerate(sweep.jobs):
        file = sweep.folder / str(number) / RESULT_FILE
        try:
            outcome = Outcome(**json.loads(file.read_text()))
        except (OSError, ValueError, TypeError):
            reason = "no result: the job was killed, cancelled, ran out of memory or never started"
            outcome = Outcome("failed", _labels(sweep, overrides), reason=reason)
        if not outcome.ok and number in SESSION.deaths:
            outcome.reason = SESSION.deaths[number]
        found.append(outcome)
    return found


def _labels(sweep: Sweep, overrides: list[str]) -> dict[str, Any]:
    """Labels of a job that could not say them itself, from its overrides."""
    labels = {name: sweep.cfg[name].name for name in ("dataset", "model", "attack")} | {"seed": sweep.cfg.seed}
    for override in overrides:
        key, _, value = override.partition("=")
        if key in labels:
            labels[key] = value
    return labels
