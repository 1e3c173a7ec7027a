"""``python -m pipeline.cache``: how much the finished stages take, and removing them."""

from __future__ import annotations

import argparse
import re
import sys
import time
from pathlib import Path

from pipeline.cache.store import StageStore, StoredEntry

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}


def main(argv: list[str] | None = None) -> int:
    """Show the cache, or remove entries by age or all of them; never one that a running job holds."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.cache", description=main.__doc__)
    parser.add_argument("--folder", default="mlruns/stages", help="the cache folder (default: %(default)s)")
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--remove-older", metavar="AGE", type=_age, help="remove what was not used for AGE: 12h, 30d")
    group.add_argument("--remove-all", action="store_true", help="remove every entry")
    options = parser.parse_args(argv)
    if not Path(options.folder).is_dir():
        print(f"{options.folder}: nothing here (--folder says where finished stages are)")
        return 0
    store = StageStore(options.folder)
    stored = list(store.entries())
    if options.remove_all or options.remove_older is not None:
        _remove(store, stored, 0.0 if options.remove_all else options.remove_older)
    else:
        _show(stored, store.in_use(), options.folder)
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
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw])", text)
    if not match:
        raise argparse.ArgumentTypeError(f"'{text}' is not an age such as 12h, 30d or 2w")
    return float(match[1]) * _UNITS[match[2]]


def _size(count: float) -> str:
    for unit in ("B", "kB", "MB"):
        if count < 1000:
            return f"{count:.0f} {unit}"
        count /= 1000
    return f"{count:.1f} GB"


if __name__ == "__main__":
    sys.exit(main())
