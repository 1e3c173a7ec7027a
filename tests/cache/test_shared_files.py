"""The same content is on disk once; what is held by nobody goes; a limit of size is kept."""

from __future__ import annotations

import os
import sqlite3
import time
from pathlib import Path

import numpy as np
import pytest

from models.compact import pack
from pipeline.cache import Entry, StageStore
from pipeline.cache.__main__ import main as command
from pipeline.cache.shared import SharedFiles

NOISE = np.random.default_rng(0).normal(size=(40, 100))  # 32 kB, which nothing makes smaller
DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> StageStore:
    return StageStore(tmp_path / "stages")


def fill(store: StageStore, key: str, stage: str = "train", seed: int = 0, age: float = 0.0) -> Path:
    arrays = {"x": NOISE + seed}
    store.get_or_compute(stage, key, lambda: Entry({"key": key}, arrays))
    folder = store.folder / stage / key
    os.utime(folder, (time.time() - age,) * 2)
    return folder


def test_stage_and_artifact_of_one_model_are_one_file(store: StageStore, tmp_path: Path) -> None:
    artifact = tmp_path / "artifacts" / "model.safetensors"
    artifact.parent.mkdir()
    artifact.write_bytes(pack({"x": NOISE}))
    stage = fill(store, "k1") / "arrays.safetensors"
    assert not stage.samefile(artifact)
    store.shared.take_in_all(artifact.parent)
    assert stage.samefile(artifact)
    assert artifact.read_bytes() == pack({"x": NOISE})


def test_other_content_and_small_files_stay_apart(tmp_path: Path) -> None:
    shared = SharedFiles(tmp_path)
    contents = [os.urandom(20_000), os.urandom(20_000), b"small", b"small"]
    files = [tmp_path / str(number) for number in range(4)]
    for file, content in zip(files, contents):
        file.write_bytes(content)
        shared.take_in(file)
        shared.take_in(file)  # a second time changes nothing
    assert [file.read_bytes() for file in files] == contents
    assert len({file.stat().st_ino for file in files}) == 4
    assert len(list(shared.folder.iterdir())) == 2


def test_a_damaged_file_in_the_pool_is_not_linked_to(store: StageStore) -> None:
    first = fill(store, "k1") / "arrays.safetensors"
    good = first.read_bytes()
    with first.open("r+b") as stream:  # in place: the pool's link is damaged with it
        stream.write(b"damage")
    second = fill(store, "k2") / "arrays.safetensors"
    assert second.read_bytes() == good
    assert fill(store, "k3").joinpath("arrays.safetensors").samefile(second)


def test_without_hard_links_copies_stay(store: StageStore, monkeypatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    monkeypatch.setattr(os, "link", refuse)
    folders = [fill(store, key) for key in ("k1", "k2")]
    assert len({(folder / "arrays.safetensors").stat().st_ino for folder in folders}) == 2
    assert store.load("train", "k2") is not None


def test_what_nobody_holds_goes_with_the_next_clean_up(store: StageStore, capsys) -> None:
    fill(store, "k1")
    assert list(store.shared.folder.iterdir())
    command([f"cache.folder={store.folder}", "remove=all"])
    assert not list(store.shared.folder.iterdir())


def test_the_oldest_entries_that_no_job_holds_go_first(store: StageStore) -> None:
    for number, age in enumerate((4, 3, 2, 1)):
        fill(store, f"k{number}", seed=number, age=age * DAY)
    size = next(store.entries()).bytes
    with store.running("s1", {"train": "k0"}):
        gone = store.evict(2.5 * size / 1e9)
    assert [entry.key for entry in gone] == ["k1", "k2"]
    assert {entry.key for entry in store.entries()} == {"k0", "k3"}


def test_what_an_artifact_holds_too_is_not_evicted(store: StageStore, tmp_path: Path) -> None:
    artifact = tmp_path / "model.safetensors"
    artifact.write_bytes(pack({"x": NOISE}))
    fill(store, "k1", age=9 * DAY)
    fill(store, "k2", seed=1)
    store.shared.take_in(artifact)
    (entry,) = (e for e in store.entries() if e.key == "k1")
    assert entry.freed < 1000 < entry.bytes
    assert [e.key for e in store.evict(0.9 * 32_000 / 1e9)] == ["k1", "k2"]


def test_a_limit_is_kept_when_a_run_ends(store: StageStore) -> None:
    limited = StageStore(store.folder, max_gb=50_000 / 1e9)
    for number in range(4):
        with limited.running(f"s{number}", {"train": f"k{number}"}):
            fill(limited, f"k{number}", seed=number, age=(10 - number) * DAY)
    assert {entry.key for entry in store.entries()} == {"k3"}


def test_the_command_tells_what_a_sweep_holds(store: StageStore, capsys) -> None:
    for sweep, key in (("first", "k1"), ("second", "k2")):
        with store.running(sweep, {"train": key, "attack": "both", "evaluate": sweep}):
            fill(store, key, seed=int(key[1]))
            fill(store, "both", stage="attack", seed=9)
            fill(store, sweep, stage="evaluate", seed=len(sweep))
    fill(store, "stray", seed=77)
    with sqlite3.connect(store.folder.parent / "mlflow.db") as database:
        database.execute("create table tags (key, value, run_uuid)")
        database.execute("create table runs (run_uuid, lifecycle_stage)")
        for run in ("first", "second", "summary-first"):
            database.execute("insert into runs values (?, 'active')", (run,))
            for key, value in ((f"sweep.{run.removeprefix('summary-')}-sweep", "1"), ("run_signature", run)):
                database.execute("insert into tags values (?, ?, ?)", (key, value, run))
    command([f"cache.folder={store.folder}"])
    cells = [line.split("│")[1:-1] for line in capsys.readouterr().out.splitlines() if "│" in line]
    rows = {row[0].strip(): [cell.strip() for cell in row[1:]] for row in cells}
    sizes = {(e.stage, e.key): e.bytes for e in store.entries()}
    own = sizes["train", "k1"] + sizes["evaluate", "first"]
    assert rows["first-sweep"] == ["1", "3", f"{(own + sizes['attack', 'both']) / 1e3:.0f} kB", f"{own / 1e3:.0f} kB"]
    assert rows["of no sweep"][1] == "1"


def test_the_command_keeps_a_limit_too(store: StageStore, capsys) -> None:
    for number in range(3):
        fill(store, f"k{number}", seed=number, age=(3 - number) * DAY)
    assert command([f"cache.folder={store.folder}", "cache.max_gb=0.00004"]) == 0
    assert "removed 2 of 3 entries" in capsys.readouterr().out
    assert command([f"cache.folder={store.folder}", "cache.max_gb=much"]) == 1
    assert "gigabytes" in capsys.readouterr().err
