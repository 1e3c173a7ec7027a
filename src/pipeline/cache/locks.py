"""Locks that the death of their holder frees, and what a shared file system does with them.

Stages, runs and uploads are guarded by ``flock``. What is relied on: a lock taken on one machine is seen on the others,
and it goes with its holder. NFS, Lustre and others do that or not, depending on how they are mounted: that is read from
the table of mounts.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.errors import UserError

_TABLE = Path("/proc/self/mountinfo")
# An unlinked file that is still open keeps a name there (.nfs…) or is seen late by other machines.
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|9p|ceph|lustre|gpfs|beegfs\w*|afs|ocfs2|gfs2|fuse\..*|fuse|virtiofs")


class PassingLock(FileLock):
    """A lock on an open file, so that the death of its holder (kill -9 included) frees it.

    Its file goes while it is still held. Who waited for that file gets it, sees that it has no name any more, and
    tries again: filelock does so since version 4, hence the requirement. On a network file system the file stays: NFS
    renames what is removed while it is open, and a waiter would not see that it has gone.
    """

    def __init__(self, lock_file: str | Path):
        # A file system without flock is refused: a marker file in its place would outlive a killed holder.
        super().__init__(str(lock_file), fallback_to_soft=False)

    def acquire(self, *args: Any, **kwargs: Any) -> Any:
        """As filelock does; :class:`UserError` where the file system has no locks."""
        try:
            return super().acquire(*args, **kwargs)
        except OSError as error:
            if error.errno in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP):
                folder = Path(self.lock_file).parent
                way = "choose another tracking.folder or cache.folder"
                raise UserError(f"{folder}: no file locks there; {way}") from error
            raise

    def release(self, force: bool = False) -> Any:
        """Remove the file, then let go."""
        if self.is_locked and (force or self.lock_counter == 1) and not _is_shared(Path(self.lock_file).parent):
            Path(self.lock_file).unlink(missing_ok=True)
        return super().release(force)


@lru_cache(maxsize=64)
def _is_shared(folder: Path) -> bool:
    mount = mount_of(folder)
    return mount is not None and mount.is_network


def check_locks_are_shared(setting: str, folder: str | Path) -> None:
    """Raise :class:`UserError` when jobs on other machines would not see the locks in a folder."""
    mount = mount_of(folder)
    reason = mount.why_locks_stay_here if mount else None
    if mount and reason:
        raise UserError(
            f"{setting}={folder}: file locks on this {mount.kind} are not seen by other machines ({reason}); "
            "choose another folder, or mount it with locks"
        )


def check_reads_are_fresh(setting: str, folder: str | Path) -> None:
    """Raise :class:`UserError` where other machines would read late what was written to a database in a folder.

    On FUSE the kernel keeps pages and file times for a second or more, whatever locks SQLite takes. Two mounts of
    GlusterFS showed what that costs: who had waited for another machine's job took its finished run for a dead one.
    """
    mount = mount_of(folder)
    if mount and (mount.kind == "fuse" or mount.kind.startswith("fuse.")):
        raise UserError(
            f"{setting}={folder}: jobs on other machines would read the database on this {mount.kind} late; "
            "use tracking=server, or another file system"
        )


@dataclass(frozen=True)
class Mount:
    """A mounted file system: its kind as the kernel calls it, and its options."""

    kind: str
    options: frozenset[str]

    @property
    def is_network(self) -> bool:
        """Whether other machines may see the same files."""
        return _NETWORK.fullmatch(self.kind) is not None

    @property
    def why_locks_stay_here(self) -> str | None:
        """Why another machine would not see our locks; None when it does, or when nothing is known against it."""
        if self.kind in ("nfs", "nfs4"):
            bad = self.options & {"nolock", "local_lock=all", "local_lock=flock"}
            return f"it is mounted with {min(bad)}" if bad else None
        if self.kind == "lustre":
            return None if "flock" in self.options else "it is mounted without the option flock"
        return "sshfs keeps locks to itself" if self.kind == "fuse.sshfs" else None


def mount_of(folder: str | Path) -> Mount | None:
    """The mount that holds a folder, or the nearest one above it that exists; None where there is no such table."""
    path = Path(folder).absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    try:
        device = os.stat(path).st_dev
        lines = _mounts()
    except OSError:
        return None
    return find(lines, os.major(device), os.minor(device))


def find(lines: Iterable[str], major: int, minor: int) -> Mount | None:
    """The mount of a device in the lines of ``mountinfo``."""
    for line in lines:
        before, _, after = line.partition(" - ")
        if before.split()[2:3] == [f"{major}:{minor}"] and len(after.split()) >= 3:
            kind, _, options = after.split()[:3]
            return Mount(kind, frozenset(options.split(",")) | frozenset(before.split()[5].split(",")))
    return None


@lru_cache(maxsize=1)
def _mounts() -> tuple[str, ...]:
    return tuple(_TABLE.read_text().splitlines())
