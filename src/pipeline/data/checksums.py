"""Checksums of files, read in pieces so that memory stays small."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path
from typing import IO, cast

_PIECE = 1 << 20


def open_plain(path: Path) -> IO[bytes]:
    """Open a file for reading; a ``.gz`` is unpacked on the way."""
    return cast("IO[bytes]", gzip.open(path, "rb")) if path.suffix == ".gz" else path.open("rb")


def checksum(path: Path, algorithm: str) -> str:
    """Hexadecimal checksum of a file's content (of the unpacked content for a ``.gz`` opened with `open_plain`)."""
    return _digest(path.open("rb"), algorithm)


def plain_checksum(path: Path, algorithm: str) -> str:
    """Checksum of the unpacked content of a plain or ``.gz`` file."""
    return _digest(open_plain(path), algorithm)


def matches(path: Path, expected: str, *, plain: bool = False) -> bool:
    """Whether a file has the checksum written ``algorithm:hexdigits``."""
    algorithm, digits = expected.split(":")
    return (plain_checksum if plain else checksum)(path, algorithm) == digits


def _digest(stream: IO[bytes], algorithm: str) -> str:
    # These checksums identify published files; md5 must work where it is barred for security.
    digest = hashlib.new(algorithm, usedforsecurity=False)
    with stream:
        while piece := stream.read(_PIECE):
            digest.update(piece)
    return digest.hexdigest()
