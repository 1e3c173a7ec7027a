"""The end of a sweep: its table on the terminal and in one summary run, failures, and what to do next."""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
import shlex
import tempfile
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline import identity
from pipeline.cache import StageStore
from pipeline.figures import sweep_figure
from pipeline.figures.of_sweeps import Job, slopes_csv
from pipeline.job import Outcome, stages_folder
from pipeline.labels import attack_name, threat_of
from pipeline.paths import DATABASE
from pipeline.progress import console
from pipeline.sweep import Sweep, outcomes
from pipeline.tables import Entry, Stat, Table, bracket_entry, name
from pipeline.tracking import runs
from pipeline.tracking.bundle import pending
from pipeline.tracking.credentials import masked
from pipeline.tracking.store import TrackingStore, open_store
from pipeline.tracking.view import arrange_sweep, chart_link, member_tag, table_link

if TYPE_CHECKING:
    from rich.console import Console

_UI = "http://127.0.0.1:5000"
_CONTENT = "content"  # tag: digest of what the summary was made of
_OF_ATTACK = ("attack.", "surrogate.", "evaluation.")


def placed(results: Sequence[Outcome]) -> list[Job]:
    """Rows and columns such that two jobs share a cell exactly when they differ in nothing but the seed."""
    models = _distinguished(results, lambda key: not key.startswith(_OF_ATTACK))
    attacks = _distinguished(results, lambda key: key.startswith((*_OF_ATTACK, "dataset.name")), ("epsilon", "norm"))
    found = []
    for outcome, model, attack in zip(results, models, attacks):
        threat = _threat(outcome)
        words = [attack_name(str(outcome.labels["attack"]))]
        if threat is not None:
            words.append(f"{threat[0]}" if threat[1] else f"≤ {threat[0]}")
        row = " ".join([str(outcome.labels["model"]), *model])
        known = vars(outcome) | {"bounded": threat is None or threat[1]}
        found.append(Job(**known, row=row, column=" ".join([*words, *attack])))
    return found


def _threat(outcome: Outcome) -> tuple[object, bool] | None:
    """A job that has a result says it; to ask the attack itself is to import torch."""
    if outcome.threat is not None:
        return outcome.threat, outcome.bounded
    return None if outcome.labels["attack"] == "none" else threat_of(outcome.settings)


def _distinguished(
    results: Sequence[Outcome], wanted: Callable[[str], bool], said: Sequence[str] = ()
) -> list[list[str]]:
    """In words, what tells jobs apart among the settings that are wanted; ``said`` stands in the label already."""
    settings = [{key: value for key, value in outcome.settings.items() if wanted(key)} for outcome in results]
    differing = identity.distinguish(settings)
    return [identity.words({k: v for k, v in own.items() if k.split(".")[-1] not in said}) for own in differing]


def sweep_tables(results: list[Outcome]) -> dict[str, Table]:
    """Per dataset: rows are models, columns clean accuracy, then per attack ``[certified, attacked]`` in its threat.

    An attack without a bound breaks everything in the end: its column is at the L2 cap.
    """
    by_dataset: dict[str, list[Job]] = defaultdict(list)
    # A run that two jobs asked for (seed=0,0) is one measurement.
    seen: set[tuple[str, str, str]] = set()
    for job in placed(results):
        known = (job.row, job.column, job.run_id or "")
        if job.ok and (job.run_id is None or known not in seen):
            seen.add(known)
            by_dataset[job.labels["dataset"]].append(job)
    return {dataset: _converged(dataset, jobs) for dataset, jobs in by_dataset.items()}


def _converged(dataset: str, jobs: list[Job]) -> Table:
    """The table without trainings that diverged: what is left of them is no measurement."""
    diverged = {f"{job.row}, seed {job.labels['seed']}": None for job in jobs if job.metrics.get("diverged")}
    table = _table(dataset, [job for job in jobs if not job.metrics.get("diverged")])
    if diverged:
        table.notes.append(f"Not in the table, because the training diverged: {'; '.join(diverged)}.")
    return table


def _table(dataset: str, jobs: list[Job]) -> Table:
    attacked = [job for job in jobs if job.labels["attack"] != "none"]
    columns = dict.fromkeys(job.column for job in attacked)
    seeds = len({job.labels["seed"] for job in jobs})
    spread = f"mean ± std over {seeds} seeds" if seeds > 1 else "one seed"
    title = f"{dataset}: accuracy [%], {spread}"
    table = Table(title, ["model", "clean", *(f"{column}\n[certified, attacked]" for column in columns)])
    for row in dict.fromkeys(job.row for job in jobs):
        own = [job for job in jobs if job.row == row]
        # The clean accuracy of a model and seed is one number, however many attacks it met.
        clean = Stat.of({job.labels["seed"]: job.metrics["clean_accuracy"] for job in own}.values())
        entries = [name(row), Entry(clean.percent()) if clean else Entry()]
        entries += [bracket_entry([job.bracket for job in own if job.column == column]) for column in columns]
        table.rows.append(entries)
    if columns:
        table.notes.append(
            "[certified, attacked]: true robust accuracy lies between the two, what is proved and what an attack left, "
            "both in the norm and radius of the column; undecided: the points in between."
        )
    counts = {(job.column, int(job.metrics["n_attacked"]), int(job.metrics["n_test"])) for job in attacked}
    table.notes += sorted(f"{column}: {few} of {all_} test points" for column, few, all_ in counts if few < all_)
    return table


