"""``python -m pipeline.cache``: how much the finished stages take, and removing them."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path
from typing import Any

from pipeline.cache.store import StageStore, StoredEntry
from pipeline.command import Command, Setting

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _run(settings: dict[str, Any]) -> int:
    """Show the cache, or remove entries by age or all of them; never one that a running job holds."""
    folder = settings["cache.folder"]
    if not Path(folder).is_dir():
        print(f"{folder}: nothing here (cache.folder= says where finished stages are)")
        return 0
    store = StageStore(folder)
    stored = list(store.entries())
    if settings["remove"] is None:
        _show(stored, store.in_use(), folder)
    else:
        _remove(store, stored, settings["remove"])
    return 0


def _remove(store: StageStore, stored: list[StoredEntry], age: float) -> None:
    limit = time.time() - age
    chosen = [e for e in stored if age == 0 or e.last_used < limit]
    held = store.in_use()
    removed = [e for e in chosen if store.remove(e, held)]
    store.sweep_leftovers(age)
    print(f"removed {len(removed)} of {len(stored)} entries, {_size(sum(e.bytes for e in removed))}")
    if len(removed) < len(chosen):
        print(f"{len(chosen) - len(removed)} kept: a running job holds them")


def _show(stored: list[StoredEntry], held: set[tuple[str, str]], folder: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("stage", "entries", "in use", "size", "last used")
    for stage in sorted({e.stage for e in stored}):
        here = [e for e in stored if e.stage == stage]
        last = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.last_used for e in here)))
        busy = sum((e.stage, e.key) in held for e in here)
        table.add_row(stage, str(len(here)), str(busy), _size(sum(e.bytes for e in here)), last)
    print(f"{folder}: {len(stored)} entries, {_size(sum(e.bytes for e in stored))}")
    if stored:
        Console().print(table)


def _age(text: str) -> float:
    if text == "all":
        return 0.0
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if not match:
        raise ValueError(f"'{text}' is neither 'all' nor an age such as 12h, 30d or 2w")
    return float(match[1]) * _UNITS[match[2]]


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


main = Command(
    name="cache",
    about="How much the finished stages take; remove those no running job holds.",
    settings={
        "cache.folder": Setting("where finished stages are", "mlruns/stages"),
        "remove": Setting("remove what was not used for this long (12h, 30d, 2w), or all", read=_age),
    },
    examples={"": "show", "remove=30d": "what was not used for a month", "remove=all": ""},
    run=_run,
)

if __name__ == "__main__":
    sys.exit(main())
