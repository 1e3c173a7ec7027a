"""``python -m pipeline.run``: one experiment, or with ``-m`` a sweep."""

from __future__ import annotations

import logging
import os
import re
import sys
import warnings
from pathlib import Path
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from pipeline import schema, sweep
from pipeline.cores import available_cores
from pipeline.interrupts import Terminated, no_space_as_user_error
from pipeline.job import Outcome, labels_of, run_job
from pipeline.messages import one_line
from pipeline.paths import conf_dir
from pipeline.tracking.store import without_credentials
from pipeline.tracking.view import how_to_open

log = logging.getLogger(__name__)

# Our presets have the names of the launchers' own schemas on purpose: they are checked against them.
warnings.filterwarnings("ignore", message=r"\s*'hydra/launcher/\w+' is validated against ConfigStore schema")

_FULL_ERROR = "HYDRA_FULL_ERROR"
# Set by main() so that jobs in other processes know whether the user wants tracebacks.
_WANTS_TRACEBACK = "ADVSVM_FULL_ERROR"
_single: list[Outcome] = []


def _task(cfg: DictConfig) -> dict[str, Any]:
    """A Hydra job. It does not raise: the outcome is written down, and the other jobs of a sweep go on."""
    hydra_cfg = HydraConfig.get()
    folder, overrides = Path(hydra_cfg.runtime.output_dir), list(hydra_cfg.overrides.task)
    in_sweep = hydra_cfg.mode is not None and hydra_cfg.mode.name == "MULTIRUN"
    try:
        outcome = run_job(cfg, overrides, sweep.current_id() if in_sweep else None)
    except (KeyboardInterrupt, Terminated) as stop:
        cancelled = isinstance(stop, Terminated)
        Outcome("killed", labels_of(cfg), reason="cancelled (SIGTERM)" if cancelled else "interrupted").write(folder)
        if cancelled and "Joblib" in hydra_cfg.launcher._target_:
            return {"status": "killed"}  # one worker was cancelled; raised here, it would end the whole pool
        raise
    except Exception as error:
        if not in_sweep and _tracebacks():
            raise
        outcome = Outcome("failed", labels_of(cfg), reason=one_line(error))
        if in_sweep:
            log.error("  failed  %s", outcome.reason, exc_info=error if _tracebacks() else None)
    outcome.write(folder)
    if not in_sweep:
        _single.append(outcome)
        if outcome.ok:
            log.info("%s", how_to_open(cfg.tracking))
    return {"status": outcome.status}


def main() -> None:
    """Entry point of the command line; errors meant for the user are one line, exit code 1."""
    # A password leaves the command line before Hydra writes it into a folder or MLflow into an error message.
    sys.argv[1:] = [without_credentials(_as_group(argument)) for argument in sys.argv[1:]]
    wants_traceback = os.environ.get(_FULL_ERROR) == "1"
    # Hydra raises instead of printing and exiting, so that all messages are made in one place: here.
    os.environ[_FULL_ERROR] = "1"
    if wants_traceback:
        os.environ[_WANTS_TRACEBACK] = "1"
    sweep.name_sweep(sys.argv[1:])
    schema.register()
    OmegaConf.register_new_resolver("cores", available_cores, replace=True)
    code, failure = 0, None
    stopped: BaseException | None = None
    try:
        hydra.main(version_base="1.3", config_path=str(conf_dir()), config_name="config")(_task)()
    except (KeyboardInterrupt, Terminated):
        code, failure = 130, "interrupted: the same command goes on where this one stopped"
    except (Exception, sweep.Refused) as error:
        if wants_traceback:
            raise
        reason = error.__cause__ if isinstance(error, sweep.Refused) and error.__cause__ else error
        code, failure, stopped = 1, one_line(reason), error
    if sweep.SweepCallback.started is not None and not isinstance(stopped, HydraException):
        code = max(code, _close_sweep(sweep.SweepCallback.started))
    if _single and not _single[0].ok:
        code, failure = 1, _single[0].reason
    if failure:
        print(f"error: {failure}", file=sys.stderr)
    sys.exit(code)


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


def _as_group(argument: str) -> str:
    """``model.expansion=support_vectors`` means the group ``model/expansion``; accept both spellings."""
    match = re.fullmatch(r"model\.(kernel|expansion)=([\w,]+)", argument)
    return f"model/{match[1]}={match[2]}" if match else argument


def _tracebacks() -> bool:
    return os.environ.get(_WANTS_TRACEBACK) == "1"


if __name__ == "__main__":
    # Jobs in other processes look the task function up by module name, which must not be __main__.
    from pipeline.run import main as packaged_main

    packaged_main()
