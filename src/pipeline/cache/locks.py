"""A lock that leaves no file behind."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from filelock import FileLock


class PassingLock(FileLock):
    """A lock on an open file, so that the death of its holder (kill -9 included) frees it.

    Its file goes while it is still held. Who waited for that file gets it, sees that it has no name any more, and
    tries again: filelock does so since version 4, hence the requirement.
    """

    def release(self, force: bool = False) -> Any:
        """Remove the file, then let go."""
        if self.is_locked and (force or self.lock_counter == 1):
            Path(self.lock_file).unlink(missing_ok=True)
        return super().release(force)
