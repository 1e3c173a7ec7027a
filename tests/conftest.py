"""What every test folder shares."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from runs import ENVIRONMENT
from warm_start import warm_python

# Waiting threads sleep: spinning ones starve each other when several tests or jobs share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run ``python -m pipeline.run …`` as a user would, in a folder of its own."""

    def run(*arguments: str, module: str = "pipeline.run", cwd: Path | None = None, timeout: float = 240, **env: str):
        return warm_python().run(module, arguments, cwd or tmp_path, ENVIRONMENT | env, timeout)

    return run
