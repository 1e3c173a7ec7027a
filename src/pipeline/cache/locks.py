"""Locks that the death of their holder frees, and that leave no file behind where that is safe."""

from __future__ import annotations

import errno
from functools import lru_cache
from pathlib import Path
from typing import Any

from filelock import FileLock

from pipeline.cache.filesystems import mount_of
from pipeline.errors import UserError


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
