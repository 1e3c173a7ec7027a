"""``python -m pipeline.run``: one experiment, or with ``-m`` a sweep."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

import hydra
from hydra._internal.utils import get_args_parser
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.utils import get_class
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline import progress, schema, sweep
from pipeline.command import collect_rarely
from pipeline.cores import available_cores
from pipeline.errors import UserError, did_you_mean
from pipeline.identity import CORE, flat, typed
from pipeline.interrupts import Terminated, no_space_as_user_error, terminated_as_exception, winding_up
from pipeline.job import Outcome, labels_of, objective, run_job
from pipeline.messages import one_line
from pipeline.paths import conf_dir
from pipeline.tracking.credentials import without_credentials
from pipeline.tracking.view import how_to_open
from pipeline.trust import guard_compositions

log = logging.getLogger(__name__)

# Our presets have the names of the launchers' own schemas on purpose: they are checked against them.
warnings.filterwarnings("ignore", message=r"\s*'hydra/(launcher|sweeper)/\w+' is validated against ConfigStore schema")

# Here and not in main(): jobs in other processes import this module to find their task.
guard_compositions()
collect_rarely()

_FULL_ERROR = "HYDRA_FULL_ERROR"
_WITH_VALUE = ("--config-dir", "-cd", "--config-path", "-cp", "--config-name", "-cn", "--cfg", "-c", "--package", "-p")
# Set by main() so that jobs in other processes know whether the user wants tracebacks.
_WANTS_TRACEBACK = "ADVSVM_FULL_ERROR"


def _task(cfg: DictConfig) -> Any:
    """A Hydra job. It does not raise: the outcome is written down, and the other jobs of a sweep go on."""
    hydra_cfg = HydraConfig.get()
    folder = Path(hydra_cfg.runtime.output_dir)
    in_sweep = hydra_cfg.mode is not None and hydra_cfg.mode.name == "MULTIRUN"
    if in_sweep:
        progress.name_job(sweep.job_number(hydra_cfg.job.num))
    try:
        outcome = run_job(cfg, typed(hydra_cfg), sweep.current_id() if in_sweep else None)
    except (KeyboardInterrupt, Terminated) as stop:
        cancelled = isinstance(stop, Terminated)
        reason = f"cancelled ({stop})" if cancelled else "interrupted"
        _without_result(cfg, "killed", reason).write(folder)
        if cancelled and getattr(get_class(hydra_cfg.launcher._target_), "cancelled_jobs_return", False):
            return {"status": "killed"}
        raise
    except Exception as error:
        if not in_sweep and _tracebacks():
            raise
        outcome = _without_result(cfg, "failed", one_line(error))
        # The log file keeps the traceback; a single run's reason is the last line on the terminal anyway.
        trace = None if isinstance(error, UserError) else error
        log.error("  failed  %s", outcome.reason, exc_info=trace, extra={progress.QUIET: not in_sweep})
    if outcome.ok and cfg.objective is not None and cfg.objective not in outcome.metrics:
        hint = did_you_mean(cfg.objective, outcome.metrics)
        outcome.status, outcome.reason = "failed", f"objective={cfg.objective}: a run has no such metric{hint}"
    outcome.write(folder)
    if not in_sweep:
        sweep.SESSION.single = outcome
        if outcome.ok:
            log.info("%s", how_to_open(cfg.tracking))
    return objective(cfg, outcome)


def _without_result(cfg: DictConfig, status: str, reason: str) -> Outcome:
    """The outcome of a job that has none to report; ${nope} in its settings must not hide why."""
    try:
        return Outcome(status, labels_of(cfg), flat(cfg), reason=reason)
    except OmegaConfBaseException:
        return Outcome(status, dict.fromkeys(CORE, ""), reason=reason)


def main() -> None:
    """Entry point of the command line; errors meant for the user are one line, exit code 1."""
    sys.stdout, sys.stderr = progress.Unbreakable(sys.stdout), progress.Unbreakable(sys.stderr)
    try:
        # A password leaves the command line before Hydra writes it into a folder or MLflow into an error message.
        sys.argv[1:] = [without_credentials(argument) for argument in as_hydra_reads(sys.argv[1:])]
        _check_flags(sys.argv[1:])
    except UserError as error:
        sys.exit(f"error: {error}")
    wants_traceback = os.environ.get(_FULL_ERROR) == "1"
    # Hydra raises instead of printing and exiting, so that all messages are made in one place: here.
    os.environ[_FULL_ERROR] = "1"
    if wants_traceback:
        os.environ[_WANTS_TRACEBACK] = "1"
    sweep.name_sweep(sys.argv[1:])
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    with terminated_as_exception(last=True):
        code = _run_command(wants_traceback)
    sys.exit(code)


def _run_command(wants_traceback: bool) -> int:
    code, failure = 0, None
    stopped: BaseException | None = None
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(_task)()
    except (KeyboardInterrupt, Terminated) as error:
        winding_up()
        code, failure, stopped = 130, "interrupted: the same command goes on where this one stopped", error
    except (Exception, sweep.Refused) as error:
        if wants_traceback:
            raise
        reason = error.__cause__ if isinstance(error, sweep.Refused) and error.__cause__ else error
        code, failure, stopped = 1, one_line(reason), error
    session = sweep.SESSION
    if session.sweep is not None and (stopped is None or _has_begun(session.sweep, stopped)):
        code = max(code, _close_sweep(session.sweep))
    if session.single is not None and not session.single.ok:
        code, failure = 1, session.single.reason
    if failure:
        print(f"error: {failure}", file=sys.stderr)
    return code


def _has_begun(started: sweep.Sweep, stopped: BaseException) -> bool:
    """Whether what stopped the sweep left anything to make a table of."""
    return sweep.has_begun(started) and not isinstance(stopped, HydraException)


def _close_sweep(started: sweep.Sweep) -> int:
    from pipeline.summary import close

    try:
        with no_space_as_user_error():
            return close(started, sys.argv[1:])
    except Exception as error:
        if _tracebacks():
            raise
        print(f"error: the summary could not be written: {one_line(error)}", file=sys.stderr)
        return 1


def _check_flags(arguments: list[str]) -> None:
    """Refuse in one line what Hydra's own options would answer with their usage, or with running a file."""

    def refuse(message: str) -> NoReturn:
        raise UserError(f"{message}; python -m pipeline.run --help lists what there is")

    parser = get_args_parser()
    parser.error = refuse  # type: ignore[method-assign]
    flags = parser.parse_args(arguments)
    if flags.experimental_rerun is not None:  # unpickled, which is to run whatever is in it
        raise UserError("--experimental-rerun executes what its file says: give the command again instead")
    if flags.resolve and not (flags.cfg or flags.help):
        raise UserError("--resolve goes with --cfg or --help")
    if sum(map(bool, (flags.run, flags.multirun, flags.cfg, flags.info, flags.shell_completion))) > 1:
        raise UserError("give one of --run, --multirun, --cfg, --info and --shell-completion")
    if flags.shell_completion and not any(re.match(r"(install|uninstall|query)=", text) for text in flags.overrides):
        raise UserError("--shell-completion: say install=bash, uninstall=bash or query=bash")


