"""``python -m pipeline.sync``: upload the runs that were computed while the tracking server was away."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from pipeline.command import Command, Setting
from pipeline.errors import UserError


def _run(settings: dict[str, Any]) -> int:
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("pipeline").setLevel(logging.INFO)
    return sync(Path(settings["tracking.folder"]), settings["tracking.uri"], settings["tracking.experiment"])


def sync(folder: Path, uri: str | None = None, experiment: str | None = None) -> int:
    """Upload what waits in ``folder``; returns 0 when nothing waits any more."""
    from pipeline.tracking.bundle import DamagedBundle, RunBundle, pending, send_pending
    from pipeline.tracking.credentials import take_credentials
    from pipeline.tracking.store import open_store

    folder = folder.absolute()
    waiting = pending(folder)
    if not waiting:
        print(f"{folder}: no run waits to be uploaded")
        return 0
    address = take_credentials(uri) if uri else None
    destinations, failures = set(), list[str]()
    for place in waiting:
        try:
            bundle = RunBundle.read(place)
        except DamagedBundle as error:
            failures.append(str(error))
            continue
        meant = (bundle.uri, bundle.experiment)
        bundle.uri, bundle.experiment = address or bundle.uri, experiment or bundle.experiment
        if (bundle.uri, bundle.experiment) != meant:
            bundle.write()
        destinations.add((bundle.uri, bundle.experiment))
    for destination, name in sorted(destinations):
        remote = destination if destination.startswith("http") else None
        try:
            send_pending(open_store(SimpleNamespace(uri=remote, folder=str(folder), experiment=name)))
        except UserError as error:
            failures.append(str(error))
    left = len(pending(folder))
    print(f"{len(waiting) - left} uploaded, {left} waiting" + (f" in {folder / 'pending'}" if left else ""))
    for reason in failures:
        print(f"error: {reason}", file=sys.stderr)
    return 1 if left else 0


main = Command(
    name="sync",
    about="Upload every waiting run to the server it was meant for, or to another one; exit code 1 if some still wait.",
    settings={
        "tracking.folder": Setting("the tracking folder", "mlruns"),
        "tracking.uri": Setting("a server's address, if it is not the one the runs were meant for"),
        "tracking.experiment": Setting("an experiment there, if it is not the one the runs were meant for"),
    },
    examples={"": "", "tracking.uri=http://127.0.0.1:5000": "to this server"},
    run=_run,
)

if __name__ == "__main__":
    sys.exit(main())
