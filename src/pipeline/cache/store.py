"""The store of finished stages: computed once, by one process, and loaded by everybody else."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.cache import entry as entries
from pipeline.cache.entry import DamagedEntry, Entry

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoredEntry:
    """An entry as the clean-up sees it: where it is, how large, when last used."""

    stage: str
    key: str
    folder: Path
    bytes: int
    last_used: float


class StageStore:
    """Entries under ``folder/<stage>/<key>/``, each with a lock file of its own.

    The lock is a lock on an open file, so the death of its holder (kill -9 included) frees it.
    """

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)

    def lock(self, stage: str, key: str) -> FileLock:
        """The lock that guards one entry."""
        home = self.folder / stage
        home.mkdir(parents=True, exist_ok=True)
        return FileLock(home / f"{key}.lock")

    def get_or_compute(self, stage: str, key: str, compute: Callable[[], Entry]) -> tuple[Entry, bool]:
        """Return the entry and whether it was reused; concurrent callers compute it once and wait."""
        found = self.load(stage, key)
        if found is not None:
            return found, True
        lock = self.lock(stage, key)
        try:
            lock.acquire(timeout=1.0)
        except Timeout:
            log.info("%s: another job is computing this stage; waiting for it", stage)
            lock.acquire()
        try:
            found = self.load(stage, key)
            if found is not None:
                return found, True
            entry = compute()
            entries.write(entry, self.folder / stage / key)
            return entry, False
        finally:
            lock.release()

    def load(self, stage: str, key: str) -> Entry | None:
        """A verified entry, or None when it is absent or damaged (then it will be rebuilt)."""
        folder = self.folder / stage / key
        if not folder.is_dir():
            return None
        try:
            entry = entries.read(folder)
        except DamagedEntry as damage:
            if folder.is_dir():  # not merely removed by a clean-up while we read
                log.warning("%s: a stored result is damaged and is computed again (%s)", stage, damage)
            return None
        os.utime(folder)  # "last used", for cleaning up by age
        return entry

    def entries(self) -> Iterator[StoredEntry]:
        """All entries, stage by stage."""
        for folder in sorted(self.folder.glob("*/*/")):
            if folder.name.startswith("."):
                continue
            size = sum(f.stat().st_size for f in folder.iterdir() if f.is_file())
            yield StoredEntry(folder.parent.name, folder.name, folder, size, folder.stat().st_mtime)

    def remove(self, stored: StoredEntry) -> bool:
        """Remove an entry unless a running job holds it; returns whether it went."""
        try:
            with self.lock(stored.stage, stored.key).acquire(timeout=0):
                shutil.rmtree(stored.folder)
        except (Timeout, FileNotFoundError):
            return False
        return True

    def sweep_leftovers(self, older_than: float = 3600.0) -> int:
        """Remove temporary folders that a killed process left behind; returns how many."""
        count = 0
        for folder in self.folder.glob("*/.*-*/"):
            if time.time() - folder.stat().st_mtime > older_than:
                shutil.rmtree(folder, ignore_errors=True)
                count += 1
        return count
