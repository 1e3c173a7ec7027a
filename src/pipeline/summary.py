"""The end of a sweep: its table on the terminal and in one summary run, failures, and what to do next."""

from __future__ import annotations

import io
import shlex
import shutil
import statistics
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import experiments, figures
from pipeline.cache import StageStore
from pipeline.job import Outcome, stages_folder
from pipeline.progress import console
from pipeline.sweep import Sweep, outcomes
from pipeline.tables import Table, caption, make_tables, markdown, rich_view, row_suffixes, varying
from pipeline.tracking import runs
from pipeline.tracking.store import TrackingStore, open_store
from pipeline.tracking.view import arrange_sweep, chart_link, table_link

if TYPE_CHECKING:
    from rich.console import Console

_UI = "http://127.0.0.1:5000"


def close(sweep: Sweep, arguments: list[str]) -> int:
    """Show and log the summary of a sweep; the exit code is 1 if a job failed."""
    results = outcomes(sweep)
    tables = make_tables(results, [varying(o) for o in row_suffixes(sweep)], sweep.cfg.evaluation.l2_cap)
    command = "python -m pipeline.run " + shlex.join(arguments)
    _print(sweep, results, tables, command)
    store = open_store(sweep.cfg.tracking)
    runs.bury_abandoned(store, sweep.id, StageStore(stages_folder(sweep.cfg)))
    _print_links(sweep, store)
    _log(sweep, results, tables, store, command)
    return 0 if all(outcome.ok for outcome in results) else 1


def _print(sweep: Sweep, results: list[Outcome], tables: dict[str, Table], command: str) -> None:
    out = console()
    _print_tables(out, sweep, results, tables)
    count = {status: sum(o.status == status for o in results) for status in ("finished", "reused", "pending")}
    failures = [o for o in results if not o.ok]
    words = [f"{n} {status}" for status, n in count.items() if n] + ([f"{len(failures)} failed"] if failures else [])
    out.print(f"{len(results)} jobs: {', '.join(words)}", highlight=False)
    for outcome in failures:
        name = (
            " · ".join(str(outcome.labels[k]) for k in ("model", "attack", "dataset"))
            + f" · seed {outcome.labels['seed']}"
        )
        out.print(f"  failed: {name}: {outcome.reason}", style="red", markup=False, soft_wrap=True)
    warned = sorted({i for o in results for i, status in o.checks.items() if status == "fail"})
    if warned:
        out.print(
            f"  failed checks: {', '.join(warned)} (see check.* tags and checks.json of the runs)", style="yellow"
        )
    if failures:
        out.print(
            f"  the same command computes what is missing: {command}", markup=False, highlight=False, soft_wrap=True
        )
    if count["pending"]:
        out.print("  pending runs are computed and kept: python -m pipeline.sync uploads them", highlight=False)


def _print_tables(out: Console, sweep: Sweep, results: list[Outcome], tables: dict[str, Table]) -> None:
    for dataset, table in tables.items():
        words = caption(dataset, results, sweep.cfg.evaluation.certified_radius)
        out.print(f"\n{words}", style="bold", highlight=False)
        out.print(rich_view(table))


def _picture(sweep: Sweep, results: list[Outcome], tables: dict[str, Table]) -> str:
    """What the terminal shows, as SVG."""
    from rich.console import Console

    recorder = Console(record=True, width=100, file=io.StringIO())
    _print_tables(recorder, sweep, results, tables)
    return recorder.export_svg(title=sweep.id)


def _print_links(sweep: Sweep, store: TrackingStore) -> None:
    out = console()
    if store.is_server:
        base = store.uri.rstrip("/")
    else:
        base = _UI
        out.print("open the results with: make ui, then", highlight=False)
    for link in (table_link(base, store.experiment_id, sweep.id), chart_link(base, store.experiment_id)):
        out.print(f"  {_masked(link)}", markup=False, highlight=False, soft_wrap=True)


def _masked(link: str) -> str:
    from pipeline.tracking.store import masked

    return masked(link)


def _log(sweep: Sweep, results: list[Outcome], tables: dict[str, Table], store: TrackingStore, command: str) -> None:
    """One summary run per sweep: a resumed sweep updates it, so that a table is never there twice."""
    client = store.client
    found = client.search_runs(
        [store.experiment_id], filter_string=f"tags.sweep = '{sweep.id}' and tags.role = 'summary'", max_results=1
    )
    failures = [o for o in results if not o.ok]
    note = [f"# {sweep.id}", "", f"`{command}`", ""]
    for dataset, table in tables.items():
        note += [f"## {dataset}", "accuracy in percent, mean ± standard deviation over seeds", "", markdown(table), ""]
    note += [f"- failed: {o.labels}: {o.reason}" for o in failures]
    tags = {
        "role": "summary",
        "sweep": sweep.id,
        "dataset": ", ".join(tables),
        "model": "(summary)",
        "mlflow.note.content": "\n".join(note),
        "command": command,
    }
    if found:
        run_id = found[0].info.run_id
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
    else:
        run_id = runs.start(store, f"summary · {sweep.id}", tags)
    arrange_sweep(client, store.experiment_id, sweep.id)
    client.log_metric(run_id, "jobs", len(results))
    client.log_metric(run_id, "jobs_failed", len(failures))
    folder = Path(tempfile.mkdtemp(prefix="summary-", dir=store.folder))
    try:
        write_files(folder, tables, results, failures)
        experiments.draw(sweep.id.rpartition("-")[0], sweep.jobs, results, folder / "figures")
        (folder / "table.svg").write_text(_picture(sweep, results, tables))
        client.log_artifacts(run_id, str(folder))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    client.set_terminated(run_id, "FAILED" if failures else "FINISHED")


def write_files(folder: Path, tables: dict[str, Table], results: list[Outcome], failures: list[Outcome]) -> None:
    """Tables and figures of the summary run."""
    for dataset, table in tables.items():
        (folder / f"table_{dataset}.md").write_text(markdown(table) + "\n")
        means = {row: {c: 100 * statistics.fmean(v) for c, v in cells.items() if v} for row, cells in table.items()}
        figures.bars(means, folder / "figures" / f"accuracy_{dataset}.png", title=dataset, ylabel="accuracy [%]")
        for curve, words in (("adversarial_test_error", "error on attacked examples"), ("test_error", "test error")):
            series = _one_per_model(results, dataset, curve)
            if series:
                target = folder / "figures" / f"{curve}_{dataset}.png"
                figures.curves(series, target, title=dataset, xlabel="training iteration", ylabel=words)
    if failures:
        (folder / "failures.txt").write_text("\n".join(f"{o.labels}: {o.reason}" for o in failures) + "\n")


def _one_per_model(results: list[Outcome], dataset: str, curve: str) -> dict[str, list[tuple[int, float]]]:
    """First seed's curve of every model (and attack, where it matters)."""
    series: dict[str, list[tuple[int, float]]] = {}
    for outcome in results:
        labels = outcome.labels
        if outcome.ok and labels["dataset"] == dataset and outcome.curves.get(curve):
            name = f"{labels['model']} · {labels['attack']}" if curve.startswith("adv") else labels["model"]
            series.setdefault(name, [(int(s), float(v)) for s, v in outcome.curves[curve]])
    return series
