"""One experiment from configuration to tracked run."""

from __future__ import annotations

import json
import logging
import math
import os
import traceback
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from pipeline import fitted
from pipeline.cores import job_threads, limit_threads
from pipeline.identity import core, flat, run_name
from pipeline.interrupts import (
    Terminated,
    is_full_disk,
    no_space_as_user_error,
    terminated_as_exception,
    uninterrupted,
    winding_up,
)
from pipeline.paths import DATABASE, write_whole
from pipeline.trust import check_trusted
from pipeline.validation import check_by_building, check_groups, check_rows, fix_axes, validate

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.stages.experiment import Results
    from pipeline.tracking.bundle import RunBundle
    from pipeline.tracking.runs import Finished
    from pipeline.tracking.store import TrackingStore

log = logging.getLogger(__name__)

RESULT_FILE = "result.json"
CURVES = ("test_error", "adversarial_test_error", "robust_accuracy_by_step")


@dataclass
class Outcome:
    """How a job ended: ``finished``, ``reused``, ``pending`` (computed, not uploaded), ``failed`` or ``killed``."""

    status: str
    labels: dict[str, Any]
    settings: dict[str, str] = field(default_factory=dict)  # flat, as pipeline.identity takes them
    run_id: str | None = None
    reason: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)
    threat: str | None = None
    """Norm and radius of the bracket, in words; None without an attack, or where there is no result."""
    bounded: bool = True
    """Whether that is the attack's own ball, not the L2 cap."""

    @property
    def ok(self) -> bool:
        """Whether there is a result to report."""
        return self.status in ("finished", "reused", "pending")

    def write(self, folder: Path) -> None:
        """Leave the outcome where the sweep's summary finds it, whichever process or machine ran the job."""
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / RESULT_FILE, json.dumps(asdict(self)))


def labels_of(cfg: DictConfig) -> dict[str, Any]:
    """What the tables are indexed by."""
    return core(flat(cfg)) | {"seed": cfg.seed}


def result_line(metrics: dict[str, float], threat: str, attacked: bool = True) -> str:
    """Clean accuracy, and both sides of the bracket in one threat, over the same rows."""
    certified, undecided = metrics["certified_accuracy"], metrics["undecided"]
    clean = f"clean {metrics['clean_accuracy']:.2%}"
    if metrics["n_attacked"] < metrics["n_test"]:
        clean += f" ({metrics['clean_accuracy_attacked']:.2%} of the {metrics['n_attacked']:.0f} attacked)"
    known = f"{clean}   within {threat}: certified {certified:.2%}"
    if attacked:
        known += f", attacked {certified + undecided:.2%}, undecided {undecided:.2%}"
    return known + (" (out of evaluation.certify_seconds)" if metrics.get("certify_stopped") else "")


def stages_folder(cfg: DictConfig) -> Path:
    """Where finished stages are kept."""
    return Path(cfg.cache.folder or Path(cfg.tracking.folder) / "stages")


def objective(cfg: DictConfig, outcome: Outcome) -> Any:
    """What a job returns to the sweeper: the metric of ``objective``, NaN where there is none; else how it ended."""
    return {"status": outcome.status} if cfg.objective is None else outcome.metrics.get(cfg.objective, math.nan)


def run_job(cfg: DictConfig, overrides: list[str], sweep: str | None = None) -> Outcome:
    """Run one experiment, or report the finished run that has the same signature.

    Raises :class:`UserError` for what the user can put right; every other exception ends the MLflow run as FAILED and
    is passed on.
    """
    check_groups(cfg)
    check_trusted(cfg, overrides)
    notes = fix_axes(cfg, overrides)
    log.info("%s", run_name(cfg))  # before anything slow is imported
    for note in notes:
        log.info("  note    %s", note)
    validate(cfg)
    if not _was_computed(cfg):
        check_by_building(cfg)
    with terminated_as_exception(), no_space_as_user_error():
        threads = job_threads(cfg.compute.threads)
        if threads is not None:
            limit_threads(threads)
        from pipeline.cache import StageStore
        from pipeline.tracking import runs
        from pipeline.tracking.bundle import send_pending
        from pipeline.tracking.store import open_store, prepare

        prepare(cfg.tracking)
        fingerprint = _fingerprint(cfg, sweep)
        reused = _look_up(cfg, sweep, fingerprint)
        if reused is not None:
            return _reuse(cfg, reused)
        # No store yet: there can be no run to report, and what is refused leaves none behind.
        fresh = not cfg.tracking.uri and not (Path(cfg.tracking.folder) / DATABASE).exists()
        data = _checked_data(cfg, fingerprint) if fresh else None
        store = open_store(cfg.tracking)
        send_pending(store)
        runs.end_abandoned(store, StageStore(stages_folder(cfg)))
        return _run(cfg, overrides, sweep, fingerprint, store, data)


