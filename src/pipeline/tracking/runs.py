"""The life of a run: found by its signature, started, ended as what it became."""

from __future__ import annotations

import os
import platform
import time
from typing import Any

from pipeline.tracking.store import TrackingStore

_REASON_LENGTH = 4000  # MLflow refuses longer tag values


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


def bury_dead(store: TrackingStore, signature: str) -> None:
    """Mark runs of this signature as KILLED whose process is gone (kill -9 leaves them RUNNING).

    Called while the signature's lock is held, so no living job of ours can be among them; a run of another host is
    left alone because its process cannot be looked up from here.
    """
    found = store.client.search_runs(
        [store.experiment_id], filter_string=f"tags.run_signature = '{signature}' and attributes.status = 'RUNNING'"
    )
    for run in found:
        if run.data.tags.get("host") == platform.node():
            end(store, run.info.run_id, "KILLED", "the process ended without a word (killed or out of memory)")
