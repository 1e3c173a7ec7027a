"""Datasets of OpenML by name or number, and ARFF files: one column with the class, all others numbers.

OpenML states an md5 for every file; the file and its description are kept in the data folder, so that the second
loading needs no network.
"""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

from filelock import FileLock

from pipeline.data.dataset import Dataset
from pipeline.data.fetching import Archive, Progress, SourceError, open_plain, retrieve, writing_to
from pipeline.data.formats import bounded_lines, from_frame, load_file, readable
from pipeline.data.settings import Settings, first_line
from pipeline.data.tables import UserRows, from_tables, max_bytes
from pipeline.errors import UserError
from pipeline.paths import write_whole

_DESCRIPTION_BYTES = 4 << 20


def load(settings: Settings, data_dir: Path, progress: Progress) -> Dataset:
    """``dataset.path`` names an ARFF file; else ``dataset.id`` is the name or number of a dataset of OpenML."""
    if settings.get("path"):
        return load_file(settings, read_arff, "FILE.arff")
    if settings.get("id") is None:
        raise UserError("dataset.id: name a dataset of OpenML, such as credit-g or 31, or set dataset.path=FILE.arff")
    file, description = _obtain(str(settings["id"]), settings, data_dir, progress)
    label = settings.get("label") or description.get("default_target_attribute")
    table = read_arff(file, {**settings, "label": label}, "id")
    return from_tables(settings, table, None, (file,))


def _obtain(name: str, settings: Settings, data_dir: Path, progress: Progress) -> tuple[Path, dict[str, Any]]:
    """The ARFF file of a dataset and its description, from the data folder or fetched into it."""
    version = settings.get("version")
    home = data_dir / "openml" / quote(f"{name}-v{version}" if version else name, safe="")
    with writing_to(data_dir):
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            known = home / "description.json"
            try:
                description = json.loads(known.read_text())
            except (OSError, ValueError):
                description = _describe(name, version, settings, home, progress)
            archive = Archive(
                str(description["url"]), f"md5:{description['md5_checksum']}", int(max_bytes(settings)), lambda *_: None
            )
            file = _fetched(archive, name, home, "data.arff", progress)
            write_whole(known, json.dumps(description))
    return file, description


def _describe(name: str, version: Any, settings: Settings, home: Path, progress: Progress) -> dict[str, Any]:
    server = str(settings["server"]).rstrip("/")
    number = name
    if not name.isdigit():
        chosen = f"data_version/{version}" if version else "status/active"
        found = _ask(f"{server}/data/list/data_name/{quote(name, safe='')}/limit/1/{chosen}", name, home, progress)
        try:
            number = str(found["data"]["dataset"][0]["did"])
        except (KeyError, IndexError, TypeError) as error:
            raise UserError(f"dataset.id: OpenML has no dataset {name!r}") from error
    answer = _ask(f"{server}/data/{number}", name, home, progress)
    try:
        description = {key: answer["data_set_description"].get(key) for key in ("url", "default_target_attribute")}
        description["md5_checksum"] = answer["data_set_description"]["md5_checksum"]
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"dataset.id: OpenML has no dataset {name!r}") from error
    if not str(description["url"]).startswith(("https://", server.split("//")[0])):
        raise UserError(f"dataset.id: OpenML names no web address for {name!r}")
    return description


def _ask(address: str, name: str, home: Path, progress: Progress) -> dict[str, Any]:
    archive = Archive(address, "", _DESCRIPTION_BYTES, lambda *_: None)
    file = _fetched(archive, name, home, "answer.json", progress)
    try:
        return json.loads(file.read_text())
    except ValueError as error:
        raise UserError(f"dataset.id: OpenML's answer about {name!r} is not JSON") from error
    finally:
        file.unlink()


def _fetched(archive: Archive, name: str, home: Path, file: str, progress: Progress) -> Path:
    try:
        return retrieve(archive, home, file, progress)
    except SourceError as error:
        reason = f"is not in {home.parent} and could not be fetched: {error}"
        raise UserError(f"dataset.id: {name!r} {reason}; or set dataset.path to its ARFF file") from error


def read_arff(path: Path, settings: Settings, key: str) -> UserRows:
    """Rows and labels of an ARFF file, plain or packed."""
    import pandas as pd
    from scipy.io import arff

    with readable(path, key, "a dense ARFF file of numbers and classes"), open_plain(path) as stream:
        text = b"".join(bounded_lines(stream, max_bytes(settings))).decode("utf-8", errors="replace")
        try:
            values, attributes = arff.loadarff(io.StringIO(text))
        except Exception as error:  # whatever a parser of another's format trips over, the file is at fault
            raise ValueError(first_line(error)) from error
        frame = pd.DataFrame(values)
    for name, kind in zip(attributes.names(), attributes.types(), strict=True):
        if kind == "nominal":
            frame[name] = frame[name].str.decode("utf-8")
    return from_frame(frame, path, {**settings, "label": settings.get("label") or "class"}, key)
