"""PostgreSQL and an MLflow server on loopback, as in docs/cluster.md, in a folder of the test's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlflow_server import Server, free_port

SCRIPT = Path(__file__).parents[2] / "scripts" / "postgres-up.sh"


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Address of an empty PostgreSQL database."""
    pytest.importorskip("psycopg", reason="needs the extra: pip install 'advsvm[server]'")
    folder = Path("/var/tmp") / f"advsvm-postgres-{os.getpid()}"
    port = free_port()
    up = subprocess.run([str(SCRIPT), str(folder), str(port)], capture_output=True, text=True, timeout=400)
    if up.returncode == 3:
        pytest.skip(up.stderr.strip())
    assert up.returncode == 0, up.stderr
    yield up.stdout.strip()
    subprocess.run([str(SCRIPT), "--stop", str(folder)], check=True, capture_output=True, timeout=60)
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def server(postgres: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(postgres, tmp_path_factory.mktemp("server") / "artifacts", free_port())
    server.start()
    yield server
    server.kill()


@pytest.fixture
def running(server: Server) -> Server:
    """The server, started again if a test killed it."""
    if server.process is None:
        server.start()
    return server
