"""Open the tracking store safely, however many jobs start at once, and wherever it was moved to."""

from __future__ import annotations

import atexit
import logging
import os
import re
import shutil
import sqlite3
import tempfile
import uuid
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import platformdirs
from filelock import FileLock

from pipeline.errors import UserError
from pipeline.paths import DATABASE, at_home, check_writable, connect, sqlite_address
from pipeline.tracking.credentials import PASSWORD, USERNAME, masked, take_credentials

if TYPE_CHECKING:
    from mlflow import MlflowClient

log = logging.getLogger(__name__)

ARTIFACTS = "artifacts"
# Everything else that may name a file below it.
_ALSO = (("logged_models", "artifact_location"), ("model_versions", "storage_location"), ("model_versions", "source"))
_PROBE_SECONDS, _PROBE_LIMIT = (4.0, 8.5), 9.0  # connect and read; all of it


@dataclass(frozen=True)
class TrackingStore:
    """An opened store: its address and the experiment that takes our runs."""

    uri: str
    experiment: str
    experiment_id: str
    folder: Path
    read_only: bool = False

    @cached_property
    def client(self) -> MlflowClient:
        """A client bound to this store."""
        from mlflow import MlflowClient

        return MlflowClient(self.uri, registry_uri=self.uri)  # models are registered where their runs are

    def trusted(self, run: Any) -> Any:
        """A run as the store described it, or :class:`UserError`: a server decides over no path of this machine."""
        number, place = str(run.info.run_id), str(run.info.artifact_uri or "")
        if not re.fullmatch(r"[\w-]{1,64}", number):
            raise UserError(
                f"tracking.uri: {masked(self.uri)} names a run {number[:80]!r}: that is not the id of a run"
            )
        if self.is_server and place and not re.match(r"(?!file:)[a-z][a-z0-9+.-]+:", place):
            raise UserError(
                f"tracking.uri: {masked(self.uri)} wants artifacts in {place[:200]!r}, a folder of this machine: "
                "start the server with --serve-artifacts"
            )
        return run

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
    check_writable("tracking.folder", folder)
    _quiet()
    with FileLock(folder / ".store.lock"):
        if not tracking.uri and not (folder / DATABASE).exists():
            _create_database(folder / DATABASE)
        elif not tracking.uri and rebase(folder / DATABASE, folder):
            log.info("%s was moved or copied here: its runs now name their files here", folder)
        experiment_id = _experiment(uri, tracking.experiment, None if tracking.uri else folder / ARTIFACTS)
    return TrackingStore(uri, str(tracking.experiment), experiment_id, folder)


def open_to_read(tracking: Any) -> TrackingStore:
    """Open a store for a look; one that may only be read is looked at in a copy of its database."""
    folder = at_home(tracking.folder).absolute()
    if tracking.uri or _is_writable(folder):
        return open_store(tracking)
    _refuse_damaged(folder / DATABASE)
    _quiet()
    copy = Path(tempfile.mkdtemp(prefix="advsvm-store-")) / DATABASE
    atexit.register(shutil.rmtree, copy.parent, ignore_errors=True)
    shutil.copyfile(folder / DATABASE, copy)
    rebase(copy, folder)
    uri, name = sqlite_address(copy), str(tracking.experiment)
    return TrackingStore(uri, name, _experiment(uri, name, folder / ARTIFACTS), folder, read_only=True)


def _is_writable(folder: Path) -> bool:
    try:
        check_writable("tracking.folder", folder)
        with (folder / DATABASE).open("ab"):
            return True
    except (UserError, OSError):
        return False


def prepare(tracking: Any) -> tuple[Path, str]:
    """Make sure, in seconds and before any computing, that the store can be used; returns its folder and address.

    It writes nothing: what is wrong with the data or the model is found after this, and leaves no store behind.
    """
    folder = check_writable("tracking.folder", tracking.folder, make=False)
    if tracking.uri:
        _quicken_failures()
        uri = take_credentials(tracking.uri)
        probe(uri)
        return folder, uri
    database = folder / DATABASE
    _refuse_damaged(database)
    return folder, sqlite_address(database)


def probe(uri: str) -> None:
    """Raise within seconds when the server does not answer; MLflow itself would retry for minutes."""
    import requests

    if not re.match(r"https?://", uri):
        raise UserError(f"tracking.uri must start with http:// or https://; got {masked(uri)}")

    def ask() -> int:
        login = (os.environ.get(USERNAME, ""), os.environ.get(PASSWORD, "")) if USERNAME in os.environ else None
        address = f"{uri.rstrip('/')}/api/2.0/mlflow/experiments/search"
        return requests.post(address, json={"max_results": 1}, auth=login, timeout=_PROBE_SECONDS).status_code

    # In a thread, because looking up a name knows no time limit.
    pool = ThreadPoolExecutor(1)
    try:
        code = pool.submit(ask).result(_PROBE_LIMIT)
    except (requests.RequestException, TimeoutError) as error:
        late = isinstance(error, (requests.Timeout, TimeoutError))
        reason = (
            "it took too long" if late else "no connection" if isinstance(error, requests.ConnectionError) else error
        )
        raise UserError(f"tracking.uri: no MLflow server answers at {masked(uri)} ({reason})") from None
    finally:
        pool.shutdown(wait=False)
    if code in (401, 403):
        raise UserError(f"tracking.uri: {masked(uri)} asks for a login: set {USERNAME} and {PASSWORD}")
    if code >= 500:
        raise UserError(f"tracking.uri: the server at {masked(uri)} is in trouble (HTTP {code}); see its log")
    if code >= 400:
        raise UserError(f"tracking.uri: {masked(uri)} answers {code}; is it an MLflow server?")


