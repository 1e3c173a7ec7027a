"""MNIST8M: two digits, generated from MNIST (or read from a file of the user), kept on disk and memory-mapped."""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import lzma
import mmap
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from filelock import FileLock

from pipeline.data import infimnist, mnist
from pipeline.data.dataset import Dataset, Status
from pipeline.data.fetching import Obtained, Progress, checksum, obtain, open_plain, writing_to
from pipeline.data.formats import parse_svmlight
from pipeline.data.infimnist import N_PIXELS, N_TEST, N_TRAIN, SIDE
from pipeline.data.mnist import idx_shape, read_idx
from pipeline.data.rows import binary_labels, chosen_classes
from pipeline.data.settings import Settings, user_path
from pipeline.errors import UserError
from pipeline.paths import write_whole

log = logging.getLogger(__name__)

STAND_IN = "stand-in deformations"
_WINDOW = 1024
_IDX_NAMES = ("mnist8m-patterns-idx3-ubyte", "mnist8m-images-idx3-ubyte", "mnist8m-patterns.idx3-ubyte")
_TEXT_NAMES = ("mnist8m", "mnist8m.scale")
_PACKINGS = ("", ".gz", ".bz2", ".xz")
# Larger slices are handed out as views: copying them would defeat the purpose.
_COPY_LIMIT_BYTES = 64 << 20


class Window(NamedTuple):
    """Some examples: their index in infinite MNIST, their digits and (n, 784) byte pixels."""

    ids: np.ndarray
    digits: np.ndarray
    pixels: np.ndarray


