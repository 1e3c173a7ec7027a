"""Damaged and hostile files and servers: one line, nothing outside, no run lost."""

from __future__ import annotations

import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_moved_store import opened, run_with_file, template  # noqa: F401

from pipeline.cache import StageStore
from pipeline.errors import UserError
from pipeline.report.build import inert
from pipeline.report.tracked import Reader
from pipeline.sync import main as sync
from pipeline.tracking import runs
from pipeline.tracking.store import TrackingStore, open_to_read, prepare


@pytest.fixture
def store(template, tmp_path: Path) -> TrackingStore:  # noqa: F811
    shutil.copytree(template[0], tmp_path / "mlruns")
    return opened(tmp_path / "mlruns")


@pytest.mark.parametrize(
    "document",
    ["", "{", "[]", "null", "{}", '{"metrics": 3}', json.dumps({"metrics": [], "run_id": 1, "name": 2, "uri": 3})],
)
def test_a_damaged_waiting_run_is_one_line_of_sync(tmp_path: Path, capsys, document: str) -> None:
    place = tmp_path / "mlruns" / "pending" / "s"
    place.mkdir(parents=True)
    (place / "run.json").write_text(document)
    assert sync([f"tracking.folder={tmp_path / 'mlruns'}"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"error: {place / 'run.json'} is damaged")
    assert error.count("\n") == 1


@pytest.mark.parametrize("number", ["../../x", "/etc", "a/b", ""])
def test_a_server_s_run_ids_are_ids(number: str) -> None:
    store = TrackingStore("http://h", "advsvm", "1", Path("mlruns"))
    with pytest.raises(UserError, match="not the id of a run"):
        store.trusted(_run(number, "mlflow-artifacts:/1/x"))


@pytest.mark.parametrize("place", ["file:///home/ann", "/home/ann", "../x", "FILE:///x", "x"])
def test_a_server_names_no_folder_of_this_machine(place: str) -> None:
    store = TrackingStore("http://h", "advsvm", "1", Path("mlruns"))
    with pytest.raises(UserError, match="a folder of this machine"):
        store.trusted(_run("0" * 32, place))


def test_where_a_server_keeps_artifacts_itself_is_its_own_affair() -> None:
    store = TrackingStore("http://h", "advsvm", "1", Path("mlruns"))
    for place in ("mlflow-artifacts:/1/x", "s3://bucket/x", "https://h/x"):
        assert store.trusted(_run("0" * 32, place))


def _run(number: str, place: str) -> SimpleNamespace:
    return SimpleNamespace(info=SimpleNamespace(run_id=number, artifact_uri=place))


@pytest.mark.parametrize("content", ["", "{", "3", '[{"id": 1}]', "[" * 5000])
def test_damaged_checks_are_said_to_be(store: TrackingStore, content: str) -> None:
    run = run_with_file(store, "x")
    store.client.set_tag(run, "check.01", "fail")
    store.client.log_text(run, content, "checks.json")
    reader = Reader(store)
    (found,) = [r for r in reader.runs() if r.id == run]
    assert reader.check_messages(found) == {"01": "its checks.json cannot be read"}


def test_a_seed_that_is_no_number_names_its_run(store: TrackingStore) -> None:
    run = run_with_file(store, "x")
    store.client.set_tag(run, "seed", "three")
    with pytest.raises(UserError, match=f"run {run}: its tag seed is 'three'"):
        Reader(store).runs()


def test_a_store_that_may_only_be_read_is_read(store: TrackingStore, monkeypatch) -> None:
    monkeypatch.setattr("pipeline.tracking.store._is_writable", lambda folder: False)
    before = {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")}
    looked = open_to_read(SimpleNamespace(uri=None, folder=str(store.folder), experiment="advsvm"))
    (run,) = Reader(looked).runs()
    assert Reader(looked).file(run, "file.txt").read_text() == "first"
    assert looked.read_only
    assert {path: path.stat().st_mtime_ns for path in store.folder.rglob("*")} == before


def test_whoever_opens_the_store_ends_what_nobody_holds(store: TrackingStore, tmp_path: Path) -> None:
    stages = StageStore(tmp_path / "stages")
    tags = {runs.STAGE_STORE: stages.identity}
    dead = runs.start(store, "dead", tags | {"run_signature": "a"})
    held = runs.start(store, "held", tags | {"run_signature": "b"})
    foreign = runs.start(store, "foreign", {runs.STAGE_STORE: "another", "run_signature": "a"})
    with stages.running("b", {}):
        runs.end_abandoned(store, StageStore(tmp_path / "stages"))
    assert [store.client.get_run(run).info.status for run in (dead, held, foreign)] == ["KILLED", "RUNNING", "RUNNING"]
    assert not list((tmp_path / "stages").glob("*/*.lock"))


def test_names_are_no_formulas_in_a_spreadsheet() -> None:
    assert inert('=HYPERLINK("http://h")') == '\'=HYPERLINK("http://h")'
    assert [inert(value) for value in ("adv_svm_c", -1.5, 3)] == ["adv_svm_c", -1.5, 3]


def test_a_database_whose_tables_are_no_text_is_one_line(tmp_path: Path) -> None:
    """SQLite quotes what it cannot understand, and Python cannot read the quotation."""
    database = tmp_path / "mlflow.db"
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("create table runs (name text)")
    database.write_bytes(database.read_bytes().replace(b"CREATE TABLE", b"CREATE T\xedBLE"))
    with pytest.raises(UnicodeDecodeError), closing(sqlite3.connect(database)) as connection:
        connection.execute("select count(*) from sqlite_master")
    with pytest.raises(UserError, match=r"tracking.folder: .* is not a readable database"):
        prepare(SimpleNamespace(uri=None, folder=str(tmp_path)))
    assert runs.look_up(database, "advsvm", "signature", lambda metric: False) is None
