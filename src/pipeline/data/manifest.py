"""What is known of a dataset that was loaded before, so that its fingerprint needs no reading of pixels.

An entry holds for as long as the files it was made from keep their size and time stamp, and for the code that made
it; loading itself always verifies the files' checksums.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import importlib.util
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from pipeline.data.atomic import write_text
from pipeline.data.dataset import Dataset
from pipeline.data.settings import Settings


def recall(settings: Settings, data_dir: Path) -> dict[str, Any] | None:
    """The entry of these settings if it is still true, else None."""
    try:
        entry = json.loads(_path(settings, data_dir).read_text())
        return entry if entry["files"] == _stamps([Path(item["path"]) for item in entry["files"]]) else None
    except (OSError, ValueError, KeyError, TypeError, ImportError):
        return None


def remember(dataset: Dataset, settings: Settings, data_dir: Path) -> None:
    """Note a loaded dataset; a data folder that cannot be written to is no reason to fail.

    A dataset that names no files is not noted: nothing would tell when it changes.
    """
    if not dataset.files:
        return
    with contextlib.suppress(OSError, ImportError):
        entry = {
            "name": dataset.name,
            "fingerprint": dataset.fingerprint,
            "n_train": len(dataset.X_train),
            "n_test": len(dataset.X_test),
            "n_features": dataset.n_features,
            "image_shape": list(dataset.image_shape),
            "class_names": list(dataset.class_names),
            "source": dataset.source,
            "notes": list(dataset.notes),
            "files": _stamps(dataset.files),
        }
        path = _path(settings, data_dir)
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, json.dumps(entry, indent=1))


def _path(settings: Settings, data_dir: Path) -> Path:
    # A relative path means another file in another working folder.
    values = {
        key: os.path.abspath(os.path.expanduser(value)) if isinstance(value, str) and os.path.exists(value) else value
        for key, value in settings.items()
    }
    text = json.dumps([_code(str(settings["loader"])), values], sort_keys=True, default=str)
    return data_dir / "manifests" / f"{settings['name']}-{hashlib.sha256(text.encode()).hexdigest()[:16]}.json"


def _stamps(files: Sequence[Path]) -> list[dict[str, Any]]:
    stamps = []
    for path in files:
        stat = path.stat()
        stamps.append({"path": str(path), "size": stat.st_size, "mtime_ns": stat.st_mtime_ns})
    return stamps


@functools.cache
def _code(loader: str) -> str:
    """Hash of this package's source and of the loader's module."""
    digest = hashlib.sha256()
    spec = importlib.util.find_spec(loader.rpartition(".")[0])
    for path in [*sorted(Path(__file__).parent.glob("*.py")), Path(str(spec and spec.origin))]:
        digest.update(path.read_bytes())
    return digest.hexdigest()
