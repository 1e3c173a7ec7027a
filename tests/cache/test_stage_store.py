"""The store of finished stages: whole or absent, computed once, cleaned without harm."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

from pipeline.cache import DamagedEntry, Entry, StageStore
from pipeline.cache import entry as entries
from pipeline.cache.__main__ import main as command
from pipeline.cache.entry import FORMAT

ENTRY = Entry({"accuracy": 0.5, "words": ["ä", "b"]}, {"w": np.arange(12.0, dtype=np.float32).reshape(3, 4)})


@pytest.fixture
def store(tmp_path: Path) -> StageStore:
    return StageStore(tmp_path / "stages")


def _fill(store: StageStore, stage: str = "train", key: str = "k1") -> Path:
    store.get_or_compute(stage, key, lambda: ENTRY)
    return store.folder / stage / key


def test_an_entry_comes_back_as_it_was(store: StageStore) -> None:
    _fill(store)
    entry, reused = store.get_or_compute("train", "k1", lambda: pytest.fail("computed again"))
    assert reused
    assert entry.values == ENTRY.values
    np.testing.assert_array_equal(entry.arrays["w"], ENTRY.arrays["w"])
    assert entry.arrays["w"].dtype == np.float32


@pytest.mark.parametrize("file", ["arrays.safetensors", "entry.json"])
@pytest.mark.parametrize("damage", ["flip", "cut", "empty", "gone"])
def test_a_damaged_entry_is_refused_and_rebuilt(store: StageStore, file: str, damage: str, caplog) -> None:
    path = _fill(store) / file
    content = bytearray(path.read_bytes())
    if damage == "gone":
        path.unlink()
    else:
        content[len(content) // 2] ^= 0x01
        path.write_bytes({"flip": bytes(content), "cut": bytes(content[:-3]), "empty": b""}[damage])
    with pytest.raises(DamagedEntry):
        entries.read(path.parent)
    entry, reused = store.get_or_compute("train", "k1", lambda: ENTRY)
    assert not reused
    assert "damaged" in caplog.text
    assert entries.read(path.parent).values == entry.values == ENTRY.values
    assert not list(path.parent.parent.glob(".k1-*"))


def test_every_flipped_byte_is_noticed(store: StageStore) -> None:
    folder = _fill(store)
    for path in sorted(folder.iterdir()):
        content = path.read_bytes()
        for position in range(len(content)):
            path.write_bytes(content[:position] + bytes([content[position] ^ 0x10]) + content[position + 1 :])
            with pytest.raises(DamagedEntry):
                entries.read(folder)
        path.write_bytes(content)
    assert entries.read(folder).values == ENTRY.values


def test_what_a_dying_process_left_half_written_is_not_an_entry(store: StageStore) -> None:
    def die() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def write() -> None:
        entries.file_digest = lambda path: die()  # type: ignore[assignment]
        store.get_or_compute("train", "k1", lambda: ENTRY)

    process = multiprocessing.get_context("fork").Process(target=write)
    process.start()
    process.join(30)
    assert process.exitcode == -signal.SIGKILL
    assert list(store.folder.glob("train/.k1-*/arrays.safetensors"))
    assert list(store.entries()) == []
    _, reused = store.get_or_compute("train", "k1", lambda: ENTRY)
    assert not reused
    store.sweep_leftovers(older_than=0)
    assert not list(store.folder.glob("train/.k1-*"))


def _count(folder: Path, start: str, key: str) -> None:
    while time.time() < float(start):
        time.sleep(0.001)

    def compute() -> Entry:
        with (folder / "computed").open("a") as stream:
            stream.write("x")
        time.sleep(0.2)
        return ENTRY

    StageStore(folder / "stages").get_or_compute("train", key, compute)


def test_eight_processes_compute_an_entry_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("fork")
    start = str(time.time() + 0.5)
    processes = [context.Process(target=_count, args=(tmp_path, start, "k1")) for _ in range(8)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(30)
    assert [process.exitcode for process in processes] == [0] * 8
    assert (tmp_path / "computed").read_text() == "x"


def _add_up(folder: Path, times: int) -> None:
    for _ in range(times):
        with StageStore(folder).lock("train", "k").acquire(poll_interval=0.0005):
            number = int((folder / "number").read_text())
            time.sleep(0.0002)
            (folder / "number").write_text(str(number + 1))


def test_a_lock_whose_file_goes_lets_one_in_at_a_time(tmp_path: Path) -> None:
    (tmp_path / "number").write_text("0")
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_add_up, args=(tmp_path, 100)) for _ in range(4)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert (tmp_path / "number").read_text() == "400"
    assert not list(tmp_path.rglob("*.lock"))


def test_the_lock_of_a_killed_holder_is_free(store: StageStore) -> None:
    def hold() -> None:
        with store.running("s1", {"train": "k1"}):
            time.sleep(60)

    process = multiprocessing.get_context("fork").Process(target=hold)
    process.start()
    while not store.in_use():
        time.sleep(0.01)
    assert store.is_running("s1")
    process.kill()
    process.join()
    assert not store.is_running("s1")
    assert store.in_use() == set()


def test_a_store_keeps_its_identity(store: StageStore, tmp_path: Path) -> None:
    assert store.identity == StageStore(store.folder).identity
    assert store.identity != StageStore(tmp_path / "other").identity


def test_a_held_entry_stays(store: StageStore, capsys) -> None:
    for key in ("k1", "k2", "k3"):
        _fill(store, key=key)
    with store.running("s1", {"train": "k1", "attack": "none yet"}), store.lock("train", "k2"):
        assert command([f"cache.folder={store.folder}", "remove=all"]) == 0
        assert {e.key for e in store.entries()} == {"k1", "k2"}
        assert "2 kept: a running job holds them" in capsys.readouterr().out
    assert command([f"cache.folder={store.folder}", "remove=all"]) == 0
    assert list(store.entries()) == []


def test_removal_by_age_spares_what_was_used_lately(store: StageStore, capsys) -> None:
    old, used = _fill(store, key="old"), _fill(store, key="used")
    for folder in (old, used):
        os.utime(folder, (time.time() - 3 * 86400,) * 2)
    store.load("train", "used")
    command([f"cache.folder={store.folder}", "remove=2d"])
    assert {e.key for e in store.entries()} == {"used"}
    assert "removed 1 of 2 entries" in capsys.readouterr().out


def test_the_command_shows_size_and_entries(store: StageStore, capsys) -> None:
    _fill(store)
    _fill(store, stage="attack")
    command([f"cache.folder={store.folder}"])
    shown = capsys.readouterr().out
    assert "2 entries" in shown
    assert "train" in shown
    assert "attack" in shown
    assert command([f"cache.folder={store.folder / 'absent'}"]) == 0


def test_a_wrong_age_is_an_error_naming_the_form(store: StageStore, capsys) -> None:
    assert command([f"cache.folder={store.folder}", "remove=soon"]) == 1
    assert "12h" in capsys.readouterr().err


def test_reading_while_others_remove_gives_the_whole_entry_or_none(store: StageStore, caplog) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            _fill(store)
            for stored in store.entries():
                store.remove(stored)

    worker = threading.Thread(target=churn)
    worker.start()
    try:
        limit = time.monotonic() + 2
        while time.monotonic() < limit:
            entry = store.load("train", "k1")
            assert entry is None or entry.values == ENTRY.values
    finally:
        stop.set()
        worker.join()


def test_entries_hold_plain_json_and_arrays_only(store: StageStore) -> None:
    with pytest.raises(TypeError, match="plain JSON"):
        store.get_or_compute("train", "k1", lambda: Entry({"model": object()}))
    assert list(store.entries()) == []
    header = json.loads((_fill(store) / "entry.json").read_text())
    assert header["format"] == FORMAT