@dataclass(frozen=True)
class Best:
    """The job whose objective is best; the first of several that are equal."""

    number: int
    metric: str
    value: float
    overrides: list[str]
    run_id: str | None

    def __str__(self) -> str:
        return f"best {self.metric} {self.value:.6g}: job {self.number + 1}, {' '.join(self.overrides)}"


def best_job(sweep: Sweep, results: Sequence[Outcome]) -> Best | None:
    """The best job by ``objective``; None where there is none to compare by."""
    metric = sweep.cfg.objective
    values = {
        n: o.metrics[metric] for n, o in enumerate(results) if o.ok and math.isfinite(o.metrics.get(metric, math.nan))
    }
    if not values:
        return None
    number = (max if sweep.maximize else min)(values, key=lambda n: round(values[n], 9))
    # What all jobs have in common is in the command; what this one has is the answer.
    own = [o for o in sweep.jobs[number] if not all(o in job for job in sweep.jobs)] or sweep.jobs[number]
    return Best(number, metric, values[number], own, results[number].run_id)


def close(sweep: Sweep, arguments: list[str]) -> int:
    """Show and log the summary of a sweep; the exit code is 1 if a job failed."""
    results = outcomes(sweep)
    tables = sweep_tables(results)
    command = "python -m pipeline.run " + shlex.join(arguments)
    best = best_job(sweep, results)
    _print(results, tables, command, best)
    code = 0 if all(outcome.ok for outcome in results) else 1
    content = _content(sweep, results)
    before = _kept_summary(sweep, content)
    if before is not None:
        _print_links(sweep, before.experiment_id)
        return code
    store = open_store(sweep.cfg.tracking)
    stages = StageStore(stages_folder(sweep.cfg))
    runs.end_abandoned(store, stages)
    _print_links(sweep, store.experiment_id, store.uri.rstrip("/") if store.is_server else None)
    # Held like a job's: a summary whose process is gone is put right by the next one to open the store.
    with stages.running(f"summary-{sweep.id}", {}):
        _log(sweep, results, tables, store, command, {runs.STAGE_STORE: stages.identity, _CONTENT: content}, best)
    return code


def _content(sweep: Sweep, results: list[Outcome]) -> str:
    """What a summary is made of: the runs of all jobs, in their order."""
    known = [str(sweep.cfg.figures), *(outcome.run_id or str(outcome.reason) for outcome in results)]
    return hashlib.sha256(json.dumps(known).encode()).hexdigest()


def _kept_summary(sweep: Sweep, content: str) -> runs.Finished | None:
    """The summary in a local store that says the same already; it is left as it is."""
    tracking = sweep.cfg.tracking
    if tracking.uri or pending(Path(tracking.folder)):
        return None
    found = runs.look_up(
        Path(tracking.folder) / DATABASE, tracking.experiment, f"summary-{sweep.id}", lambda metric: False
    )
    return found if found is not None and found.tags.get(_CONTENT) == content else None


def _print(results: list[Outcome], tables: dict[str, Table], command: str, best: Best | None) -> None:
    _print_tables(console(), tables)
    say = partial(console().print, markup=False, highlight=False, soft_wrap=True)
    count = {status: sum(o.status == status for o in results) for status in ("finished", "reused", "pending")}
    failures = [o for o in results if not o.ok]
    words = [f"{n} {status}" for status, n in count.items() if n] + ([f"{len(failures)} failed"] if failures else [])
    say(f"{len(results)} jobs: {', '.join(words)}")
    if best is not None:
        say(str(best), style="bold")
    for outcome in failures:
        job = " · ".join(str(outcome.labels[k]) for k in ("model", "attack", "dataset"))
        job += f" · seed {outcome.labels['seed']}"
        say(f"  failed: {job}: {outcome.reason}", style="red")
    warned = sorted({i for o in results for i, status in o.checks.items() if status == "fail"})
    if warned:
        say(f"  failed checks: {', '.join(warned)} (see check.* tags and checks.json of the runs)", style="yellow")
    if failures:
        say(f"  the same command computes what is missing: {command}")
    if count["pending"]:
        say("  pending runs are computed and kept: python -m pipeline.sync uploads them")


