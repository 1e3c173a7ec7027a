"""Load a dataset by its settings, or only its fingerprint from what is known of an earlier loading.

A manifest entry belongs to the settings (with every path followed to the real file), to the content of the files that
were read, and to the code that read them. Time stamps prove nothing: a file can be replaced under the same ones.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib
import importlib.util
import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.data.dataset import Dataset
from pipeline.data.fetching import Progress, checksum
from pipeline.data.rows import most_rows, printable, split_seed, subsample
from pipeline.data.settings import Settings, resolve, user_path
from pipeline.errors import UserError
from pipeline.paths import at_home, default_data_dir, write_whole


def load_dataset(
    settings: str | Settings | Any,
    data_dir: Path | str | None = None,
    progress: Progress | None = None,
    planned: str | None = None,
) -> Dataset:
    """Load a dataset, fetching it first when it is absent.

    Parameters
    ----------
    settings : str, mapping, OmegaConf node or dataclass
        Name of a YAML in ``conf/dataset``, or the resolved config group.
    data_dir : path, optional
        Folder that keeps data; by default `pipeline.paths.default_data_dir`.
    progress : callable (event, step, total), optional
        Told about fetching and generating.
    planned : str, optional
        Fingerprint that results were planned for; other content is refused.

    Raises
    ------
    UserError
        One line naming the setting to change.
    """
    values, folder = resolve(settings), _folder(data_dir)
    module, function = loader_module(values)
    before = {path: _content(path) for path in _named_files(values)}
    manifest = _manifest(values, folder)
    try:
        dataset = _subsample(getattr(module, function)(values, folder, progress or (lambda *_: None)), values)
    except UserError as error:
        raise UserError(printable(str(error))) from error
    if before != {path: _content(path) for path in _named_files(values)}:
        raise UserError(f"dataset.path: {values.get('path')} changed while it was read; run again")
    if planned is not None and dataset.fingerprint != planned:
        raise UserError(f"dataset.path: the data of {dataset.name} changed since this run was planned; run again")
    _remember(dataset, manifest)
    return dataset


def fingerprint(settings: str | Settings | Any, data_dir: Path | str | None = None) -> str:
    """Fingerprint of a dataset: at once if it was loaded before and its files are untouched, else by loading it."""
    known = summary(settings, data_dir)
    return known["fingerprint"] if known else load_dataset(settings, data_dir).fingerprint


def summary(settings: str | Settings | Any, data_dir: Path | str | None = None) -> dict[str, Any] | None:
    """Sizes, fingerprint, source and notes of a dataset that was loaded before and is untouched, else None."""
    try:
        entry = json.loads(_manifest(resolve(settings), _folder(data_dir)).read_text())
        return entry if all(_content(path) == content for path, content in entry["files"].items()) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError, ImportError):
        return None


def check_settings(settings: str | Settings | Any) -> None:
    """Refuse what is wrong without a look into a file, before a run or a sweep exists."""
    values = resolve(settings)
    loader_module(values)
    split_seed(values)
    for key in ("max_train", "max_test"):
        most_rows(values, key)
    for key in ("path", "test_path"):
        user_path(values, key)


def hold_to(folder: Path, settings: str | Settings | Any, fingerprint: str) -> None:
    """Refuse a dataset that has another content than the first job with this `folder` found: one sweep, one content.

    `folder` belongs to a sweep and is shared by its jobs, on whatever machine they run.
    """
    text = json.dumps(resolve(settings), sort_keys=True, default=str)
    note = folder / f".data-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{note}.lock"):
        if not note.exists():
            write_whole(note, fingerprint)
        if note.read_text() != fingerprint:
            name = resolve(settings)["name"]
            raise UserError(f"dataset.path: the data of {name} changed since the sweep began; start the sweep again")


def loader_module(settings: Settings) -> tuple[Any, str]:
    """Module and function name of ``dataset.loader``."""
    module_name, _, function = str(settings.get("loader")).rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except (ImportError, ValueError) as error:
        raise UserError(f"dataset.loader: cannot import {settings.get('loader')} ({error})") from error
    if not callable(getattr(module, function, None)):
        raise UserError(f"dataset.loader: {module_name} has no function {function}")
    return module, function


def _folder(data_dir: Path | str | None) -> Path:
    return at_home(str(data_dir)).absolute() if data_dir is not None else default_data_dir().absolute()


def _subsample(dataset: Dataset, settings: Settings) -> Dataset:
    changes: dict[str, Any] = {}
    for part in ("train", "test"):
        y = getattr(dataset, f"y_{part}")
        rows = subsample(y, settings, f"max_{part}")
        if len(rows) < len(y):
            # A part that is kept whole is not touched: its rows may stay on disk.
            changes |= {f"{name}_{part}": getattr(dataset, f"{name}_{part}")[rows] for name in ("X", "y")}
            changes[f"{part}_ids"] = getattr(dataset, f"{part}_ids")[rows]
    if not changes:
        return dataset
    changes |= {"X_train_sha256": ""} if "X_train" in changes else {}
    return replace(dataset, notes=(*dataset.notes, "subsample"), fingerprint="", **changes)


def _remember(dataset: Dataset, manifest: Path) -> None:
    """Note a loaded dataset; a data folder that cannot be written to is no reason to fail.

    A dataset that names no files is not noted: nothing would tell when it changes.
    """
    if not dataset.files:
        return
    with contextlib.suppress(OSError):
        entry = {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "n_train": len(dataset.y_train),
            "n_test": len(dataset.y_test),
            "n_features": dataset.n_features,
            "source": dataset.source,
            "notes": list(dataset.notes),
            "files": {str(path): _content(path) for path in dataset.files},
        }
        manifest.parent.mkdir(parents=True, exist_ok=True)
        write_whole(manifest, json.dumps(entry, indent=1))


def _manifest(settings: Settings, data_dir: Path) -> Path:
    # The same words may mean another file: in another working folder, with another variable or link.
    values: dict[str, Any] = dict(settings)
    for key, path in _named_paths(settings):
        values[key] = [str(path), sorted(os.listdir(path)) if path.is_dir() and os.access(path, os.R_OK) else None]
    text = json.dumps([_code(str(settings["loader"])), values], sort_keys=True, default=str)
    return data_dir / "manifests" / f"{settings['name']}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _named_paths(settings: Settings) -> list[tuple[str, Path]]:
    """Settings that name something on the disk, followed through variables and links."""
    texts = {key: text for key, text in settings.items() if isinstance(text, str) and "\0" not in text}
    paths = {key: os.path.expanduser(os.path.expandvars(text)) for key, text in texts.items()}
    return [(key, Path(os.path.realpath(path))) for key, path in paths.items() if os.path.exists(path)]


def _named_files(settings: Settings) -> list[Path]:
    return [path for _, path in _named_paths(settings) if path.is_file() and os.access(path, os.R_OK)]


def _content(path: Path | str) -> str:
    """Hash of a file's content ("" if it cannot be read); computed once in a process for an untouched file."""
    try:
        stat = os.stat(path)
        if time.time_ns() - stat.st_ctime_ns < 10**8:  # a second change within the clock's tick would not show
            return _hash.__wrapped__(str(path))
        # The change time cannot be set back by a user.
        return _hash(str(path), stat.st_dev, stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
    except OSError:
        return ""


@functools.lru_cache(maxsize=256)
def _hash(path: str, *stamp: int) -> str:
    return checksum(open(path, "rb"))


@functools.cache
def _code(loader: str) -> str:
    """Hash of this package's source, of the scaler's and of the loader's module."""
    digest = hashlib.sha256()
    scaler = importlib.util.find_spec("models.scaler")
    spec = importlib.util.find_spec(loader.rpartition(".")[0])
    for path in [*sorted(Path(__file__).parent.glob("*.py")), *(Path(str(s and s.origin)) for s in (scaler, spec))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