def as_hydra_reads(arguments: list[str]) -> list[str]:
    """The command line in Hydra's grammar.

    ``-m`` and other flags may stand anywhere, groups may be written as settings, and values need no quotes around ``~``
    and letters beyond ASCII, as Hydra wants them.
    """
    flags, settings, rest = [], [], iter(arguments)
    for argument in rest:
        if not argument.startswith("-"):
            settings.append(_quoted(_as_group(argument)))
        elif argument not in flags:
            flags.append(argument)
            if argument in _WITH_VALUE:
                flags += islice(rest, 1)
    return flags + (_for_swept_groups(settings) if {"-m", "--multirun"}.intersection(flags) else settings)


def _for_swept_groups(settings: list[str]) -> list[str]:
    """Settings of a group that is swept, as choices of one: ``model=dnn_free,dnn_mart model.epochs=8``.

    Hydra tries a setting that is the same for all jobs on the group's default choice first, which may not have it.
    """
    swept = [key for key, _, value in (text.partition("=") for text in settings) if "," in value and "." not in key]
    own = re.compile(rf"((?:{'|'.join(map(re.escape, swept))})\.[\w.]+)=([\w.+-]+)")
    return [own.sub(r"\1=choice(\2)", text) if swept and own.fullmatch(text) else text for text in settings]


def _as_group(argument: str) -> str:
    """``model.expansion=support_vectors`` means the group ``model/expansion``, ``surrogate=natural`` a model."""
    match = re.fullmatch(r"model\.(kernel|expansion)=([\w,]+)", argument)
    if match:
        return f"model/{match[1]}={match[2]}"
    return re.sub(r"^surrogate=(?=[\w,]+$)(?!null$)", "model@surrogate=", argument)


def _quoted(argument: str) -> str:
    key, equals, value = argument.partition("=")
    plain = not re.search(r"['\"\[\]{}()\\]", value)
    if not equals or not plain or not re.search(r"[^\w/+.$%*@?|:=, ~-]|[^\x00-\x7f]|(^|,)~", value):
        return argument
    return f"{key}=" + ",".join(f"'{os.path.expanduser(part)}'" for part in value.split(","))


def _tracebacks() -> bool:
    return os.environ.get(_WANTS_TRACEBACK) == "1"


if __name__ == "__main__":
    # Jobs in other processes look the task function up by module name, which must not be __main__.
    from pipeline.run import main as packaged_main

    packaged_main()
