"""One experiment from configuration to tracked run."""

from __future__ import annotations

import json
import logging
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from pipeline.cores import job_threads, limit_threads
from pipeline.interrupts import (
    Terminated,
    is_full_disk,
    no_space_as_user_error,
    terminated_as_exception,
    uninterrupted,
    winding_up,
)
from pipeline.stages.plan import attack_label
from pipeline.validation import validate

if TYPE_CHECKING:
    from pipeline.stages.chain import Results
    from pipeline.tracking.bundle import RunBundle
    from pipeline.tracking.store import TrackingStore

log = logging.getLogger(__name__)

RESULT_FILE = "result.json"
CURVES = ("test_error", "adversarial_test_error", "robust_accuracy_by_step")


@dataclass
class Outcome:
    """How a job ended: ``finished``, ``reused``, ``pending`` (computed, not uploaded), ``failed`` or ``killed``."""

    status: str
    labels: dict[str, Any]
    run_id: str | None = None
    reason: str | None = None
    metrics: dict[str, float] = field(default_factory=dict)
    curves: dict[str, list[tuple[int, float]]] = field(default_factory=dict)
    checks: dict[str, str] = field(default_factory=dict)

    @property
    def ok(self) -> bool:
        """Whether there is a result to report."""
        return self.status in ("finished", "reused", "pending")

    def write(self, folder: Path) -> None:
        """Leave the outcome where the sweep's summary finds it, whichever process or machine ran the job."""
        folder.mkdir(parents=True, exist_ok=True)
        temporary = folder / f".{RESULT_FILE}"
        temporary.write_text(json.dumps(asdict(self)))
        temporary.rename(folder / RESULT_FILE)


def labels_of(cfg: DictConfig) -> dict[str, Any]:
    """What the tables are indexed by; ``bounded`` says whether the attack stays in a ball."""
    names = {"dataset": cfg.dataset.name, "model": cfg.model.name, "attack": attack_label(cfg), "seed": cfg.seed}
    return names | {"bounded": cfg.attack.name == "none" or "epsilon" in cfg.attack}


def stages_folder(cfg: DictConfig) -> Path:
    """Where finished stages are kept."""
    return Path(cfg.cache.folder or Path(cfg.tracking.folder) / "stages")


def run_job(cfg: DictConfig, overrides: list[str], sweep: str | None = None) -> Outcome:
    """Run one experiment, or report the finished run that has the same signature.

    Raises :class:`UserError` for what the user can mend; every other exception ends the MLflow run as FAILED and is
    passed on.
    """
    validate(cfg)
    with terminated_as_exception(), no_space_as_user_error():
        _limit_threads(cfg)
        from pipeline.tracking.bundle import send_pending
        from pipeline.tracking.store import open_store, prepare

        prepare(cfg.tracking)
        fingerprint = _fingerprint(cfg)
        store = open_store(cfg.tracking)
        send_pending(store)
        return _run(cfg, overrides, sweep, fingerprint, store)


def _run(cfg: DictConfig, overrides: list[str], sweep: str | None, fingerprint: str, store: TrackingStore) -> Outcome:
    from pipeline.cache import StageStore
    from pipeline.stages.chain import Chain
    from pipeline.stages.plan import plan
    from pipeline.tracking import runs
    from pipeline.tracking.bundle import RunBundle
    from pipeline.tracking.record import identity_tags, run_name

    stages = StageStore(stages_folder(cfg))
    keys = plan(cfg, fingerprint)
    # Held for the whole job: the same job started twice computes once, and the second one reports the first.
    with stages.running(keys.signature, keys.entries):
        if cfg.on_existing == "reuse":
            finished = runs.find_finished(store, keys.signature)
            if finished is not None:
                return _reuse(cfg, finished, sweep, store)
        runs.bury_dead(store, keys.signature, stages)
        tags = identity_tags(cfg, keys.signature, sweep) | _job_tags() | {runs.STAGE_STORE: stages.identity}
        run_id = ""
        try:
            with uninterrupted():
                run_id = runs.start(store, run_name(cfg), tags)
            log.info("%s  (run %s)", run_name(cfg), run_id[:8])
            results = Chain(cfg, _load_data(cfg), stages).run(keys)
            waiting = store.folder / "pending" / keys.signature
            bundle = RunBundle(waiting, run_id, run_name(cfg), store.uri, store.experiment, tags=tags)
            return _finish(cfg, results, bundle, overrides, store)
        except (KeyboardInterrupt, Terminated) as stop:
            winding_up()
            reason = "cancelled (SIGTERM)" if isinstance(stop, Terminated) else "interrupted (Ctrl-C)"
            _end_quietly(store, run_id, "KILLED", reason)
            raise
        except BaseException as error:
            _end_quietly(store, run_id, "FAILED", f"{type(error).__name__}: {error}")
            raise


