"""Files of equal content, kept once on disk: stage and artifact of the same model, one model under several attacks.

A pool of hard links by content. A file is linked there when it is written; a second one with the same bytes becomes
another link to the first. A pool's file that has no other link left is held by nobody and goes with the next clean-up.
Where links cannot be made (another disk, a file system without them) the copies stay, and nothing else changes.
"""

from __future__ import annotations

import os
import uuid
from contextlib import suppress
from pathlib import Path

from pipeline.cache.entry import file_digest

POOL = ".shared"
_SMALL = 16_384  # bytes; a link takes a directory entry, too


class SharedFiles:
    """The pool in a folder of finished stages."""

    def __init__(self, stages: Path):
        self.folder = stages / POOL

    def take_in(self, path: Path) -> None:
        """Keep this file's content once; its name and what it holds stay the same."""
        with suppress(OSError):
            if path.is_symlink() or path.stat().st_size < _SMALL:
                return
            digest = file_digest(path)
            known = self.folder / digest
            # A link shares damage as well: what is in the pool is looked at before anything is made of it.
            if known.exists() and not known.samefile(path) and file_digest(known) == digest:
                _link(known, path)
            elif not known.exists() or not known.samefile(path):
                self.folder.mkdir(parents=True, exist_ok=True)
                _link(path, known)

    def take_in_all(self, folder: Path) -> None:
        """The same for all files below a folder."""
        for path in sorted(folder.rglob("*")):
            if path.is_file():
                self.take_in(path)

    def sweep(self) -> int:
        """Remove what no entry and no artifact holds any more; returns how many bytes went."""
        freed = 0
        for path in self.folder.glob("*"):
            with suppress(OSError):
                state = path.stat()
                if state.st_nlink == 1:
                    path.unlink()
                    freed += state.st_size
        return freed


def _link(source: Path, target: Path) -> None:
    """Make ``target`` a link to ``source``, in one step, whatever was there."""
    temporary = target.with_name(f".{target.name}-{uuid.uuid4().hex[:8]}")
    os.link(source, temporary)
    try:
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)  # replacing a link by one to the same file leaves both
