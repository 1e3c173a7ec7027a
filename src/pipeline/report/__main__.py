"""``python -m pipeline.report``: tables and figures from the tracked runs, beside the paper's numbers."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.command import Command, Setting, tracking_settings, truth
from pipeline.errors import UserError
from pipeline.paths import DATABASE

if TYPE_CHECKING:
    from pipeline.tracking.store import TrackingStore

_WHAT_TO_RUN = "run some, for example: python -m pipeline.run -m experiment=paper_tables dataset=mnist_1v7"


def _run(settings: dict[str, Any]) -> int:
    if settings["stored"]:
        from pipeline.report.docs import render

        print(f"docs: {render(settings['docs'] or Path('docs/results.md'))}")
        return 0
    sweep, datasets = settings["sweep"], settings["dataset"]
    name = settings["name"] or sweep or "-".join(datasets) or "all"
    if sweep and not re.fullmatch(r"[\w.-]+", sweep):
        raise UserError(f"sweep: '{sweep}' is not the id of a sweep; the tag 'sweep' of the runs shows them")
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise UserError(f"name: '{name}' cannot name a folder; use letters, digits, - and _")
    store = _open(settings)

    # Slow imports (matplotlib, scipy) only when there is something to report.
    from pipeline.report.tracked import Reader

    reader = Reader(store)
    runs = reader.runs(sweep, datasets)
    if not runs:
        wanted = [f"sweep {sweep}"] if sweep else []
        wanted += [f"dataset {' or '.join(datasets)}"] if datasets else []
        known = sorted({run.dataset for run in reader.runs()}) if wanted else []
        hint = f"there are runs of {', '.join(known)}" if known else _WHAT_TO_RUN
        raise UserError(f"no finished runs{' of ' + ' and '.join(wanted) if wanted else ''} are tracked; {hint}")

    from pipeline.report.build import build_report, publish, write

    folder = settings["output"] / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"output: cannot write to {folder} ({error.strerror})") from error
    report = build_report(reader, runs, name, folder, settings["figures"])
    write(report)
    print(f"{len(runs)} runs, {len(report.parts)} tables: {folder / 'index.html'}")
    for line in report.failed_checks:
        print(f"  warning: {line}")
    if settings["docs"]:
        from pipeline.report.docs import write_docs

        print(f"docs: {write_docs(report, reader, settings['docs'])}")
    if settings["log"] and store.read_only:
        print("not kept in MLflow: the store may only be read")
    elif settings["log"]:
        print(f"kept in MLflow as run {publish(report, store)[:8]} (tag role=report)")
    return 0


def _open(settings: dict[str, Any]) -> TrackingStore:
    """The store, without making one where there is none."""
    from omegaconf import OmegaConf

    from pipeline.tracking.store import open_to_read

    tracking = {name: settings[f"tracking.{name}"] for name in ("uri", "folder", "experiment")}
    if not tracking["uri"] and not Path(tracking["folder"], DATABASE).is_file():
        raise UserError(f"no runs are tracked in {tracking['folder']}/ (tracking.folder, tracking.uri); {_WHAT_TO_RUN}")
    return open_to_read(OmegaConf.create(tracking))


main = Command(
    name="report",
    about="Make reports/NAME/index.html and tables from the tracked runs, beside the paper's numbers.",
    settings={
        **tracking_settings(),
        "sweep": Setting("only the runs of one sweep, by its id"),
        "dataset": Setting("only these datasets: a,b", [], lambda text: text.split(",")),
        "name": Setting("folder below output (default: the sweep, the dataset, or 'all')"),
        "output": Setting("where reports go", Path("reports"), Path),
        "docs": Setting("also write this file (docs/results.md) and its figures/", read=Path),
        "stored": Setting("write docs anew from its stored numbers (results.json), without the runs", False, truth),
        "figures": Setting("auto, off, or a module of yours with more figures", "auto"),
        "log": Setting("keep the report in MLflow, too", True, truth),
    },
    examples={
        "": "everything that is tracked",
        "dataset=mnist_1v7,mnist_8v9": "two datasets",
        "tracking.uri=http://127.0.0.1:5000": "from a server",
    },
    run=_run,
)

if __name__ == "__main__":
    sys.exit(main())
