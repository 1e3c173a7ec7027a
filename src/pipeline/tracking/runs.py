"""The life of a run: found by its signature, started, ended as what it became."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from pipeline.cache import StageStore
from pipeline.tracking.store import TrackingStore

STAGE_STORE = "stage_store"  # tag: whose locks say whether the run's process lives
_REASON_LENGTH = 4000  # MLflow refuses longer tag values
_SILENT = "the process ended without a word (killed or out of memory)"


def find_finished(store: TrackingStore, signature: str) -> Any | None:
    """The finished run with this signature, or None."""
    found = store.client.search_runs(
        [store.experiment_id],
        filter_string=f"tags.run_signature = '{signature}' and attributes.status = 'FINISHED'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    return found[0] if found else None


def start(store: TrackingStore, name: str, tags: dict[str, str]) -> str:
    """Create a RUNNING run and return its id."""
    identity = {"host": platform.node(), "pid": str(os.getpid()), "mlflow.source.name": "pipeline.run"}
    run = store.client.create_run(
        store.experiment_id,
        start_time=int(time.time() * 1000),
        tags=identity | tags,
        run_name=name,
    )
    return run.info.run_id


def end(store: TrackingStore, run_id: str, status: str, reason: str | None = None) -> None:
    """End a run as FAILED or KILLED with the reason in a tag."""
    if reason:
        store.client.set_tag(run_id, "reason", reason[:_REASON_LENGTH])
    store.client.set_terminated(run_id, status)


def bury_dead(store: TrackingStore, signature: str, stages: StageStore) -> None:
    """Mark runs of this signature as KILLED whose process is gone (kill -9 leaves them RUNNING).

    Called while the signature's lock is held: a run that was started under the same lock cannot be alive. Process ids
    are no help (they are given out again, and mean nothing on another host); a run of another stage store, on a
    machine that shares only the tracking server with us, is left alone.
    """
    for run in _running(store, f"tags.run_signature = '{signature}'"):
        if run.data.tags.get(STAGE_STORE) == stages.identity:
            end(store, run.info.run_id, "KILLED", _SILENT)


def bury_abandoned(store: TrackingStore, sweep: str, stages: StageStore) -> None:
    """At the end of a sweep: mark its RUNNING runs as KILLED whose lock nobody holds."""
    for run in _running(store, f"tags.sweep = '{sweep}' and tags.role = 'experiment'"):
        tags = run.data.tags
        if tags.get(STAGE_STORE) == stages.identity and not stages.is_running(tags["run_signature"]):
            end(store, run.info.run_id, "KILLED", _SILENT)


def _running(store: TrackingStore, condition: str) -> list[Any]:
    return store.client.search_runs(
        [store.experiment_id], filter_string=f"{condition} and attributes.status = 'RUNNING'"
    )
