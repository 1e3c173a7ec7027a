"""``hydra/sweeper=optuna``: let Optuna choose the settings of the next job from what the jobs before it returned.

The published plugin (hydra-optuna-sweeper) holds Optuna below 3. Nothing is stored here: the sampler is seeded and
asked in order, so the same command asks for the same trials, finished ones are reported instead of repeated, and it
goes on where an interrupted one stopped.
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import ChoiceSweep, IntervalSweep, Override, RangeSweep
from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn
from hydra.plugins.launcher import Launcher
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, OmegaConf

DIRECTIONS = ("maximize", "minimize")


class _Answering(Sweeper):
    """A sweeper that answers for finished runs itself, while it checks that its jobs can be composed."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Called by Hydra before the sweep."""
        from pipeline.answers import Sparing

        self.hydra_context, self.config = hydra_context, config
        self.launcher: Launcher | None = Sparing(
            Plugins.instance().instantiate_launcher(
                hydra_context=hydra_context, task_function=task_function, config=config
            )
        )

    def validate_batch_is_legal(self, batch: Sequence[Sequence[str]]) -> None:
        """Called before the jobs of a batch are launched."""
        from pipeline.answers import check_jobs

        assert self.hydra_context is not None
        assert self.config is not None
        check_jobs(self.hydra_context.config_loader, self.config, batch)


class PatientBasic(_Answering, BasicSweeper):
    """Every combination of the settings' values."""


class OptunaSweeper(_Answering):
    """Trials of Optuna's TPE sampler over the sweep's settings.

    Parameters
    ----------
    params : dict, optional
        Settings and where to look for them, as on the command line: ``interval(0.1, 10)``,
        ``tag(log, interval(0.01, 100))``, ``int(interval(1, 9))``, ``range(10, 50, 10)``, ``choice(a, b)`` or ``a,b``.
        One value fixes a setting.
    n_trials : int
        How many jobs there are. More of them later go on where fewer ended.
    direction : {"maximize", "minimize"}
        What is wanted of ``objective``.
    batch : int
        Trials asked for at once, for launchers that run jobs side by side.
    startup : int
        Random trials before the sampler learns from them.
    seed : int
        Of the sampler.
    """

    def __init__(
        self,
        params: dict[str, Any] | None = None,
        n_trials: int = 20,
        direction: str = "maximize",
        batch: int = 1,
        startup: int = 5,
        seed: int = 0,
    ) -> None:
        self.params = dict(params or {})
        self.n_trials, self.direction, self.batch = n_trials, direction, batch
        self.startup, self.seed = startup, seed
        self.config: DictConfig | None = None
        self.launcher: Launcher | None = None

    @staticmethod
    def plan(config: DictConfig) -> int:
        """How many jobs there will be; raises :class:`UserError` for what cannot be searched."""
        from pipeline.errors import UserError

        settings = config.hydra.sweeper
        if importlib.util.find_spec("optuna") is None:
            raise UserError("hydra/sweeper=optuna: Optuna is not installed: pip install 'advsvm[optuna]'")
        if config.objective is None:
            raise UserError("hydra/sweeper=optuna: say what to optimise, such as objective=cv_score")
        if not config.hydra.launcher.get("wait", True):
            raise UserError(
                "hydra.launcher.wait=false: Optuna must know how a job ended before it chooses the next one"
            )
        if settings.direction not in DIRECTIONS:
            raise UserError(f"hydra.sweeper.direction: must be maximize or minimize; got {settings.direction}")
        for name, least in (("n_trials", 1), ("batch", 1), ("startup", 1), ("seed", 0)):
            if not isinstance(settings[name], int) or settings[name] < least:
                raise UserError(f"hydra.sweeper.{name}: must be a whole number from {least} on; got {settings[name]}")
        given = _arguments(settings.params, OmegaConf.to_container(config.hydra.overrides.task))
        space, _ = search_space(OverridesParser.create().parse_overrides(given))
        if not space:
            raise UserError(
                "hydra/sweeper=optuna: nothing to search; give a setting several values, such as "
                "'model.C=tag(log,interval(0.1,100))'"
            )
        return int(settings.n_trials)

    def sweep(self, arguments: list[str]) -> Any:
        """Ask for trials, launch them as jobs, tell what they returned."""
        import optuna

        from pipeline import sweep

        assert self.config is not None
        assert self.launcher is not None
        assert self.hydra_context is not None
        folder = Path(str(self.config.hydra.sweep.dir))
        folder.mkdir(parents=True, exist_ok=True)
        OmegaConf.save(self.config, folder / "multirun.yaml")
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        sampler = optuna.samplers.TPESampler(seed=self.seed, n_startup_trials=self.startup)
        wanted = optuna.study.StudyDirection[self.direction.upper()]
        study = optuna.create_study(sampler=sampler, direction=wanted)
        parser = OverridesParser.create(config_loader=self.hydra_context.config_loader)
        space, fixed = search_space(parser.parse_overrides(_arguments(self.params, arguments)))
        returns: list[Sequence[JobReturn]] = []
        for first in range(0, self.n_trials, self.batch):
            count = min(self.batch, self.n_trials - first)
            trials = [study.ask(space) for _ in range(count)]
            jobs = [[*fixed, *(f"{key}={written(trial.params[key])}" for key in space)] for trial in trials]
            self.validate_batch_is_legal(jobs)
            sweep.add_jobs(jobs)
            ended = self.launcher.launch(jobs, initial_job_idx=first)
            for trial, job in zip(trials, ended):
                value = job.return_value
                if isinstance(value, (int, float)) and math.isfinite(value):
                    study.tell(trial, float(value))
                else:
                    study.tell(trial, state=optuna.trial.TrialState.FAIL)
            returns.append(ended)
        return returns


