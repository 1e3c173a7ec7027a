"""``python -m pipeline.cache``: how much the finished stages take, what each sweep holds of them, and removing them."""

from __future__ import annotations

import re
import sqlite3
import sys
import time
from collections import defaultdict
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

from pipeline.cache.store import StageStore, StoredEntry
from pipeline.command import Command, Setting
from pipeline.paths import DATABASE, connect

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def _run(settings: dict[str, Any]) -> int:
    """Show the cache, or remove entries by age or all of them; never one that a running job holds."""
    folder = settings["cache.folder"]
    if not Path(folder).is_dir():
        print(f"{folder}: nothing here (cache.folder= says where finished stages are)")
        return 0
    store = StageStore(folder)
    stored = list(store.entries())
    if settings["remove"] is not None:
        _remove(store, stored, settings["remove"])
    elif settings["cache.max_gb"] is not None:
        _say_removed(store.evict(settings["cache.max_gb"]), stored)
    else:
        _show(stored, store.in_use(), folder)
        _show_sweeps(stored, store.uses(), _sweeps(Path(folder).parent / DATABASE))
    return 0


def _remove(store: StageStore, stored: list[StoredEntry], age: float) -> None:
    limit = time.time() - age
    chosen = [e for e in stored if age == 0 or e.last_used < limit]
    held = store.in_use()
    removed = [e for e in chosen if store.remove(e, held)]
    store.sweep_leftovers(age)
    store.shared.sweep()
    _say_removed(removed, stored)
    if len(removed) < len(chosen):
        print(f"{len(chosen) - len(removed)} kept: a running job holds them")


def _show(stored: list[StoredEntry], held: set[tuple[str, str]], folder: str) -> None:
    from rich.console import Console
    from rich.table import Table

    table = Table("stage", "entries", "in use", "size", "may go", "last used")
    for stage in sorted({e.stage for e in stored}):
        here = [e for e in stored if e.stage == stage]
        last = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(e.last_used for e in here)))
        busy = sum((e.stage, e.key) in held for e in here)
        free = sum(e.freed for e in here if (e.stage, e.key) not in held)
        table.add_row(stage, str(len(here)), str(busy), _size(sum(e.bytes for e in here)), _size(free), last)
    print(f"{folder}: {len(stored)} entries, {_size(sum(e.bytes for e in stored))}")
    if stored:
        Console().print(table)


def _say_removed(removed: list[StoredEntry], stored: list[StoredEntry]) -> None:
    print(f"removed {len(removed)} of {len(stored)} entries, {_size(sum(e.freed for e in removed))}")


def _show_sweeps(stored: list[StoredEntry], uses: dict[str, dict[str, str]], sweeps: dict[str, set[str]]) -> None:
    """What each sweep's runs were made of: removing it costs a later run of theirs the time to compute it again."""
    from rich.console import Console
    from rich.table import Table

    by_key = {(e.stage, e.key): e for e in stored}
    holders: dict[tuple[str, str], set[str]] = defaultdict(set)
    for sweep, signatures in sweeps.items():
        for signature in signatures & set(uses):
            for at in uses[signature].items():
                holders[at].add(sweep)
    table = Table("sweep", "runs", "entries", "size", "held by no other")
    for sweep, signatures in sorted(sweeps.items()):
        held = [by_key[at] for at, names in holders.items() if sweep in names and at in by_key]
        alone = [e for e in held if holders[e.stage, e.key] == {sweep}]
        sizes = (_size(sum(e.bytes for e in part)) for part in (held, alone))
        table.add_row(sweep, str(len(signatures)), str(len(held)), *sizes)
    rest = [e for at, e in by_key.items() if at not in holders]
    if sweeps:
        table.add_row("of no sweep", "", str(len(rest)), _size(sum(e.bytes for e in rest)), "")
        Console().print(table)


def _sweeps(database: Path) -> dict[str, set[str]]:
    """Sweep → signatures of its runs, read without MLflow, whose import takes longer than to look."""
    found: dict[str, set[str]] = defaultdict(set)
    if not database.is_file():
        return found
    query = (
        "select s.key, r.value from tags s join tags r on r.run_uuid = s.run_uuid "
        "join runs u on u.run_uuid = s.run_uuid where s.key like 'sweep.%' "
        "and r.key = 'run_signature' and r.value not like 'summary-%' and u.lifecycle_stage = 'active'"
    )
    with suppress(sqlite3.Error), closing(connect(database)) as connection:
        for tag, signature in connection.execute(query):
            found[tag.removeprefix("sweep.")].add(signature)
    return found


def _gigabytes(text: str) -> float:
    with suppress(ValueError):
        if (size := float(text)) >= 0:
            return size
    raise ValueError(f"'{text}' is not a number of gigabytes")


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
        "cache.max_gb": Setting("remove what was not used for longest until the rest takes this much", read=_gigabytes),
        "remove": Setting("remove what was not used for this long (12h, 30d, 2w), or all", read=_age),
    },
    examples={"": "show", "remove=30d": "what was not used for a month", "cache.max_gb=5": "", "remove=all": ""},
    run=_run,
)

if __name__ == "__main__":
    sys.exit(main())
