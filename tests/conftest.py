"""What every test folder shares."""

from __future__ import annotations

import io
import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from unittest import mock

import pytest

from pipeline.tracking import store
from pipeline.tracking.store import empty_database as _empty_database
from runs import ENVIRONMENT
from warm_start import warm_python

# Waiting threads sleep: spinning ones starve each other when several tests or jobs share the cores.
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("MPLBACKEND", "Agg")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what runs whole commands; begin with the longest files, so that no process is left alone with one."""
    for item in items:
        if {"run_cli", "swept"}.intersection(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.commands)
    items.sort(key=lambda item: item.path.parent.name not in ("pipeline", "report"))


@lru_cache
def empty_database() -> Path:
    """The pipeline's own database of empty tables, made or found once for all tests of a process."""
    with _own_logging():
        return _empty_database()


@pytest.fixture(scope="session", autouse=True)
def _tables_are_made_quietly() -> Iterator[None]:
    """MLflow's migrations configure the logging of the process that first asks for them: not that of a test."""
    with mock.patch.object(store, "empty_database", empty_database):
        yield


@pytest.fixture
def run_cli(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess]:
    """Run ``python -m pipeline.run …`` as a user would, in a folder of its own with an empty store."""

    def run(*arguments: str, module: str = "pipeline.run", cwd: Path | None = None, timeout: float = 240, **env: str):
        folder = cwd or tmp_path
        if not (folder / "mlruns").exists():
            (folder / "mlruns").mkdir()
            shutil.copyfile(empty_database(), folder / "mlruns" / "mlflow.db")
        return warm_python().run(module, arguments, folder, ENVIRONMENT | env, timeout)

    return run


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., subprocess.CompletedProcess]:
    """As ``run_cli``, in this very process: for commands that are refused before they compute anything."""

    def run(*arguments: str, **env: str) -> subprocess.CompletedProcess:
        from hydra.core.global_hydra import GlobalHydra

        from pipeline import progress, sweep
        from pipeline.run import main

        out, err = io.StringIO(), io.StringIO()
        GlobalHydra.instance().clear()
        with monkeypatch.context() as patch, mock.patch.dict(os.environ, ENVIRONMENT | env, clear=True), _own_logging():
            patch.chdir(tmp_path)
            patch.setattr(sys, "argv", ["pipeline.run", *arguments])
            patch.setattr(sys, "stdout", out)
            patch.setattr(sys, "stderr", err)
            # What a process has once: it must not be the one of the test before.
            patch.setattr(sweep, "SESSION", sweep.Session())
            patch.setattr(progress, "_console", None)
            patch.setattr(progress, "_job", "")
            try:
                main()
                code = 0
            except SystemExit as end:
                code = 1 if isinstance(end.code, str) else int(end.code or 0)
                err.write(f"{end.code}\n" if isinstance(end.code, str) else "")
        return subprocess.CompletedProcess([*arguments], code, out.getvalue(), err.getvalue())

    return run


@contextmanager
def _own_logging() -> Iterator[None]:
    """Hydra configures the logging of its process; afterwards it is as before."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    try:
        yield
    finally:
        for handler in set(root.handlers) - set(before[0]):
            handler.close()
        root.handlers[:], root.level = before
