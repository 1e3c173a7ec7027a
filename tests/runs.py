"""Look at a run store while others write to it, and wait for what happens there."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

# MLflow without a store's name makes one, mlflow.db, in the folder that the tests run in; a kind that it does not know
# is refused instead, and the test that forgot to name its store fails.
NO_STORE = "no-store-was-named://"
os.environ["MLFLOW_TRACKING_URI"] = NO_STORE
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("HYDRA", "ADVSVM_SWEEP", "ADVSVM_FULL"))}


def start(
    *arguments: str, cwd: Path, module: str = "pipeline.run", on: tuple[str, ...] = (), **env: str
) -> subprocess.Popen[str]:
    """Start the command line in a session of its own, so that a test may kill it and all its children."""
    return subprocess.Popen(
        [*on, sys.executable, "-m", module, *arguments],
        cwd=cwd,
        env=ENVIRONMENT | env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
        # Tests that were started in the background or with nohup ignore signals, and their children would inherit that.
        preexec_fn=lambda: [signal.signal(s, signal.SIG_DFL) for s in (signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)],
    )


def tracked(folder: Path, **tags: str) -> list[dict[str, Any]]:
    """Runs of the SQLite store in ``folder/mlruns`` as plain dictionaries, read without MLflow's slow start."""
    database = folder / "mlruns" / "mlflow.db"
    if not database.exists():
        return []
    try:
        with sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=10) as connection:
            rows = connection.execute("select run_uuid, status, name from runs").fetchall()
            known = {row[0]: {"id": row[0], "status": row[1], "name": row[2], "tags": {}} for row in rows}
            for run, key, value in connection.execute("select run_uuid, key, value from tags"):
                if run in known:
                    known[run]["tags"][key] = value
    except sqlite3.OperationalError:  # its tables are being made
        return []
    return [run for run in known.values() if all(run["tags"].get(k) == v for k, v in tags.items())]


def experiments(folder: Path, **tags: str) -> list[dict[str, Any]]:
    """The runs that are experiments, not summaries."""
    return tracked(folder, role="experiment", **tags)


def wait_until(condition: Callable[[], Any], seconds: float = 60, what: str = "the condition") -> Any:
    """Poll until ``condition`` gives something true, and return it."""
    limit = time.monotonic() + seconds
    while time.monotonic() < limit:
        found = condition()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"{what} did not happen within {seconds} s")


def table(output: str) -> list[str]:
    """The lines of the result tables that a sweep printed."""
    return [line for line in output.splitlines() if line.startswith(("│", "┃"))]
