"""The life of a run: found by its signature, started, ended as what it became; and the curves of many at once."""

from __future__ import annotations

import logging
import math
import os
import platform
import sqlite3
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.cache import StageStore
from pipeline.paths import connect
from pipeline.tracking.store import TrackingStore
from pipeline.tracking.view import member_tag

log = logging.getLogger(__name__)

Curve = list[tuple[int, float]]  # points (step, value)

STAGE_STORE = "stage_store"  # tag: whose locks say whether the run's process lives
_REASON_LENGTH = 4000  # MLflow refuses longer tag values
_SILENT = "the process ended without a word (killed or out of memory)"
# What MLflow's page asks its own server by; a request has room for so many points of all its runs together.
_BULK = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
_POINTS, _RUNS = 25_000, 25


@dataclass(frozen=True)
class Finished:
    """A finished run as its reuse needs it; ``curves`` are the stepped metrics, points (step, value) in their order."""

    id: str
    experiment_id: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: dict[str, float]
    curves: dict[str, Curve]

    def belongs_to(self, sweep: str) -> bool:
        """Whether it is marked as one of the sweep's."""
        return member_tag(sweep) in self.tags


def look_up(database: Path, experiment: str, signature: str, is_curve: Callable[[str], bool]) -> Finished | None:
    """The finished run with this signature in a local store, without MLflow: importing that takes longer than to look.

    None also when the database is not as expected: then MLflow is asked.
    """
    if not database.is_file():
        return None
    try:
        with closing(connect(database)) as connection:
            found = connection.execute(
                "select r.run_uuid, r.experiment_id from tags t join runs r on r.run_uuid = t.run_uuid "
                "join experiments e on e.experiment_id = r.experiment_id "
                "where t.key = 'run_signature' and t.value = ? and r.status = 'FINISHED' and e.name = ? "
                "and r.lifecycle_stage = 'active' and e.lifecycle_stage = 'active' order by r.start_time limit 1",
                (signature, experiment),
            ).fetchone()
            if found is None:
                return None

            def rows(what: str) -> list[Any]:
                return connection.execute(f"select {what} where run_uuid = ?", found[:1]).fetchall()

            metrics = {k: math.nan if nan else v for k, v, nan in rows("key, value, is_nan from latest_metrics")}
            points: dict[str, Curve] = {name: [] for name in metrics if is_curve(name)}
            for name, step, value in rows("key, step, value from metrics") if points else ():
                if name in points:
                    points[name].append((step, value))
            tags, params = dict(rows("key, value from tags")), dict(rows("key, value from params"))
            curves = {name: sorted(own) for name, own in points.items()}
            return Finished(found[0], str(found[1]), tags, params, metrics, curves)
    except (sqlite3.Error, UnicodeDecodeError):
        return None


def find_finished(store: TrackingStore, signature: str, is_curve: Callable[[str], bool]) -> Finished | None:
    """The finished run with this signature, or None."""
    found = store.client.search_runs(
        [store.experiment_id],
        filter_string=f"tags.run_signature = '{signature}' and attributes.status = 'FINISHED'",
        max_results=1,
        order_by=["attributes.start_time ASC"],
    )
    if not found:
        return None
    id, data = found[0].info.run_id, found[0].data
    points = {name: store.client.get_metric_history(id, name) for name in data.metrics if is_curve(name)}
    stepped = {name: sorted((point.step, point.value) for point in own) for name, own in points.items()}
    return Finished(id, store.experiment_id, dict(data.tags), dict(data.params), dict(data.metrics), stepped)


def join(store: TrackingStore, run: Finished, sweep: str) -> None:
    """Mark a reused run as one of the sweep's."""
    if not run.belongs_to(sweep):
        for key, value in (("sweep", sweep), (member_tag(sweep), "1")):
            store.client.set_tag(run.id, key, value)


def start(store: TrackingStore, name: str, tags: dict[str, str]) -> str:
    """Create a RUNNING run and return its id."""
    identity = {"host": platform.node(), "pid": str(os.getpid()), "mlflow.source.name": "pipeline.run"}
    started = int(time.time() * 1000)
    return store.trusted(store.client.create_run(store.experiment_id, started, identity | tags, name)).info.run_id


