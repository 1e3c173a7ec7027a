"""Stepped metrics of many runs at once: MLflow's client asks for one metric of one run at a time."""

from __future__ import annotations

import logging
import math
import sqlite3
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from pipeline.tracking.relocation import connect
from pipeline.tracking.store import TrackingStore

log = logging.getLogger(__name__)

# What MLflow's page asks its own server by; a request has room for so many points of all its runs together.
_BULK = "/ajax-api/2.0/mlflow/metrics/get-history-bulk"
_POINTS, _RUNS = 25_000, 25

Curve = list[tuple[int, float]]


def metric_histories(store: TrackingStore, runs: Sequence[str], name: str) -> dict[str, Curve]:
    """Run → points (step, value) of one metric, in their order; runs without it are left out."""
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
