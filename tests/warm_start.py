"""Run command lines in forks of a process that has imported the large libraries: seconds saved in every test.

Nothing of this project is imported beforehand, so a fork does what ``python -m`` does from there on. Tests that are
about imports, signals or kills start a real process (:func:`runs.start`).
"""

from __future__ import annotations

import atexit
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
from functools import lru_cache
from pathlib import Path

_LIBRARIES = (
    "torch", "sklearn.svm", "scipy.stats", "pandas", "matplotlib.figure", "mlflow.sklearn",
    "mlflow.store.tracking.sqlalchemy_store", "alembic.command", "hydra.main",
)  # fmt: skip


class WarmPython:
    """One waiting process that forks for every command."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        atexit.register(self._process.kill)

    def run(
        self, module: str, arguments: tuple[str, ...], cwd: Path, env: dict[str, str], timeout: float
    ) -> subprocess.CompletedProcess[str]:
        """As ``subprocess.run([python, "-m", module, *arguments], …)``."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with tempfile.TemporaryDirectory() as folder:
            outputs = [f"{folder}/out", f"{folder}/err"]
            command = {"module": module, "arguments": arguments, "cwd": str(cwd), "env": env, "outputs": outputs}
            self._process.stdin.write(json.dumps(command) + "\n")
            self._process.stdin.flush()
            pid = int(self._process.stdout.readline())
            if not select.select([self._process.stdout], [], [], timeout)[0]:
                os.kill(pid, signal.SIGKILL)
                self._process.stdout.readline()
                raise subprocess.TimeoutExpired([module, *arguments], timeout)
            code = int(self._process.stdout.readline())
            out, err = (Path(file).read_text() for file in outputs)
        return subprocess.CompletedProcess([sys.executable, "-m", module, *arguments], code, out, err)


@lru_cache
def warm_python() -> WarmPython:
    """The one of this test process."""
    return WarmPython()


def _serve() -> dict | None:
    """Fork for every command that comes in; returns the command in the fork, None at the end."""
    for name in _LIBRARIES:
        __import__(name)
    for line in iter(sys.stdin.readline, ""):
        pid = os.fork()
        if pid == 0:
            return json.loads(line)
        print(pid, flush=True)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
    return None


def _become(command: dict) -> None:
    os.chdir(command["cwd"])
    os.environ.clear()
    os.environ.update(command["env"])
    sys.path[:1] = [os.getcwd(), *filter(None, command["env"].get("PYTHONPATH", "").split(os.pathsep))]
    for number, file in enumerate(command["outputs"], start=1):
        os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    sys.argv = [command["module"], *command["arguments"]]
    runpy.run_module(command["module"], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    todo = _serve()
    if todo is not None:
        _become(todo)