def _run(
    cfg: DictConfig,
    overrides: list[str],
    sweep: str | None,
    fingerprint: str,
    store: TrackingStore,
    data: Dataset | None = None,
) -> Outcome:
    from pipeline.cache import StageStore
    from pipeline.stages.experiment import Experiment
    from pipeline.tracking import runs
    from pipeline.tracking.bundle import RunBundle, register_model
    from pipeline.tracking.record import identity_tags

    stages = StageStore(stages_folder(cfg), cfg.cache.max_gb)
    experiment = Experiment.of(cfg, fingerprint)
    signature = experiment.signature
    # Held for the whole job: the same job started twice computes once, and the second one reports the first.
    with stages.running(signature, experiment.entries):
        if cfg.on_existing == "reuse":
            finished = runs.find_finished(store, signature, _is_curve)
            if finished is not None:
                if sweep:
                    runs.join(store, finished, sweep)
                if cfg.tracking.register:
                    register_model(store, finished.id, cfg.tracking.register)
                return _reuse(cfg, finished)
        runs.end_dead(store, signature, stages)
        tags = identity_tags(cfg, signature, sweep) | _job_tags() | {runs.STAGE_STORE: stages.identity}
        data = data or _checked_data(cfg, fingerprint)
        run_id = ""
        try:
            with uninterrupted():
                run_id = runs.start(store, run_name(cfg), tags)
            log.info("  run     %s", run_id[:8])
            results = experiment.run(stages, data)
            waiting = store.folder / "pending" / signature
            bundle = RunBundle(waiting, run_id, run_name(cfg), store.uri, store.experiment, tags=tags)
            return _finish(cfg, results, bundle, overrides, store)
        except (KeyboardInterrupt, Terminated) as stop:
            winding_up()
            reason = f"cancelled ({stop})" if isinstance(stop, Terminated) else "interrupted (Ctrl-C)"
            _end_quietly(store, run_id, "KILLED", reason)
            raise
        except BaseException as error:
            _end_quietly(store, run_id, "FAILED", f"{type(error).__name__}: {error}", traceback.format_exc())
            raise


def _finish(
    cfg: DictConfig, results: Results, bundle: RunBundle, overrides: list[str], store: TrackingStore
) -> Outcome:
    from pipeline.tracking.bundle import upload
    from pipeline.tracking.credentials import masked
    from pipeline.tracking.record import as_logged, record

    evaluated = results.evaluated
    failed = [check for check in evaluated.checks if check.status == "fail"]
    for check in failed:
        log.warning("  check   %s failed: %s", check.id, check.message)
    bundle.start_afresh()
    strict_failure = None
    if cfg.strict and failed:
        strict_failure = f"strict=true and {len(failed)} checks failed: {', '.join(c.id for c in failed)}"
        bundle.status, bundle.tags["reason"] = "FAILED", strict_failure
    record(cfg, results, bundle, overrides)
    outcome, known = Outcome("finished", labels_of(cfg), flat(cfg), bundle.run_id), evaluated.verdicts
    outcome.metrics, outcome.curves = as_logged(evaluated.metrics), evaluated.curves
    outcome.checks = {check.id: check.status for check in evaluated.checks}
    outcome.threat, outcome.bounded = known.shown if known.attacked else None, known.bounded
    try:
        upload(bundle, store)
    except Exception as error:
        if not store.is_server:
            raise
        outcome.status = "pending"
        log.warning(
            "  the tracking server %s failed (%s): the results are kept in %s; python -m pipeline.sync uploads them",
            masked(store.uri), type(error).__name__, bundle.folder,
        )  # fmt: skip
    log.info("  result  %s", result_line(evaluated.metrics, known.shown, known.attacked))
    if strict_failure:
        outcome.status, outcome.reason = "failed", strict_failure
    return outcome


def finished_outcome(cfg: DictConfig, overrides: list[str], sweep: str) -> Outcome | None:
    """The outcome of a sweep's job whose run is finished; None, without a word, where the job must see for itself."""
    from pipeline.data import summary

    try:
        check_groups(cfg)
        check_trusted(cfg, overrides)
        notes = fix_axes(cfg, overrides)
        validate(cfg)
        # Data that were never loaded, or changed, are loaded where a run could follow.
        finished = _look_up(cfg, sweep, _fingerprint(cfg, sweep)) if summary(cfg.dataset) else None
        if finished is None or cfg.objective not in (None, *finished.metrics):
            return None
        log.info("%s", run_name(cfg))
        for note in notes:
            log.info("  note    %s", note)
        return _reuse(cfg, finished)
    except Exception:  # whatever it is, the job meets it again and reports it
        return None


