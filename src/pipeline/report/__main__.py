"""``python -m pipeline.report``: tables and figures from the tracked runs, beside the paper's numbers."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

from pipeline.errors import UserError

_WHAT_TO_RUN = "run some, for example: python -m pipeline.run -m experiment=paper_tables dataset=mnist_1v7"


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the command line; what the user can mend is one line, exit code 1."""
    options = _parser().parse_args(arguments)
    try:
        _report(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.report",
        description="Make reports/NAME/index.html and tables from the tracked runs, beside the paper's numbers.",
    )
    parser.add_argument("--name", help="folder below --output (default: the sweep, the dataset, or 'all')")
    parser.add_argument("--tracking-uri", metavar="URI", help="an MLflow server, http://…")
    parser.add_argument("--folder", type=Path, default=Path("mlruns"), help="local tracking folder (default: mlruns)")
    parser.add_argument("--experiment", default="advsvm", help="name of the MLflow experiment (default: advsvm)")
    parser.add_argument("--sweep", metavar="ID", help="only the runs of one sweep")
    parser.add_argument("--dataset", action="append", default=[], help="only this dataset (may be repeated)")
    parser.add_argument("--output", type=Path, default=Path("reports"), help="where reports go (default: reports)")
    parser.add_argument("--docs", type=Path, metavar="FILE", help="also write FILE (docs/results.md) and its figures/")
    parser.add_argument("--no-log", action="store_true", help="do not keep the report in MLflow")
    return parser


def _report(options: argparse.Namespace) -> None:
    name = options.name or options.sweep or "-".join(options.dataset) or "all"
    if options.sweep and not re.fullmatch(r"[\w.-]+", options.sweep):
        raise UserError(f"--sweep: '{options.sweep}' is no sweep's id; the tag 'sweep' of the runs shows them")
    if not re.fullmatch(r"[\w.-]+", name) or name.startswith("."):
        raise UserError(f"--name: '{name}' is no folder name; use letters, digits, - and _")
    store = _open(options)

    # Slow imports (matplotlib, scipy) only when there is something to report.
    from pipeline.report.tracked import Reader

    reader = Reader(store)
    runs = reader.runs(options.sweep, options.dataset)
    if not runs:
        wanted = [f"sweep {options.sweep}"] if options.sweep else []
        wanted += [f"dataset {' or '.join(options.dataset)}"] if options.dataset else []
        known = sorted({run.dataset for run in reader.runs()}) if wanted else []
        hint = f"there are runs of {', '.join(known)}" if known else _WHAT_TO_RUN
        raise UserError(f"no finished runs{' of ' + ' and '.join(wanted) if wanted else ''} are tracked; {hint}")

    from pipeline.report.build import build, write
    from pipeline.report.publish import publish

    folder = options.output / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"--output: cannot write to {folder} ({error.strerror})") from error
    report = build(reader, runs, name, folder)
    write(report)
    print(f"{len(runs)} runs, {len(report.parts)} tables: {folder / 'index.html'}")
    for line in report.failed_checks:
        print(f"  warning: {line}")
    if options.docs:
        from pipeline.report.docs import write_docs

        print(f"docs: {write_docs(report, options.docs)}")
    if not options.no_log:
        print(f"kept in MLflow as run {publish(report, store)[:8]} (tag role=report)")


def _open(options: argparse.Namespace):
    """The store, without making one where there is none."""
    from omegaconf import OmegaConf

    from pipeline.tracking.store import open_store

    if not options.tracking_uri and not (options.folder / "mlflow.db").is_file():
        raise UserError(f"no runs are tracked in {options.folder}/ (--folder, --tracking-uri); {_WHAT_TO_RUN}")
    settings = {"uri": options.tracking_uri, "folder": str(options.folder), "experiment": options.experiment}
    return open_store(OmegaConf.create(settings))


if __name__ == "__main__":
    main()
