"""MNIST8M: two digits, generated from MNIST (or read from a file of the user), kept on disk and memory-mapped."""

from __future__ import annotations

import hashlib
import json
import logging
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock

from pipeline.data import infimnist, mnist, mnist8m_files, rows
from pipeline.data.atomic import write_text
from pipeline.data.checksums import checksum
from pipeline.data.dataset import Dataset, binary_labels, build_dataset, chosen_classes
from pipeline.data.idx import read_idx
from pipeline.data.mnist8m_files import Window, find_file, windows
from pipeline.data.progress import Progress, report
from pipeline.data.published import Obtained, is_present, obtain
from pipeline.data.rows import MappedRows, write_rows
from pipeline.data.settings import Settings, user_path
from pipeline.data.status import Status
from pipeline.errors import UserError

log = logging.getLogger(__name__)

STAND_IN = "stand-in deformations"
_WINDOW = 1024
_FOLDER = "mnist8m"


def load(settings: Settings, data_dir: Path, progress: Progress | None = None) -> Dataset:
    """Test rows: the official MNIST test digits; training rows: examples 10000, 10001, … up to ``total`` altogether."""
    pair = _digits(settings)
    held = obtain(mnist.FILES, settings, data_dir, progress, path_key="mnist_path")
    test_ids, y_test, names = binary_labels(read_idx(held.files[mnist.TEST_LABELS]), settings["classes"])
    n_train = _n_train(settings, len(test_ids))
    origin = _origin(settings)
    home = _stored(settings, data_dir, origin, n_train)
    try:
        home.parent.mkdir(parents=True, exist_ok=True)
        facts = _verified(home)
        if facts is None:
            with FileLock(home.with_suffix(".lock")):
                facts = _verified(home) or _build(home, pair, n_train, origin, held, progress)
    except OSError as error:
        raise UserError(
            f"ADVSVM_DATA: cannot write to the data folder {data_dir} ({error.strerror or error}); "
            "make room or set ADVSVM_DATA to another folder"
        ) from error
    digits = np.load(home / "digits.npy", allow_pickle=False)
    _, y_train, _ = binary_labels(digits, settings["classes"])
    note = () if origin else (STAND_IN,)
    kind = "; ".join(f"{key} {path}" for key, path in origin.items()) or STAND_IN
    return build_dataset(
        name=settings["name"],
        X_train=MappedRows.open(home / "pixels.f32", infimnist.N_PIXELS),
        y_train=y_train,
        X_test=mnist.scaled(read_idx(held.files[mnist.TEST_IMAGES]), test_ids),
        y_test=y_test,
        image_shape=(infimnist.SIDE, infimnist.SIDE),
        class_names=names,
        train_ids=np.load(home / "ids.npy", allow_pickle=False),
        test_ids=test_ids,
        source=f"infinite MNIST ({kind}) from MNIST ({held.source})",
        notes=note,
        files=(*held.files.values(), *(home / name for name in facts["checksums"]), *origin.values()),
        X_train_sha256=facts["checksums"]["pixels.f32"],
    )


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes and whereabouts without reading the data."""
    n_test = sum(mnist.TEST_COUNTS[k] for k in _digits(settings))
    n_train, origin = _n_train(settings, n_test), _origin(settings)
    home = _stored(settings, data_dir, origin, n_train)
    return Status(
        sizes=(n_train, n_test),
        origin="your files" if origin else "generated (stand-in)",
        present=(home / "facts.json").is_file() and is_present(mnist.FILES, data_dir),
        where=str(home.parent),
    )


def _digits(settings: Settings) -> tuple[int, int]:
    names = chosen_classes(settings.get("classes"))
    if not all(name.isdigit() and len(name) == 1 for name in names):
        raise UserError(f"dataset.classes: {names[0]} and {names[1]} must be digits 0 to 9")
    return int(names[0]), int(names[1])


def _n_train(settings: Settings, n_test: int) -> int:
    total = settings.get("total")
    if isinstance(total, bool) or not isinstance(total, int) or total <= n_test + 1:
        raise UserError(f"dataset.total: {total!r} must be a number above the {n_test} test images")
    return total - n_test


def _origin(settings: Settings) -> dict[str, Path]:
    """The user's files instead of the stand-in: an MNIST8M file, or the original's fields and tangents."""
    path, fields, tangents = (user_path(settings, key) for key in ("path", "fields", "tangents"))
    if path is not None:
        return {"path": find_file(path)}
    if (fields is None) != (tangents is None):
        missing = "fields" if fields is None else "tangents"
        raise UserError(f"dataset.{missing}: missing; the original's fields and tangents are used together")
    return {"fields": fields, "tangents": tangents} if fields is not None and tangents is not None else {}


def _stored(settings: Settings, data_dir: Path, origin: dict[str, Path], n_train: int) -> Path:
    low, high = sorted(_digits(settings))
    stamps = [[key, str(path), path.stat().st_size, path.stat().st_mtime_ns] for key, path in origin.items()]
    # Another generator writes another folder; checkouts of different age can share the data folder.
    made_by = b"".join(Path(str(module.__file__)).read_bytes() for module in (infimnist, mnist8m_files, rows))
    key = hashlib.sha256(json.dumps(stamps).encode() + made_by).hexdigest()[:12]
    return data_dir / _FOLDER / f"{low}v{high}-{n_train}-{'file' if origin else 'stand-in'}-{key}"


def _verified(home: Path) -> dict[str, Any] | None:
    try:
        facts = json.loads((home / "facts.json").read_text())
        wrong = [name for name, digits in facts["checksums"].items() if checksum(home / name, "sha256") != digits]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, AttributeError):
        wrong = ["facts.json"]
    if wrong:
        log.warning("%s is damaged and is generated again", home / wrong[0])
        return None
    return facts


def _build(
    home: Path, pair: tuple[int, int], n_train: int, origin: dict[str, Path], held: Obtained, progress: Progress | None
) -> dict[str, Any]:
    source = _windows(pair, n_train, origin, held)  # a wrong setting is named before a full disk
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed job left
    needed = 4 * n_train * infimnist.N_PIXELS
    if shutil.disk_usage(home.parent).free < 1.05 * needed:
        raise UserError(
            f"ADVSVM_DATA: {home.parent} has no room for {needed / 1e6:.0f} MB; set ADVSVM_DATA to another folder"
        )
    partial.mkdir(parents=True)
    try:
        ids, digits = [], []

        def pixels() -> Iterator[np.ndarray]:
            done = 0
            for window in source:
                ids.append(window.rows)
                digits.append(window.digits)
                done += len(window.rows)
                report(progress, f"generate {home.name}", done, n_train)
                yield window.pixels

        sums = {"pixels.f32": write_rows(partial / "pixels.f32", pixels())}
        for name, parts in (("ids.npy", ids), ("digits.npy", digits)):
            np.save(partial / name, np.concatenate(parts).astype(np.int64))
            sums[name] = checksum(partial / name, "sha256")
        facts = {"checksums": sums}
        write_text(partial / "facts.json", json.dumps(facts))
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
        return facts
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _windows(pair: tuple[int, int], n_train: int, origin: dict[str, Path], held: Obtained) -> Iterator[Window]:
    """The rows, read or generated as they are asked for; the settings are checked at once."""
    if "path" in origin:
        read = windows(origin["path"], pair, n_train)
        return (Window(window.rows + infimnist.N_TEST, window.digits, window.pixels) for window in read)
    try:
        deformations = infimnist.original(origin["fields"], origin["tangents"]) if origin else infimnist.stand_in()
    except (ValueError, OSError) as error:
        raise UserError(f"dataset.fields, dataset.tangents: {error}; use the files of infimnist 1.3") from error
    labels = read_idx(held.files[mnist.TRAIN_LABELS])
    images = read_idx(held.files[mnist.TRAIN_IMAGES]).reshape(-1, infimnist.N_PIXELS)
    chosen = np.flatnonzero(np.isin(labels, pair))
    blocks = -(-n_train // len(chosen))
    ids = (infimnist.N_TEST + infimnist.N_TRAIN * np.arange(blocks)[:, None] + chosen).reshape(-1)[:n_train]
    if ids[-1] > infimnist.LAST_OF_MNIST8M:
        raise UserError(f"dataset.total: MNIST8M holds only {135 * len(chosen)} images of {pair[0]} and {pair[1]}")

    def window(part: np.ndarray) -> Window:
        digits = labels[(part - infimnist.N_TEST) % infimnist.N_TRAIN].astype(np.int64)
        return Window(part, digits, infimnist.examples(part, images, deformations))

    return (window(ids[start : start + _WINDOW]) for start in range(0, n_train, _WINDOW))
