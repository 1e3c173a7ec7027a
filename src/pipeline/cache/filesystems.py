"""What a shared file system does with file locks, read from the table of mounts.

Stages, runs and uploads are guarded by ``flock``. What is relied on: a lock taken on one machine is seen on the others,
and it goes with its holder. NFS, Lustre and others do that or not, depending on how they are mounted.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_TABLE = Path("/proc/self/mountinfo")
# An unlinked file that is still open keeps a name there (.nfs…) or is seen late by other machines.
_NETWORK = re.compile(r"nfs4?|cifs|smb3?|9p|ceph|lustre|gpfs|beegfs\w*|afs|ocfs2|gfs2|fuse\..*|fuse|virtiofs")


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
