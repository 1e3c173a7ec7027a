"""An MLflow server as a process that tests may kill."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@dataclass
class Server:
    """An MLflow server that can be killed and started again on the same store."""

    backend: str
    artifacts: Path
    port: int
    process: subprocess.Popen | None = None
    host: str = "127.0.0.1"
    on: tuple[str, ...] = ()
    """The command in front of its own that puts it on another host."""

    @property
    def uri(self) -> str:
        return f"http://{self.host}:{self.port}"

    def start(self) -> None:
        log = self.artifacts.parent / "server.log"
        self.process = subprocess.Popen(
            [
                *self.on, sys.executable, "-m", "mlflow", "server", "--host", self.host, "--port", str(self.port),
                "--artifacts-destination", str(self.artifacts), "--workers", "2",
            ],
            # In the environment: a command line, and the password in it, can be read by everybody on the machine.
            env=os.environ | {"MLFLOW_BACKEND_STORE_URI": self.backend, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log.open("a"), stderr=subprocess.STDOUT, start_new_session=True, cwd=self.artifacts.parent,
        )  # fmt: skip
        limit = time.monotonic() + 180
        while time.monotonic() < limit:
            if self._answers():
                return
            if self.process.poll() is not None:
                break
            time.sleep(0.2)
        raise AssertionError(f"the server did not start:\n{log.read_text()[-2000:]}")

    def _answers(self) -> bool:
        address = f"{self.uri}/ajax-api/2.0/mlflow/experiments/search?max_results=1"
        if self.on:
            asked = f"import urllib.request; urllib.request.urlopen({address!r}, timeout=8)"
            return subprocess.run([*self.on, sys.executable, "-c", asked], capture_output=True).returncode == 0
        try:
            urllib.request.urlopen(address, timeout=8)
        except OSError:
            return False
        return True

    def kill(self) -> None:
        """As a machine that goes down: at once, with all its workers."""
        if self.process is not None:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None
