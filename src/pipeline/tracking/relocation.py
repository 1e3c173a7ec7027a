"""A store that was moved or copied: MLflow writes absolute places of artifacts into its database."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import closing
from pathlib import Path
from urllib.parse import unquote, urlsplit

ARTIFACTS = "artifacts"
# Everything else that may name a file below the artifacts' folder.
_ALSO = (("logged_models", "artifact_location"), ("model_versions", "storage_location"), ("model_versions", "source"))


def connect(database: Path) -> sqlite3.Connection:
    """Open a database for reading, whatever its folder is called; a file of the file system and nothing else."""
    return sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=30)


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
    return not there.is_dir() or (there.parent / "mlflow.db").is_file() or any((here / run).is_dir() for run in runs)


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
