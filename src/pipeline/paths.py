"""Where things are: the configuration folder, the shared data folder, the database of a local store."""

from __future__ import annotations

import os
import re
import sqlite3
from contextlib import suppress
from pathlib import Path
from urllib.parse import quote

import platformdirs

from pipeline.errors import UserError

DATABASE = "mlflow.db"  # of a local tracking store, in its folder
_PACKAGE = Path(__file__).resolve().parent


def conf_dir() -> Path:
    """Folder of the configuration groups: the checkout's ``conf/`` if there is one, else the copy in the wheel."""
    checkout = _PACKAGE.parent.parent / "conf"
    return checkout if (checkout / "config.yaml").is_file() else _PACKAGE / "conf"


def default_data_dir() -> Path:
    """Folder that keeps downloaded data for all checkouts of a user; ``ADVSVM_DATA`` moves it."""
    return Path(os.environ.get("ADVSVM_DATA") or Path(platformdirs.user_cache_dir("advsvm")) / "data")


def at_home(path: str) -> Path:
    """The path with ``~`` written out; that of somebody who has no home here stays as it is, as in a shell."""
    return Path(os.path.expanduser(path))


def check_writable(setting: str, folder: str | Path, make: bool = True) -> Path:
    """Make sure that a folder can be written; raises a UserError that names the setting.

    Without ``make`` it need not be there, and nothing is left behind: what is refused later on leaves no trace.
    """
    path = at_home(str(folder)).absolute()
    try:
        if make:
            path.mkdir(parents=True, exist_ok=True)
        probe = _nearest(path) / f".write-test-{os.getpid()}"
        probe.touch()
        probe.unlink()
    except (OSError, ValueError) as error:
        raise UserError(f"{setting}: cannot write to {path} ({getattr(error, 'strerror', error)})") from error
    return path


def _nearest(path: Path) -> Path:
    """The folder itself, or the one that it would be made in."""
    while True:
        try:
            path.stat()
            return path
        except FileNotFoundError:
            path = path.parent


def write_whole(path: Path, text: str) -> None:
    """Write a file that is there whole or not at all, whoever looks or dies meanwhile."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    finally:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)


def sqlite_address(database: Path) -> str:
    """The address under which SQLAlchemy, MLflow's way to the database, opens exactly this file."""
    plain = f"sqlite:///{database}"
    if not re.search(r"[%?]", str(database)):
        return plain
    from sqlalchemy.engine import make_url

    # Whether the path of an address is unquoted depends on SQLAlchemy's version.
    for address in (f"sqlite+pysqlite:///{quote(str(database))}", plain):  # MLflow makes folders for sqlite:///
        if make_url(address).database == str(database):
            return address
    raise UserError(f"tracking.folder: {database.parent} has a % or ? in its name: choose another one")


def connect(database: Path) -> sqlite3.Connection:
    """Open a database for reading, whatever its folder is called; a file of the file system and nothing else."""
    return sqlite3.connect(f"{database.absolute().as_uri()}?mode=ro", uri=True, timeout=30)
