"""The same report from runs on an MLflow server, whose files must be downloaded."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from tracked_store import add_run

from mlflow_server import Server, free_port
from pipeline.report.__main__ import main
from pipeline.report.tracked import Reader
from pipeline.tracking.runs import metric_histories
from pipeline.tracking.store import open_store


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    process = Server(f"sqlite:///{tmp_path}/server.db", tmp_path / "files", free_port())
    try:
        process.start()
        yield process.uri
    finally:
        process.kill()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_report_from_a_server_has_figures_of_downloaded_files(server: str, tmp_path: Path, monkeypatch) -> None:
    tracking = {"uri": server, "folder": str(tmp_path / "local"), "experiment": "advsvm"}
    store = open_store(OmegaConf.create(tracking))
    for attack in ("none", "cw"):
        add_run(store, "dataset=mnist_1v7", "model=adv_svm_c", f"attack={attack}")
    main([f"tracking.uri={server}", f"tracking.folder={tmp_path / 'local'}", f"output={tmp_path / 'reports'}"])
    names = [path.name for path in (tmp_path / "reports" / "all" / "figures").iterdir()]
    assert any(name.endswith("gallery.png") for name in names)
    assert any(name.endswith("brackets.png") for name in names)
    assert any(name.endswith("grid.png") for name in names)
    assert store.client.search_runs([store.experiment_id], "tags.role = 'report'")
    # Curves of all runs in one request, the same as asked for one by one.
    runs = [run.id for run in Reader(store).runs()]
    monkeypatch.setattr(store.client, "get_metric_history", None)
    found = metric_histories(store, runs, "test_error")
    monkeypatch.undo()
    alone = {run: store.client.get_metric_history(run, "test_error") for run in runs}
    assert found == {run: sorted((p.step, p.value) for p in points) for run, points in alone.items() if points}


def test_a_server_that_does_not_answer_is_named(tmp_path: Path, capsys: pytest.CaptureFixture) -> None:
    address = f"http://127.0.0.1:{free_port()}"
    assert main([f"tracking.uri={address}", f"output={tmp_path}"]) == 1
    assert address in capsys.readouterr().err
