"""``python -m pipeline.sync``: upload the runs that were computed while the tracking server was away."""

from __future__ import annotations

import argparse
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

from pipeline.errors import UserError


def main(argv: list[str] | None = None) -> int:
    """Upload every waiting run to the server it was meant for, or to another one; exit code 1 if some still wait."""
    parser = argparse.ArgumentParser(prog="python -m pipeline.sync", description=main.__doc__)
    parser.add_argument("--folder", default="mlruns", help="the tracking folder (default: %(default)s)")
    parser.add_argument("--uri", help="a server's address, if it is not the one the runs were meant for")
    parser.add_argument("--experiment", help="an experiment there, if it is not the one the runs were meant for")
    parser.add_argument("settings", nargs="*", metavar="tracking.uri=…", help="the same, as for pipeline.run")
    options = parser.parse_args(argv)
    for setting in options.settings:
        name, _, value = setting.partition("=")
        if name not in ("tracking.uri", "tracking.folder", "tracking.experiment") or not value:
            parser.error(f"{name}: give tracking.uri=…, tracking.folder=… or tracking.experiment=…")
        setattr(options, name.removeprefix("tracking."), value)
    logging.basicConfig(format="%(message)s", level=logging.WARNING)
    logging.getLogger("pipeline").setLevel(logging.INFO)
    try:
        return sync(Path(options.folder), options.uri, options.experiment)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def sync(folder: Path, uri: str | None = None, experiment: str | None = None) -> int:
    """Upload what waits in ``folder``; returns 0 when nothing waits any more."""
    from pipeline.tracking.bundle import RunBundle, pending, send_pending
    from pipeline.tracking.store import open_store, take_credentials

    folder = folder.absolute()
    waiting = pending(folder)
    if not waiting:
        print(f"{folder}: no run waits to be uploaded")
        return 0
    address = take_credentials(uri) if uri else None
    destinations = set()
    for place in waiting:
        bundle = RunBundle.read(place)
        meant = (bundle.uri, bundle.experiment)
        bundle.uri, bundle.experiment = address or bundle.uri, experiment or bundle.experiment
        if (bundle.uri, bundle.experiment) != meant:
            bundle.write()
        destinations.add((bundle.uri, bundle.experiment))
    failures = []
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


if __name__ == "__main__":
    sys.exit(main())
