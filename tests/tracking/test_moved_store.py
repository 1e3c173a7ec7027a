"""A store is its folder: moved, copied or strangely named, its runs and their files stay together."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from pipeline import fitted
from pipeline.tracking import runs
from pipeline.tracking.bundle import RunBundle, pending, send_pending
from pipeline.tracking.store import TrackingStore, open_store, rebase


def opened(folder: Path) -> TrackingStore:
    return open_store(SimpleNamespace(uri=None, folder=str(folder), experiment="advsvm"))


def run_with_file(store: TrackingStore, words: str) -> str:
    run = runs.start(store, words, {"role": "experiment"})
    store.client.log_text(run, words, "file.txt")
    store.client.set_terminated(run, "FINISHED")
    return run


def text(store: TrackingStore, run: str) -> str:
    return Path(store.client.download_artifacts(run, "file.txt")).read_text()


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A store with one run, at a place that is gone afterwards, and the name of the run."""
    folder = tmp_path_factory.mktemp("first") / "mlruns"
    run = run_with_file(opened(folder), "first")
    return folder, run


@pytest.mark.parametrize("how", [shutil.move, shutil.copytree])
def test_old_runs_are_found_and_new_ones_are_written_where_the_store_is(template, tmp_path: Path, how) -> None:
    original, run = template
    there, here = tmp_path / "there" / "mlruns", tmp_path / "a%41 ?b#ü"
    shutil.copytree(original, there)
    opened(there)
    how(there, here)
    store = opened(here)
    (here / "artifacts" / run / "artifacts" / "file.txt").write_text("as it is here")
    assert text(store, run) == "as it is here"
    new = run_with_file(store, "second")
    assert (here / "artifacts" / new / "artifacts" / "file.txt").read_text() == text(store, new) == "second"
    assert there.exists() == (how is shutil.copytree)
    assert not there.exists() or not (there / "artifacts" / new).exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(["there", here.name])


def test_a_model_is_found_in_a_strangely_named_store(template, tmp_path: Path) -> None:
    import mlflow

    original, run = template
    here = tmp_path / "a%41 ?b#ü"
    shutil.copytree(original, here)
    opened(here)
    try:
        assert fitted._fetched(f"runs:/{run}/file.txt", "", str(here)).read_text() == "first"
    finally:
        mlflow.set_tracking_uri(None)
        mlflow.set_registry_uri(None)


def test_artifacts_kept_elsewhere_on_purpose_stay_there(template, tmp_path: Path) -> None:
    original, _ = template
    folder, kept = tmp_path / "mlruns", tmp_path / "disk" / "artifacts"
    shutil.copytree(original, folder)
    opened(folder)
    shutil.copytree(folder / "artifacts", kept)
    shutil.rmtree(folder / "artifacts")
    with closing(sqlite3.connect(folder / "mlflow.db")) as connection, connection:
        connection.execute("update experiments set artifact_location = ? where name = 'advsvm'", (kept.as_uri(),))
    assert rebase(folder / "mlflow.db", folder) == 0


def test_a_store_reached_through_a_link_is_not_moved(template, tmp_path: Path) -> None:
    original, _ = template
    shutil.copytree(original, tmp_path / "mlruns")
    opened(tmp_path / "mlruns")
    (tmp_path / "link").symlink_to(tmp_path / "mlruns")
    assert rebase(tmp_path / "link" / "mlflow.db", tmp_path / "link") == 0


def test_runs_that_wait_move_with_their_store(template, tmp_path: Path) -> None:
    original, _ = template
    folder = tmp_path / "mlruns"
    shutil.copytree(original, folder)
    waiting = folder / "pending" / "s"
    waiting.mkdir(parents=True)
    RunBundle(waiting, "0" * 32, "waited", f"sqlite:///{original}/mlflow.db").write()
    assert send_pending(opened(folder)) == ["waited"]
    assert pending(folder) == []