def _look_up(cfg: DictConfig, sweep: str | None, fingerprint: str) -> Finished | None:
    """The finished run of the local store, without waiting for MLflow; None where that must be asked."""
    from pipeline.stages.experiment import Experiment
    from pipeline.tracking import runs
    from pipeline.tracking.bundle import pending

    if cfg.tracking.uri or cfg.tracking.register or cfg.on_existing != "reuse" or pending(Path(cfg.tracking.folder)):
        return None
    database, signature = Path(cfg.tracking.folder) / DATABASE, Experiment.of(cfg, fingerprint).signature
    finished = runs.look_up(database, cfg.tracking.experiment, signature, _is_curve)
    if finished is None or (sweep and not finished.belongs_to(sweep)):
        return None
    return finished


def _is_curve(metric: str) -> bool:
    return metric in CURVES or metric.startswith("squared_error")


def _reuse(cfg: DictConfig, run: Finished) -> Outcome:
    from pipeline.stages.bracket import threat_words

    checks = {k.removeprefix("check."): v for k, v in run.tags.items() if k.startswith("check.")}
    params = run.params
    radius = float(params["threat.epsilon"])
    threat = threat_words(params["threat.norm"], radius, radius if params.get("threat.units") == "raw" else None)
    attacked = params["threat.attacked"] == "True"
    log.info("  reused run %s: %s", run.id[:8], result_line(run.metrics, threat, attacked))
    outcome = Outcome(
        "reused", labels_of(cfg), flat(cfg), run.id, metrics=run.metrics, curves=run.curves, checks=checks
    )
    if "threat.bounded" in params:
        outcome.threat, outcome.bounded = threat if attacked else None, params["threat.bounded"] == "True"
    return outcome


def _was_computed(cfg: DictConfig) -> bool:
    """Whether these settings have gone through before: then there is nothing to wait for torch for."""
    from pipeline.cache import StageStore
    from pipeline.data import summary
    from pipeline.stages.experiment import Experiment

    known = summary(cfg.dataset)
    if not known or not stages_folder(cfg).is_dir():
        return False
    return StageStore(stages_folder(cfg)).has("evaluate", Experiment.of(cfg, known["fingerprint"]).signature)


def _fingerprint(cfg: DictConfig, sweep: str | None) -> str:
    """From the data's manifest when the files are untouched, else by loading (and fetching); one for a whole sweep."""
    from hydra.core.hydra_config import HydraConfig

    from pipeline.data import hold_to, summary

    known = summary(cfg.dataset)
    found = known["fingerprint"] if known else _load_data(cfg).fingerprint
    if sweep is not None:
        hold_to(Path(HydraConfig.get().sweep.dir), cfg.dataset, found)
    return found


def _load_data(cfg: DictConfig, planned: str | None = None) -> Dataset:
    """The data as the stages use them; what they say and the stages do not heed is refused before a run exists."""
    from pipeline.data import load_dataset
    from pipeline.progress import watch
    from pipeline.stages.build import build_attack, build_model, staged_data
    from pipeline.stages.protocol import check_protocol

    with watch("data") as observer:
        data = staged_data(cfg, load_dataset(cfg.dataset, progress=observer, planned=planned))
    build_attack(cfg, data)
    if not fitted.is_fitted(cfg):
        check_protocol(build_model(cfg.model, data, cfg.seed), data, cfg.model.name)
    return data


def _checked_data(cfg: DictConfig, planned: str) -> Dataset:
    """What was planned, found to be enough and to fit the model: all that is wrong is said before there is a run."""
    data = _load_data(cfg, planned)
    check_rows(cfg, data.y_train)
    if fitted.is_fitted(cfg):
        from pipeline.stages.attack import check_access

        check_access(cfg, data, fitted.adopt(cfg, data))
    return data


def _job_tags() -> dict[str, str]:
    """Where to find the job's logs: its folder, and on a cluster its id, its node and the file with its output."""
    from hydra.core.hydra_config import HydraConfig

    tags = {}
    if HydraConfig.initialized():
        tags["log_folder"] = HydraConfig.get().runtime.output_dir
    for tag, variable in (("slurm_job_id", "SLURM_JOB_ID"), ("slurm_node", "SLURMD_NODENAME")):
        if os.environ.get(variable):
            tags[tag] = os.environ[variable]
    if os.environ.get("SUBMITIT_FOLDER"):
        from submitit import JobEnvironment

        environment = JobEnvironment()
        # In the form that sacct and scancel take: 12_3 is job 3 of array 12.
        tags["slurm_job_id" if "slurm_job_id" in tags else "local_job_id"] = environment.job_id
        tags["log_path"] = str(environment.paths.stdout)
    return tags


def _end_quietly(store: TrackingStore, run_id: str, status: str, reason: str, trace: str | None = None) -> None:
    """End the run without hiding the error that brought us here."""
    from pipeline.tracking import runs

    if not run_id:
        return
    try:
        runs.end(store, run_id, status, reason, trace)
    except Exception as error:
        kind = "no space left on the disk" if is_full_disk(error) else type(error).__name__
        log.warning("  the run could not be marked %s (%s); the next start of this job does it", status, kind)