def load(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """Test rows: the official MNIST test digits; training rows: examples 10000, 10001, … up to ``total`` altogether."""
    pair = _digits(settings)
    held = obtain(mnist.FILES, settings, data_dir, progress, path_key="mnist_path")
    test_ids, y_test, names = binary_labels(read_idx(held.files[mnist.TEST_LABELS]), settings["classes"])
    n_train = _n_train(settings, len(test_ids))
    origin = _origin(settings)
    home = _stored(settings, data_dir, origin, n_train)
    with writing_to(data_dir):
        home.parent.mkdir(parents=True, exist_ok=True)
        sums = _verified(home)
        if sums is None:
            with FileLock(home.with_suffix(".lock")):
                sums = _verified(home) or _build(home, pair, n_train, origin, held, progress)
    _, y_train, _ = binary_labels(np.load(home / "digits.npy", allow_pickle=False), settings["classes"])
    kind = "; ".join(f"{key} {path}" for key, path in origin.items()) or STAND_IN
    return Dataset(
        name=settings["name"],
        X_train=MappedRows.open(home / "pixels.f32", N_PIXELS),
        y_train=y_train,
        X_test=mnist.scaled(read_idx(held.files[mnist.TEST_IMAGES]), test_ids),
        y_test=y_test,
        image_shape=(SIDE, SIDE),
        class_names=names,
        train_ids=np.load(home / "ids.npy", allow_pickle=False),
        test_ids=test_ids,
        source=f"infinite MNIST ({kind}) from MNIST ({held.source})",
        notes=() if origin else (STAND_IN,),
        files=(*held.files.values(), *(home / name for name in sums), *origin.values()),
        X_train_sha256=sums["pixels.f32"],
    )


def status(settings: Settings, data_dir: Path) -> Status:
    """Sizes and whereabouts without reading the data."""
    n_test = sum(mnist.TEST_COUNTS[k] for k in _digits(settings))
    n_train, origin = _n_train(settings, n_test), _origin(settings)
    home = _stored(settings, data_dir, origin, n_train)
    present = (home / "checksums.json").is_file() and mnist.FILES.is_present(data_dir)
    return Status((n_train, n_test), "your files" if origin else "generated (stand-in)", present, str(home.parent))


def _digits(settings: Settings) -> tuple[int, int]:
    first, second = chosen_classes(settings.get("classes"))
    if first not in mnist.DIGITS or second not in mnist.DIGITS:
        raise UserError(f"dataset.classes: {first} and {second} must be digits 0 to 9")
    return int(first), int(second)


def _n_train(settings: Settings, n_test: int) -> int:
    total = settings.get("total")
    if isinstance(total, bool) or not isinstance(total, int) or total <= n_test + 1:
        raise UserError(f"dataset.total: {total!r} must be a number above the {n_test} test images")
    return total - n_test


def _origin(settings: Settings) -> dict[str, Path]:
    """The user's files instead of the stand-in: an MNIST8M file, or the original's fields and tangents."""
    path, fields, tangents = (user_path(settings, key) for key in ("path", "fields", "tangents"))
    if path is not None:
        places = [path / (name + end) for name in (*_IDX_NAMES, *_TEXT_NAMES) for end in _PACKINGS]
        for place in (path, *places):
            if place.is_file():
                return {"path": place}
        raise UserError(f"dataset.path: {path} holds no MNIST8M file; name the file itself ({_IDX_NAMES[0]} or LIBSVM)")
    if (fields is None) != (tangents is None):
        missing = "fields" if fields is None else "tangents"
        raise UserError(f"dataset.{missing}: missing; the original's fields and tangents are used together")
    return {"fields": fields, "tangents": tangents} if fields is not None and tangents is not None else {}


def _stored(settings: Settings, data_dir: Path, origin: dict[str, Path], n_train: int) -> Path:
    low, high = sorted(_digits(settings))
    stamps = [[key, str(path), path.stat().st_size, path.stat().st_mtime_ns] for key, path in origin.items()]
    # Another generator writes another folder; checkouts of different age can share the data folder.
    made_by = Path(str(infimnist.__file__)).read_bytes() + Path(__file__).read_bytes()
    key = hashlib.sha256(json.dumps(stamps).encode() + made_by).hexdigest()[:12]
    return data_dir / "mnist8m" / f"{low}v{high}-{n_train}-{'file' if origin else 'stand-in'}-{key}"


def _verified(home: Path) -> dict[str, str] | None:
    """Checksums of the stored files if all of them are there and right."""
    try:
        sums = json.loads((home / "checksums.json").read_text())
        wrong = [name for name, digits in sums.items() if checksum((home / name).open("rb")) != digits]
    except FileNotFoundError:
        return None
    except (ValueError, AttributeError):
        wrong = ["checksums.json"]
    if wrong:
        log.warning("%s is damaged and is generated again", home / wrong[0])
        return None
    return sums


def _build(
    home: Path, pair: tuple[int, int], n_train: int, origin: dict[str, Path], held: Obtained, progress: Progress
) -> dict[str, str]:
    # Settings are checked when the rows are asked for: a wrong one is named before a full disk.
    source = _from_file(origin["path"], pair, n_train) if "path" in origin else _made(pair, n_train, origin, held)
    partial = home.with_suffix(".partial")
    shutil.rmtree(partial, ignore_errors=True)  # what a killed job left
    needed = 4 * n_train * N_PIXELS
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
                ids.append(window.ids)
                digits.append(window.digits)
                done += len(window.ids)
                progress(f"generate {home.name}", done, n_train)
                yield window.pixels

        sums = {"pixels.f32": write_rows(partial / "pixels.f32", pixels())}
        for name, parts in (("ids.npy", ids), ("digits.npy", digits)):
            np.save(partial / name, np.concatenate(parts).astype(np.int64))
            sums[name] = checksum((partial / name).open("rb"))
        write_whole(partial / "checksums.json", json.dumps(sums))
        shutil.rmtree(home, ignore_errors=True)
        partial.rename(home)
        return sums
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _made(pair: tuple[int, int], n_train: int, origin: dict[str, Path], held: Obtained) -> Iterator[Window]:
    """The first `n_train` examples of two digits, generated as they are asked for."""
    try:
        deformations = infimnist.original(origin["fields"], origin["tangents"]) if origin else infimnist.stand_in()
    except (ValueError, OSError) as error:
        raise UserError(f"dataset.fields, dataset.tangents: {error}; use the files of infimnist 1.3") from error
    labels = read_idx(held.files[mnist.TRAIN_LABELS])
    images = read_idx(held.files[mnist.TRAIN_IMAGES]).reshape(-1, N_PIXELS)
    chosen = np.flatnonzero(np.isin(labels, pair))
    blocks = -(-n_train // len(chosen))
    ids = (N_TEST + N_TRAIN * np.arange(blocks)[:, None] + chosen).reshape(-1)[:n_train]
    if ids[-1] > infimnist.LAST_OF_MNIST8M:
        raise UserError(f"dataset.total: MNIST8M holds only {135 * len(chosen)} images of {pair[0]} and {pair[1]}")

    def window(part: np.ndarray) -> Window:
        return Window(part, labels[(part - N_TEST) % N_TRAIN], infimnist.examples(part, images, deformations))

    return (window(ids[start : start + _WINDOW]) for start in range(0, n_train, _WINDOW))


def _from_file(path: Path, pair: tuple[int, int], n_rows: int) -> Iterator[Window]:
    """The first `n_rows` rows of two digits of a user's MNIST8M file, in file order."""
    found = start = 0
    try:
        with open_plain(path) as stream:
            is_idx = stream.read(3) == b"\0\0\x08"
        for digits, pixels in (_from_idx if is_idx else _from_text)(path):
            chosen = np.flatnonzero(np.isin(digits, pair))[: n_rows - found]
            yield Window(N_TEST + start + chosen, digits[chosen], pixels[chosen])
            start, found = start + len(digits), found + len(chosen)
            if found == n_rows:
                return
    except (ValueError, EOFError, lzma.LZMAError) as error:
        raise UserError(f"dataset.path: {path} is damaged or not an MNIST8M file ({error})") from error
    except OSError as error:
        raise UserError(f"dataset.path: cannot read {path} ({error.strerror or error})") from error
    raise UserError(
        f"dataset.path: {path} holds only {found} images of {pair[0]} and {pair[1]}, {n_rows} are needed; "
        "use the whole MNIST8M or lower dataset.total"
    )


def _from_idx(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    labels = read_idx(_labels_beside(path))
    with open_plain(path) as stream:
        shape, _ = idx_shape(stream.read(16), path.name)
        if shape != (len(labels), SIDE, SIDE):
            raise ValueError(f"its shape is {shape}, with {len(labels)} labels")
        for start in range(0, len(labels), _WINDOW):
            part = labels[start : start + _WINDOW]
            data = stream.read(len(part) * N_PIXELS)
            if len(data) != len(part) * N_PIXELS:
                raise ValueError(f"it ends within image {start + len(data) // N_PIXELS}")
            yield part, np.frombuffer(data, dtype=np.uint8).reshape(-1, N_PIXELS)


def _labels_beside(path: Path) -> Path:
    """The IDX label file that belongs to an IDX image file."""
    name = path.name.replace("patterns", "labels").replace("images", "labels").replace("idx3", "idx1")
    plain = path.with_name(name.removesuffix(".gz"))
    for place in (path.with_name(name), plain, plain.with_name(plain.name + ".gz")):
        if place.is_file() and place != path:
            return place
    raise UserError(f"dataset.path: the labels of {path} are missing; put {plain.name} beside it")


def _from_text(path: Path) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    factor, start = None, 1
    with open_plain(path) as stream:
        while lines := list(itertools.islice(stream, _WINDOW)):
            rows, labels = parse_svmlight(lines, start, N_PIXELS)
            # LIBSVM offers the bytes, and the same divided by 255 with six digits.
            factor = factor or (255 if rows.max() <= 1.0 else 1)
            values = np.rint(rows.toarray() * factor)
            if values.min() < 0 or values.max() > 255:
                raise ValueError(f"a pixel of lines {start} to {start + len(lines) - 1} is outside 0..255")
            yield labels.astype(np.int64), values.astype(np.uint8)
            start += len(lines)


class MappedRows(np.memmap):
    """A read-only memory map of float32 rows that does not grow resident when it is read in windows.

    A plain memory map counts every page ever touched as resident memory, and a touched page brings its neighbours
    along, so one pass over the data ends with all of it. Here ``X[a:b]`` copies the rows and gives the pages back,
    ``X[indices]`` reads just these rows. To everyone else it is an ordinary array; ``np.asarray(X)`` is the plain map.
    """

    @classmethod
    def open(cls, path: Path, n_columns: int) -> MappedRows:
        """Map a file of little-endian float32 rows."""
        n_rows = path.stat().st_size // (4 * n_columns)
        return cls(path, dtype="<f4", mode="r", shape=(n_rows, n_columns))

    def __getitem__(self, key: Any) -> Any:
        # Views made of this array (transposed, reshaped) no longer have the file's layout.
        mapped: Any = self.base
        whole = isinstance(mapped, mmap.mmap)
        if whole and isinstance(key, (list, np.ndarray)) and np.ndim(key) == 1:
            return self._read(np.arange(len(self))[key])
        taken = self.view(np.ndarray)[key]
        if whole and isinstance(taken, np.ndarray) and taken.nbytes <= _COPY_LIMIT_BYTES:
            taken = taken.copy()
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)
        return taken

    def _read(self, rows: np.ndarray) -> np.ndarray:
        out = np.empty((len(rows), self.shape[1]), dtype=self.dtype)
        with open(str(self.filename), "rb", buffering=0) as file:
            stride = self.strides[0]
            for target, row in zip(out, rows.tolist(), strict=True):
                file.seek(row * stride)
                if file.readinto(target) != stride:
                    raise OSError(f"{self.filename} ends within row {row}")
        return out


def write_rows(path: Path, windows: Iterable[np.ndarray]) -> str:
    """Write windows of byte pixels as float32 in [0, 1]; returns the sha256 of the file."""
    digest = hashlib.sha256()
    with path.open("wb") as out:
        for window in windows:
            scaled = window.astype("<f4")
            scaled /= np.float32(255)
            data = scaled.reshape(-1).view(np.uint8).data
            digest.update(data)
            out.write(data)
    return digest.hexdigest()
