"""The same report from runs on an MLflow server, whose files must be downloaded."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from tracked_store import add_run

from pipeline.report.__main__ import main
from pipeline.tracking.store import open_store


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    store = [
        "--backend-store-uri",
        f"sqlite:///{tmp_path}/server.db",
        "--artifacts-destination",
        str(tmp_path / "files"),
    ]
    command = [sys.executable, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    process = subprocess.Popen(
        command + store, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(180):
            try:
                urllib.request.urlopen(f"{address}/health", timeout=5)
                break
            except OSError:
                time.sleep(1)
        yield address
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_report_from_a_server_has_figures_of_downloaded_files(server: str, tmp_path: Path) -> None:
    tracking = {"uri": server, "folder": str(tmp_path / "local"), "experiment": "advsvm"}
    store = open_store(OmegaConf.create(tracking))
    for attack in ("none", "cw"):
        add_run(store, "dataset=mnist_1v7", "model=adv_svm_c", f"attack={attack}")
    main(["--tracking-uri", server, "--folder", str(tmp_path / "local"), "--output", str(tmp_path / "reports")])
    names = [path.name for path in (tmp_path / "reports" / "all" / "figures").iterdir()]
    assert any(name.endswith("gallery.png") for name in names)
    assert any(name.endswith("brackets.png") for name in names)
    assert any(name.endswith("grid.png") for name in names)
    assert store.client.search_runs([store.experiment_id], "tags.role = 'report'")


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{free.getsockname()[1]}"
    with pytest.raises(SystemExit) as stop:
        main(["--tracking-uri", address, "--output", str(tmp_path)])
    assert stop.value.code == 1
    assert address in capsys.readouterr().err