def _create_database(database: Path) -> None:
    """Make the tables under another name first: a process that dies, or a disk that fills up, half-way through would
    leave a database that MLflow refuses for good.
    """
    for leftover in database.parent.glob(f".{database.name}.new-*"):
        leftover.unlink()
    # MLflow keeps connections by address: a second attempt of this process needs a name of its own.
    unfinished = database.with_name(f".{database.name}.new-{uuid.uuid4().hex[:8]}")
    try:
        tables: Path | None = empty_database()
    except Exception:  # whatever keeps the cache folder from holding one, the store may have room
        tables = None
    if tables is None:
        _migrate(unfinished)
    else:
        shutil.copyfile(tables, unfinished)
    unfinished.rename(database)


def empty_database() -> Path:
    """A database with MLflow's tables and nothing in them, in the user's cache folder: its migrations take seconds.

    Raises where there can be none: the folder is full, or may not be written.
    """
    kept = Path(platformdirs.user_cache_dir("advsvm")) / f"mlflow-{version('mlflow')}.db"
    if kept.is_file() and _is_sound(kept):
        return kept
    kept.parent.mkdir(parents=True, exist_ok=True)
    made = kept.with_name(f".{kept.name}.new-{uuid.uuid4().hex[:8]}")
    try:
        _migrate(made)
        with closing(sqlite3.connect(made)) as connection, connection:
            # MLflow has made an experiment, whose files would lie where this process happens to run.
            connection.execute("delete from experiment_tags")
            connection.execute("delete from experiments")
        made.replace(kept)
    finally:
        made.unlink(missing_ok=True)
    return kept


def _migrate(database: Path) -> None:
    from mlflow import MlflowClient

    _quiet()
    MlflowClient(sqlite_address(database)).search_experiments(max_results=1)


def _is_sound(database: Path) -> bool:
    try:
        with closing(connect(database)) as connection:
            return connection.execute("pragma quick_check").fetchone() == ("ok",)
    except (sqlite3.DatabaseError, UnicodeDecodeError):
        return False


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
        try:
            _look_into(connect(database))
        except sqlite3.OperationalError as error:
            if "readonly" not in str(error):
                raise
            # A process was killed while it wrote: what it left half-written is taken back by the next one that may.
            _look_into(sqlite3.connect(database, timeout=30))
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:  # the latter: what SQLite quotes of a table is no text
        raise UserError(f"tracking.folder: {database} is not a readable database ({error}); move it away") from error


def _look_into(connection: sqlite3.Connection) -> None:
    with closing(connection):
        connection.execute("select count(*) from sqlite_master").fetchone()


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


# -- a store that was moved or copied: MLflow writes absolute places of artifacts into its database --------------------
def rebase(database: Path, folder: Path) -> int:
    """Let ``database`` find the artifacts that lie in ``folder/artifacts``; returns how many experiments were moved.

    An experiment whose artifacts are kept anywhere else on purpose is left alone, and so are runs whose files stayed
    behind.
    """
    here = folder.absolute() / ARTIFACTS
    with closing(connect(database)) as connection:
        if not connection.execute("select 1 from sqlite_master where name = 'experiments'").fetchone():
            return 0  # MLflow has not made its tables yet
        experiments = connection.execute("select experiment_id, artifact_location from experiments").fetchall()
        moved = [
            (number, location)
            for number, location in experiments
            if _elsewhere(location, here) and _belongs_here(location, here, _runs_of(connection, number))
        ]
    if not moved:
        return 0
    with closing(sqlite3.connect(database.absolute(), timeout=30)) as connection, connection:
        tables = {name for (name,) in connection.execute("select name from sqlite_master where type = 'table'")}
        for number, location in moved:
            for run in _runs_of(connection, number):
                if (here / run).is_dir() or not (path_of(location) / run).is_dir():
                    _replace(connection, "runs", "artifact_uri", location, here, "run_uuid", run)
            for table, column in _ALSO:
                if table in tables:
                    _replace(connection, table, column, location, here)
            connection.execute(
                "update experiments set artifact_location = ? where experiment_id = ?", (here.as_uri(), number)
            )
    return len(moved)


def _elsewhere(location: str | None, here: Path) -> bool:
    """Whether it is an artifacts' folder as we make them, but not this one (by another name, perhaps)."""
    if not location or urlsplit(location).scheme != "file" or path_of(location).name != ARTIFACTS:
        return False
    there = path_of(location)
    return there != here and not (there.exists() and here.exists() and there.samefile(here))


def _belongs_here(location: str, here: Path, runs: Iterable[str]) -> bool:
    there = path_of(location)
    # Gone: moved. With a database beside it: the original of a copy. Some of the files are here: both, one day.
    return not there.is_dir() or (there.parent / DATABASE).is_file() or any((here / run).is_dir() for run in runs)


def _runs_of(connection: sqlite3.Connection, experiment: int) -> list[str]:
    found = connection.execute("select run_uuid from runs where experiment_id = ?", (experiment,)).fetchall()
    return [run for (run,) in found]


def _replace(
    connection: sqlite3.Connection, table: str, column: str, old: str, here: Path, key: str = "", value: str = ""
) -> None:
    connection.execute(
        f"update {table} set {column} = ? || substr({column}, ?) where substr({column}, 1, ?) = ?"
        + (f" and {key} = ?" if key else ""),
        (here.as_uri(), len(old) + 1, len(old) + 1, f"{old}/", *([value] if key else [])),
    )


def path_of(location: str) -> Path:
    """The folder that a file: address names."""
    return Path(unquote(urlsplit(location).path))