def _finish(
    cfg: DictConfig, results: Results, bundle: RunBundle, overrides: list[str], store: TrackingStore
) -> Outcome:
    from pipeline.tracking.bundle import upload
    from pipeline.tracking.record import record
    from pipeline.tracking.store import masked

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
    outcome = Outcome("finished", labels_of(cfg), bundle.run_id, metrics=evaluated.metrics, curves=evaluated.curves)
    outcome.checks = {check.id: check.status for check in evaluated.checks}
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
    m = evaluated.metrics
    log.info(
        "  result  clean %.2f %%   robust %.2f %%   certified at L2 %g: %.2f %%",
        100 * m["clean_accuracy"], 100 * m["robust_accuracy"],
        cfg.evaluation.certified_radius, 100 * m["certified_accuracy"],
    )  # fmt: skip
    if strict_failure:
        outcome.status, outcome.reason = "failed", strict_failure
    return outcome


def _reuse(cfg: DictConfig, run: Any, sweep: str | None, store: TrackingStore) -> Outcome:
    from pipeline.tracking.record import run_name

    if sweep and run.data.tags.get("sweep") != sweep:
        store.client.set_tag(run.info.run_id, "sweep", sweep)
    checks = {k.removeprefix("check."): v for k, v in run.data.tags.items() if k.startswith("check.")}
    metrics = dict(run.data.metrics)
    log.info(
        "%s  reused run %s: clean %.2f %%   robust %.2f %%",
        run_name(cfg), run.info.run_id[:8], 100 * metrics["clean_accuracy"], 100 * metrics["robust_accuracy"],
    )  # fmt: skip
    outcome = Outcome("reused", labels_of(cfg), run.info.run_id, metrics=metrics, checks=checks)
    for name in metrics:
        if name in CURVES or name.startswith("squared_error"):
            points = store.client.get_metric_history(run.info.run_id, name)
            outcome.curves[name] = sorted((point.step, point.value) for point in points)
    return outcome


def _fingerprint(cfg: DictConfig) -> str:
    """From the data's manifest when the files are untouched; else by loading (and fetching) the data."""
    from pipeline.data import summary

    known = summary(cfg.dataset)
    return known["fingerprint"] if known else _load_data(cfg).fingerprint


def _load_data(cfg: DictConfig) -> Any:
    from pipeline.data import load_dataset
    from pipeline.progress import watch

    with watch("data") as observer:
        return load_dataset(cfg.dataset, progress=observer)


def _limit_threads(cfg: DictConfig) -> None:
    threads = job_threads(cfg.compute.threads)
    if threads is not None:
        limit_threads(threads)


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


def _end_quietly(store: TrackingStore, run_id: str, status: str, reason: str) -> None:
    """End the run without hiding the error that brought us here."""
    from pipeline.tracking import runs

    if not run_id:
        return
    try:
        runs.end(store, run_id, status, reason)
    except Exception as error:
        log.warning("  the run could not be marked %s (%s); the next start of this job does it", status, _kind(error))


def _kind(error: Exception) -> str:
    return "no space left on the disk" if is_full_disk(error) else type(error).__name__
