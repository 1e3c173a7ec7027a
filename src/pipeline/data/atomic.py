"""Small files that are either there as a whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path


def write_text(path: Path, text: str) -> None:
    """Write under a temporary name, then rename."""
    draft = path.with_name(f".{path.name}.{os.getpid()}.new")
    try:
        draft.write_text(text)
        os.replace(draft, path)
    except BaseException:
        with contextlib.suppress(OSError):
            draft.unlink()
        raise
