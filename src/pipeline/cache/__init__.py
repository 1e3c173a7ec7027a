"""Finished stages on disk: same key, same result."""

from pipeline.cache.entry import DamagedEntry, Entry, Stored
from pipeline.cache.store import StageStore

__all__ = ["DamagedEntry", "Entry", "StageStore", "Stored"]
