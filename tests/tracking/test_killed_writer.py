"""A store whose last writer was killed half-way through a transaction."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline.errors import UserError
from pipeline.tracking.store import prepare

# More pages than the cache holds: what is not committed reaches the file, and only the journal knows what was there.
KILLED = """
import os, signal, sqlite3, sys
database = sqlite3.connect(sys.argv[1])
database.execute("pragma cache_size = 5")
database.execute("update numbers set x = x + 1")
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_what_a_killed_process_left_half_written_is_taken_back(tmp_path: Path) -> None:
    file = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("create table numbers (x)")
        database.executemany("insert into numbers values (?)", [(0,)] * 20_000)
    subprocess.run([sys.executable, "-c", KILLED, str(file)], check=False)
    assert file.with_name("mlflow.db-journal").exists()
    prepare(SimpleNamespace(folder=tmp_path, uri=None))
    with closing(sqlite3.connect(file)) as database:
        assert database.execute("select max(x) from numbers").fetchone() == (0,)


def test_what_is_no_database_is_still_refused(tmp_path: Path) -> None:
    (tmp_path / "mlflow.db").write_bytes(b"not a database" * 100)
    with pytest.raises(UserError, match="is not a readable database"):
        prepare(SimpleNamespace(folder=tmp_path, uri=None))
