"""Open the tracking store safely, however many jobs start at once."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit, urlunsplit

from filelock import FileLock

from pipeline.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

_PROBE_SECONDS = 5.0


@dataclass(frozen=True)
class TrackingStore:
    """An opened store: its address and the experiment that takes our runs."""

    uri: str
    experiment_id: str
    folder: Path

    @cached_property
    def client(self) -> MlflowClient:
        """A client bound to this store."""
        from mlflow import MlflowClient

        return MlflowClient(self.uri)

    @property
    def is_server(self) -> bool:
        """Whether runs go over the network."""
        return self.uri.startswith("http")


def open_store(tracking: Any) -> TrackingStore:
    """Open (and on the first time create) the store of a resolved ``tracking`` configuration.

    Processes that open an empty database at once would all run its migrations and break it, and losers of the race
    to create an experiment would log into "Default": both happen under one file lock here, and every run is started
    with an explicit experiment id.
    """
    folder = prepare_folder(tracking.folder)
    if tracking.uri:
        _quicken_failures()
        probe(tracking.uri)
        uri = tracking.uri
    else:
        uri = f"sqlite:///{folder / 'mlflow.db'}"
        _refuse_damaged(folder / "mlflow.db")
    _quiet()
    with FileLock(folder / ".store.lock"):
        experiment_id = _experiment(uri, tracking.experiment, None if tracking.uri else folder / "artifacts")
    return TrackingStore(uri, experiment_id, folder)


def prepare_folder(folder: str | Path) -> Path:
    """Make sure that the tracking folder exists and can be written."""
    path = Path(folder).absolute()
    try:
        path.mkdir(parents=True, exist_ok=True)
        probe_file = path / f".write-test-{os.getpid()}"
        probe_file.touch()
        probe_file.unlink()
    except OSError as error:
        raise UserError(f"tracking.folder: cannot write to {path} ({error.strerror})") from error
    return path


def masked(uri: str) -> str:
    """The address without its password, for logs and tags."""
    parts = urlsplit(uri)
    if parts.password is None:
        return uri
    host = parts.netloc.rsplit("@", 1)[1]
    return urlunsplit(parts._replace(netloc=f"{parts.username or ''}:***@{host}"))


def probe(uri: str) -> None:
    """Raise within seconds when the server does not answer; MLflow itself would retry for minutes."""
    import requests

    if not re.match(r"https?://", uri):
        raise UserError(f"tracking.uri must start with http:// or https://; got {masked(uri)}")
    try:
        answer = requests.get(f"{uri.rstrip('/')}/health", timeout=_PROBE_SECONDS)
    except requests.RequestException as error:
        reason = type(error).__name__
        raise UserError(f"tracking.uri: no MLflow server answers at {masked(uri)} ({reason})") from None
    if not answer.ok:
        raise UserError(f"tracking.uri: {masked(uri)} answers {answer.status_code}; is it an MLflow server?")


def _experiment(uri: str, name: str, artifacts: Path | None) -> str:
    from mlflow import MlflowClient

    from pipeline.tracking.view import arrange

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(name)
    if found is None:
        experiment_id = client.create_experiment(name, artifact_location=artifacts.as_uri() if artifacts else None)
    elif found.lifecycle_stage == "deleted":
        raise UserError(f"tracking.experiment: '{name}' was deleted in the store; restore it or choose another name")
    else:
        experiment_id = found.experiment_id
    arrange(client, experiment_id)
    return experiment_id


def _refuse_damaged(database: Path) -> None:
    if not database.exists() or database.stat().st_size == 0:
        return
    try:
        connection = sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=30)
        try:
            connection.execute("select count(*) from sqlite_master").fetchone()
        finally:
            connection.close()
    except sqlite3.DatabaseError as error:
        raise UserError(f"tracking.folder: {database} is not a readable database ({error}); move it away") from error


def _quicken_failures() -> None:
    """A server that dies is noticed in seconds; the results are kept locally then."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")


def _quiet() -> None:
    """Keep database migrations and usage hints off the user's terminal."""
    import mlflow  # noqa: F401  (importing it sets its loggers up; quieten them afterwards)

    for name in ("mlflow", "alembic"):
        logging.getLogger(name).setLevel(logging.ERROR)