@contextmanager
def filled(store: TrackingStore, run_id: str, status: str = "FINISHED") -> Iterator[None]:
    """End a run after the block that fills it: as ``status``, or as FAILED where that did not succeed."""
    try:
        yield
    except BaseException as error:
        end(store, run_id, "FAILED", f"{type(error).__name__}: {error}")
        raise
    store.client.set_terminated(run_id, status)


def end(store: TrackingStore, run_id: str, status: str, reason: str | None = None, trace: str | None = None) -> None:
    """End a run as FAILED or KILLED with the reason in a tag, and where it went wrong as an artifact."""
    if trace:
        store.client.log_text(run_id, trace, "traceback.txt")
    if reason:
        store.client.set_tag(run_id, "reason", reason[:_REASON_LENGTH])
    store.client.set_terminated(run_id, status)


def end_dead(store: TrackingStore, signature: str, stages: StageStore) -> None:
    """Mark runs of this signature as KILLED whose process is gone (kill -9 leaves them RUNNING).

    Called while the signature's lock is held: a run that was started under the same lock cannot be alive. Process ids
    are no help (they are given out again, and mean nothing on another host); a run of another stage store, on a
    machine that shares only the tracking server with us, is left alone.
    """
    for run in _running(store, f"tags.run_signature = '{signature}'"):
        if run.data.tags.get(STAGE_STORE) == stages.identity:
            end(store, run.info.run_id, "KILLED", _SILENT)


def end_abandoned(store: TrackingStore, stages: StageStore) -> None:
    """Mark as KILLED whatever is RUNNING and held by nobody, of this job, its sweep or another one."""
    for run in _running(store, f"tags.{STAGE_STORE} = '{stages.identity}'"):
        with stages.if_free(run.data.tags["run_signature"]) as free:
            # Asked again: it may have ended between the search and our getting its lock.
            if free and store.client.get_run(run.info.run_id).info.status == "RUNNING":
                end(store, run.info.run_id, "KILLED", _SILENT)


def _running(store: TrackingStore, condition: str) -> list[Any]:
    return store.client.search_runs(
        [store.experiment_id], filter_string=f"{condition} and attributes.status = 'RUNNING'"
    )


def metric_histories(store: TrackingStore, runs: Sequence[str], name: str) -> dict[str, Curve]:
    """Run → points of one stepped metric, in their order; runs without it are left out.

    MLflow's client asks for one metric of one run at a time.
    """
    found: dict[str, Curve] = defaultdict(list)
    try:
        for run, step, value in _from_server(store, runs, name) if store.is_server else _from_file(store, name):
            found[run].append((step, value))
    except Exception as error:  # neither the table nor the address is documented: then one by one
        log.debug("metrics are read one by one (%s: %s)", type(error).__name__, error)
        found = defaultdict(list)
        for run in runs:
            found[run] = [(point.step, point.value) for point in store.client.get_metric_history(run, name)]
    wanted = set(runs)
    return {run: sorted(points) for run, points in found.items() if run in wanted and points}


def _from_file(store: TrackingStore, name: str) -> Iterator[tuple[str, int, float]]:
    from sqlalchemy.engine import make_url

    database = make_url(store.uri).database
    if not database:
        raise sqlite3.OperationalError(f"{store.uri} names no file")
    with closing(connect(Path(database))) as connection:
        query = "select run_uuid, step, value, is_nan from metrics where key = ?"
        for run, step, value, is_nan in connection.execute(query, (name,)):
            yield run, step, math.nan if is_nan else value


def _from_server(store: TrackingStore, runs: Sequence[str], name: str) -> Iterator[tuple[str, int, float]]:
    from mlflow.utils.rest_utils import http_request

    credentials: Any = store.client._tracking_client.store.get_host_creds()
    for start in range(0, len(runs), _RUNS):
        asked = {"run_id": list(runs[start : start + _RUNS]), "metric_key": name, "max_results": _POINTS}
        answer = http_request(credentials, _BULK, "GET", params=asked)
        answer.raise_for_status()
        points = answer.json().get("metrics", [])
        if len(points) >= _POINTS:
            raise ValueError("more points than a request has room for")
        for point in points:
            yield point["run_id"], int(point.get("step", 0)), float(point["value"])
