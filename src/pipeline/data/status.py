"""What the list of datasets shows of one."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Status:
    """Sizes (train, test) where known, where it comes from, whether and where it is present."""

    sizes: tuple[int, int] | None
    origin: str
    present: bool
    where: str
