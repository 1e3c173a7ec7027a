"""Open the tracking store safely, however many jobs start at once."""

from __future__ import annotations

import logging
import os
import re
import sqlite3
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit, urlunsplit

from filelock import FileLock

from pipeline.errors import UserError

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

_PROBE_SECONDS, _PROBE_LIMIT = (4.0, 8.5), 9.0  # connect and read; all of it
_USERNAME, _PASSWORD = "MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_PASSWORD"


@dataclass(frozen=True)
class TrackingStore:
    """An opened store: its address and the experiment that takes our runs."""

    uri: str
    experiment: str
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
    folder, uri = prepare(tracking)
    _quiet()
    with FileLock(folder / ".store.lock"):
        if not tracking.uri and not (folder / "mlflow.db").exists():
            _create_database(folder / "mlflow.db")
        experiment_id = _experiment(uri, tracking.experiment, None if tracking.uri else folder / "artifacts")
    return TrackingStore(uri, str(tracking.experiment), experiment_id, folder)


def prepare(tracking: Any) -> tuple[Path, str]:
    """Make sure, in seconds and before any computing, that the store can be used; returns its folder and address."""
    folder = prepare_folder(tracking.folder)
    if tracking.uri:
        _quicken_failures()
        uri = take_credentials(tracking.uri)
        probe(uri)
        return folder, uri
    database = folder / "mlflow.db"
    _refuse_damaged(database)
    return folder, f"sqlite:///{database}"


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


def take_credentials(uri: str) -> str:
    """The address without user and password, which move to MLflow's own variables in the environment.

    MLflow quotes the address in its error messages; there it must not hold a secret.
    """
    parts = urlsplit(uri)
    if parts.username is None and parts.password is None:
        return uri
    for variable, value in ((_USERNAME, parts.username), (_PASSWORD, parts.password)):
        if value is not None:
            os.environ[variable] = unquote(value)
    return urlunsplit(parts._replace(netloc=parts.netloc.rsplit("@", 1)[1]))


def without_credentials(argument: str) -> str:
    """A command line argument as it may be shown and stored: ``tracking.uri=http://user:secret@host`` loses the secret.

    User and password move to the environment, where jobs of every launcher find them.
    """
    match = re.fullmatch(r"(\+*tracking\.uri=)(['\"]?)(https?://[^'\"]+@[^'\"]*)(['\"]?)", argument)
    return f"{match[1]}{match[2]}{take_credentials(match[3])}{match[4]}" if match else argument


def probe(uri: str) -> None:
    """Raise within seconds when the server does not answer; MLflow itself would retry for minutes."""
    import requests

    if not re.match(r"https?://", uri):
        raise UserError(f"tracking.uri must start with http:// or https://; got {masked(uri)}")

    def ask() -> int:
        login = (os.environ.get(_USERNAME, ""), os.environ.get(_PASSWORD, "")) if _USERNAME in os.environ else None
        address = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search"
        return requests.post(address, json={"max_results": 1}, auth=login, timeout=_PROBE_SECONDS).status_code

    # In a thread, because looking up a name knows no time limit.
    pool = ThreadPoolExecutor(1)
    try:
        code = pool.submit(ask).result(_PROBE_LIMIT)
    except (requests.RequestException, TimeoutError) as error:
        reason = type(error).__name__
        raise UserError(f"tracking.uri: no MLflow server answers at {masked(uri)} ({reason})") from None
    finally:
        pool.shutdown(wait=False)
    if code in (401, 403):
        raise UserError(f"tracking.uri: {masked(uri)} asks for a login: set {_USERNAME} and {_PASSWORD}")
    if code >= 500:
        raise UserError(f"tracking.uri: the server at {masked(uri)} is in trouble (HTTP {code}); see its log")
    if code >= 400:
        raise UserError(f"tracking.uri: {masked(uri)} answers {code}; is it an MLflow server?")


def _create_database(database: Path) -> None:
    """Make the tables under another name first: a process that dies, or a disk that fills up, half-way through the
    migrations would leave a database that MLflow refuses for good.
    """
    from mlflow import MlflowClient

    for leftover in database.parent.glob(f".{database.name}.new-*"):
        leftover.unlink()
    # MLflow keeps connections by address: a second attempt of this process needs a name of its own.
    unfinished = database.with_name(f".{database.name}.new-{uuid.uuid4().hex[:8]}")
    MlflowClient(f"sqlite:///{unfinished}").search_experiments(max_results=1)
    unfinished.rename(database)


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
    # It logs every database error with a traceback and raises it too; we report it once.
    logging.getLogger("mlflow.store.db.utils").setLevel(logging.CRITICAL)