def search_space(overrides: list[Override]) -> tuple[dict[str, Any], list[str]]:
    """What varies, each setting with its distribution, and the overrides that every job has; a later one wins."""
    space: dict[str, Any] = {}
    fixed: dict[str, str] = {}
    for override in overrides:
        key = override.get_key_element()
        space.pop(key, None)
        fixed.pop(key, None)
        if override.is_sweep_override():
            space[key] = _distribution(key, override)
        else:
            fixed[key] = f"{key}={override.get_value_element_as_str()}"
    return space, list(fixed.values())


def _distribution(key: str, override: Override) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution, IntDistribution

    from pipeline.errors import UserError

    sweep = override.value()
    limits: Any = sweep
    log = "log" in getattr(sweep, "tags", ())
    try:
        if isinstance(sweep, IntervalSweep):
            low, high = limits.start, limits.end
            whole = isinstance(low, int) and isinstance(high, int)
            return IntDistribution(low, high, log=log) if whole else FloatDistribution(low, high, log=log)
        if log:
            raise ValueError("log is for intervals")
        if isinstance(sweep, RangeSweep) and isinstance(sweep.start, int) and isinstance(sweep.step, int):
            values = range(limits.start, int(limits.stop), limits.step)
            return IntDistribution(min(values), max(values), step=abs(limits.step))
        if isinstance(sweep, ChoiceSweep | RangeSweep):
            return CategoricalDistribution(list(override.sweep_string_iterator()))
    except (ValueError, TypeError) as error:
        raise UserError(f"{key}: cannot be searched: {error}") from error
    raise UserError(f"{key}: takes choice, range or interval with hydra/sweeper=optuna")


def written(value: Any) -> str:
    """A value of a trial as an override; six digits of a number are plenty, and names of runs stay readable."""
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _arguments(params: Any, arguments: Any) -> list[str]:
    """Settings of the configuration, then those of the command line, which win."""
    return [f"{key!s}={value}" for key, value in dict(params or {}).items()] + list(arguments)
