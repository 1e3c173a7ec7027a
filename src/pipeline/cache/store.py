"""The store of finished stages: computed once, by one process, and loaded by everybody else."""

from __future__ import annotations

import json
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from filelock import FileLock, Timeout

from pipeline.cache import entry as entries
from pipeline.cache.entry import DamagedEntry, Entry
from pipeline.cache.locks import PassingLock
from pipeline.cache.shared import SharedFiles
from pipeline.paths import write_whole

log = logging.getLogger(__name__)

_RUNS, _USES = "run", ".uses.json"
_LAST = "evaluate"  # the stage whose key is the run's signature


@dataclass(frozen=True)
class StoredEntry:
    """An entry as the clean-up sees it: where it is, how large, when last used.

    ``freed`` are the bytes that go with it; the others are held by artifacts or other entries, too.
    """

    stage: str
    key: str
    folder: Path
    bytes: int
    freed: int
    last_used: float


class StageStore:
    """Entries under ``folder/<stage>/<key>/``, each guarded by a lock of its own while somebody is at it.

    With ``max_gb`` the oldest entries that no running job holds go when a run ends and the entries take more.
    """

    def __init__(self, folder: str | Path, max_gb: float | None = None):
        self.folder, self.max_gb = Path(folder), max_gb
        self.shared = SharedFiles(self.folder)

    @cached_property
    def identity(self) -> str:
        """A name that no other store has. Who holds a lock of this store knows that no other holder lives."""
        self.folder.mkdir(parents=True, exist_ok=True)
        file = self.folder / ".identity"
        with FileLock(self.folder / ".identity.lock"):
            if not file.is_file() or not file.read_text().strip():
                write_whole(file, uuid.uuid4().hex)
            return file.read_text().strip()

    def lock(self, stage: str, key: str) -> PassingLock:
        """The lock that guards one entry."""
        home = self.folder / stage
        home.mkdir(parents=True, exist_ok=True)
        return PassingLock(home / f"{key}.lock")

    @contextmanager
    def running(self, signature: str, uses: dict[str, str]) -> Iterator[None]:
        """Hold a run: one process at a time, and the entries in ``uses`` (stage → key) stay until it ends."""
        lock = self.lock(_RUNS, signature)
        self._acquire(lock, "the same job runs in another process; waiting for it")
        note = self.folder / _RUNS / f"{signature}{_USES}"
        try:
            note.write_text(json.dumps(uses))
            yield
        finally:
            with suppress(OSError):  # beside the last entry: what of the store the run was made of
                note.replace(self.folder / _LAST / signature / _USES)
            note.unlink(missing_ok=True)
            lock.release()
            if self.max_gb is not None:
                self.evict(self.max_gb)

    @contextmanager
    def if_free(self, signature: str) -> Iterator[bool]:
        """Whether no living process holds this run; if so, nobody starts it until the block is done."""
        try:
            with self.lock(_RUNS, signature).acquire(timeout=0):
                yield True
        except Timeout:
            yield False

    def is_running(self, signature: str) -> bool:
        """Whether a living process holds this run."""
        with self.if_free(signature) as free:
            return not free

    def get_or_compute(self, stage: str, key: str, compute: Callable[[], Entry]) -> tuple[Entry, bool]:
        """Return the entry and whether it was reused; concurrent callers compute it once and wait."""
        found = self.load(stage, key)
        if found is not None:
            return found, True
        lock = self.lock(stage, key)
        self._acquire(lock, f"{stage}: another job is computing this stage; waiting for it")
        try:
            found = self.load(stage, key)
            if found is not None:
                return found, True
            entry = compute()
            entries.write(entry, self.folder / stage / key)
            self.shared.take_in_all(self.folder / stage / key)
            return entry, False
        finally:
            lock.release()

    @staticmethod
    def _acquire(lock: FileLock, message: str) -> None:
        try:
            lock.acquire(timeout=1.0)
        except Timeout:
            log.info("  %s", message)
            lock.acquire(poll_interval=0.2)

    def has(self, stage: str, key: str) -> bool:
        """Whether there is an entry, sound or not."""
        return (self.folder / stage / key).is_dir()

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
        with suppress(OSError):  # removed meanwhile, or a store that may only be read: what was read is whole
            os.utime(folder)  # "last used", for cleaning up by age
        return entry

    def entries(self) -> Iterator[StoredEntry]:
        """All entries, stage by stage; one that goes while we look is left out."""
        for folder in sorted(self.folder.glob("*/*/")):
            if folder.name.startswith("."):
                continue
            try:
                files = [f.stat() for f in folder.iterdir() if f.is_file()]
                size = sum(state.st_size for state in files)
                freed = sum(state.st_size for state in files if state.st_nlink <= 2)  # its own and the pool's link
                yield StoredEntry(folder.parent.name, folder.name, folder, size, freed, folder.stat().st_mtime)
            except FileNotFoundError:
                continue

    def uses(self) -> dict[str, dict[str, str]]:
        """Signature of every finished run → stage → key of the entries it was made of."""
        found: dict[str, dict[str, str]] = {}
        for note in self.folder.glob(f"{_LAST}/*/{_USES}"):
            with suppress(OSError, ValueError):
                found[note.parent.name] = json.loads(note.read_text())
        return found

    def evict(self, max_gb: float) -> list[StoredEntry]:
        """Remove the entries not used for longest, until the rest takes at most ``max_gb``; returns what went.

        What an artifact holds, too, costs nothing and is not counted; what a running job holds stays.
        """
        stored = sorted(self.entries(), key=lambda entry: entry.last_used)
        excess, removed = sum(entry.freed for entry in stored) - max_gb * 1e9, list[StoredEntry]()
        if excess <= 0:
            return removed
        held = self.in_use()
        for entry in stored:
            if excess <= 0:
                break
            if entry.freed and self.remove(entry, held):
                removed.append(entry)
                excess -= entry.freed
        self.shared.sweep()
        return removed

    def in_use(self) -> set[tuple[str, str]]:
        """(stage, key) of every entry that a running job holds."""
        held: set[tuple[str, str]] = set()
        for note in (self.folder / _RUNS).glob(f"*{_USES}"):
            if not self.is_running(note.name.removesuffix(_USES)):
                continue  # left by a killed process
            try:
                held |= set(json.loads(note.read_text()).items())
            except (OSError, ValueError):
                continue
        return held

    def remove(self, stored: StoredEntry, in_use: set[tuple[str, str]] | None = None) -> bool:
        """Remove an entry unless a running job holds it; returns whether it went."""
        if (stored.stage, stored.key) in (self.in_use() if in_use is None else in_use):
            return False
        try:
            with self.lock(stored.stage, stored.key).acquire(timeout=0):
                # Renamed first: a reader finds the whole entry or none.
                gone = stored.folder.with_name(f".{stored.key}-removed-{uuid.uuid4().hex[:8]}")
                stored.folder.rename(gone)
                shutil.rmtree(gone)
        except (Timeout, FileNotFoundError):
            return False
        return True

    def sweep_leftovers(self, older_than: float = 3600.0) -> int:
        """Remove what killed processes left behind half-written; returns how many folders."""
        count = 0
        for folder in self.folder.glob("*/.*-*/"):
            key = folder.name[1:].split("-")[0]
            try:
                with self.lock(folder.parent.name, key).acquire(timeout=0):
                    if time.time() - folder.stat().st_mtime >= older_than:
                        shutil.rmtree(folder, ignore_errors=True)
                        count += 1
            except (Timeout, FileNotFoundError):
                continue
        for note in (self.folder / _RUNS).glob(f"*{_USES}"):
            if not self.is_running(note.name.removesuffix(_USES)):
                note.unlink(missing_ok=True)
        return count