def _print_tables(out: Console, tables: dict[str, Table]) -> None:
    for table in tables.values():
        out.print(f"\n{table.title}", style="bold", highlight=False, markup=False)
        out.print(table.rich())
        for note in table.notes:
            out.print(note, style="dim", highlight=False, markup=False)


def picture(title: str, tables: dict[str, Table]) -> str:
    """What the terminal shows, as SVG that needs no network and has a size of its own (viewers show nothing else)."""
    from rich.console import Console

    wide = Console(width=160, file=io.StringIO())
    width = max([80, *(wide.measure(table.rich()).maximum for table in tables.values())])
    recorder = Console(record=True, width=width, file=io.StringIO())
    _print_tables(recorder, tables)
    svg = re.sub(r"@font-face \{.*?\}", "", recorder.export_svg(title=title), flags=re.DOTALL)
    return re.sub(r'viewBox="0 0 ([\d.]+) ([\d.]+)"', r'\g<0> width="\1" height="\2"', svg, count=1)


def _print_links(sweep: Sweep, experiment_id: str, server: str | None = None) -> None:
    out = console()
    if server is None:
        out.print("open the results with: make ui, then", highlight=False)
    base = server or _UI
    for link in (table_link(base, experiment_id, sweep.id), chart_link(base, experiment_id, sweep.id)):
        out.print(f"  {masked(link)}", markup=False, highlight=False, soft_wrap=True)


def _log(
    sweep: Sweep,
    results: list[Outcome],
    tables: dict[str, Table],
    store: TrackingStore,
    command: str,
    more_tags: dict[str, str],
    best: Best | None,
) -> None:
    """One summary run per sweep: a resumed sweep updates it, so that a table is never there twice."""
    client = store.client
    found = client.search_runs(
        [store.experiment_id], filter_string=f"tags.sweep = '{sweep.id}' and tags.role = 'summary'", max_results=1
    )
    failures = [o for o in results if not o.ok]
    # The page shows the first lines only: the table, then how it was made.
    note = [line for table in tables.values() for line in (table.title, "", table.markdown(), "", *table.notes, "")]
    note += [] if best is None else [str(best), ""]
    note += [f"- failed: {o.labels}: {o.reason}" for o in failures] + ["", f"`{command}`"]
    tags = {
        "role": "summary",
        "run_signature": f"summary-{sweep.id}",
        "sweep": sweep.id,
        member_tag(sweep.id): "1",
        "dataset": ", ".join(tables),
        "model": "(summary)",
        "mlflow.note.content": "\n".join(note),
        "command": command,
    } | more_tags
    if best is not None:
        tags |= {"best": " ".join(best.overrides), "best_run": best.run_id or ""}
    if found:
        run_id = found[0].info.run_id
        for key, value in tags.items():
            client.set_tag(run_id, key, value)
    else:
        run_id = runs.start(store, f"summary · {sweep.id}", tags)
    differing = identity.distinguish([o.settings for o in results])
    arrange_sweep(client, store.experiment_id, sweep.id, dict.fromkeys(key for own in differing for key in own))
    client.log_metric(run_id, "jobs", len(results))
    client.log_metric(run_id, "jobs_failed", len(failures))
    if best is not None:
        client.log_metric(run_id, f"best_{best.metric}", best.value)
    with (
        runs.filled(store, run_id, "FAILED" if failures else "FINISHED"),
        tempfile.TemporaryDirectory(prefix="summary-", dir=store.folder, ignore_cleanup_errors=True) as folder,
    ):
        write_files(Path(folder), sweep, tables, results)
        client.log_artifacts(run_id, folder)


def write_files(folder: Path, sweep: Sweep, tables: dict[str, Table], results: list[Outcome]) -> None:
    """Tables, figures and failures of the summary run."""
    for dataset, table in tables.items():
        (folder / f"table_{dataset}.md").write_text("\n\n".join([table.title, table.markdown(), *table.notes, ""]))
    (folder / "table.svg").write_text(picture(sweep.id, tables))
    failures = [f"{o.labels}: {o.reason}\n" for o in results if not o.ok]
    if failures:
        (folder / "failures.txt").write_text("".join(failures))
    finished: dict[str, list[Job]] = defaultdict(list)
    for job in placed(results):
        if job.ok and not job.metrics.get("diverged"):
            finished[job.labels["dataset"]].append(job)
    for dataset, jobs in finished.items():
        sweep_figure.draw(folder / "figures", dataset, jobs, which=sweep.cfg.figures, name=f"{{}}_{dataset}")
        if slopes := slopes_csv(jobs):
            (folder / f"slopes_{dataset}.csv").write_text(slopes)
