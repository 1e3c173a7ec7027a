"""Tables of a sweep: rows are models, columns what they met, cells one accuracy per seed."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pipeline.job import Outcome
from pipeline.sweep import Sweep

if TYPE_CHECKING:
    from rich.table import Table as RichTable

_CORE = ("dataset", "model", "attack", "seed")

Cell = list[float]
Table = dict[str, dict[str, Cell]]


def row_suffixes(sweep: Sweep) -> list[list[str]]:
    """Per job, the overrides beyond model, attack, dataset and seed that differ between jobs."""
    other = [[o for o in job if o.split("=")[0] not in _CORE] for job in sweep.jobs]
    common = set.intersection(*map(set, other)) if other else set()
    return [[o for o in job if o not in common] for job in other]


def varying(overrides: Iterable[str]) -> str:
    """A row label's suffix: `` ε=0.25``."""
    return "".join(f" {o.split('=')[0].split('.')[-1]}={o.split('=', 1)[1]}" for o in overrides)


def make_tables(results: list[Outcome], suffixes: list[str], cap: float) -> dict[str, Table]:
    """Per dataset: rows (models) × columns (clean, then each attack, then certified).

    An attack without a budget breaks everything in the end, so it has a second column: accuracy when only examples
    within the L2 ``cap`` count.
    """
    tables: dict[str, Table] = defaultdict(lambda: defaultdict(dict))
    clean: dict[tuple[str, str, Any], dict[str, float]] = {}
    for outcome, suffix in zip(results, suffixes):
        if not outcome.ok:
            continue
        labels, m = outcome.labels, outcome.metrics
        row = f"{labels['model']}{suffix}"
        clean[labels["dataset"], row, labels["seed"]] = {
            "clean": m["clean_accuracy"],
            "certified": m["certified_accuracy"],
        }
        if labels["attack"] != "none":
            cells = tables[labels["dataset"]][row]
            cells.setdefault(labels["attack"], []).append(m["robust_accuracy"])
            if not labels.get("bounded", True):
                cells.setdefault(f"{labels['attack']}, L2 ≤ {cap:g}", []).append(m["accuracy_at_l2_cap"])
    # The clean column of a model and seed is one number, however many attacks it met.
    for (dataset, row, _), values in clean.items():
        cells = tables[dataset][row]
        for column in ("certified", "clean"):
            cells.setdefault(column, []).append(values[column])
    return {d: {r: {c: cells[c] for c in _columns(cells)} for r, cells in rows.items()} for d, rows in tables.items()}


def _columns(cells: dict[str, Cell]) -> list[str]:
    attacks = [name for name in cells if name not in ("clean", "certified")]
    return ["clean", *attacks, "certified"]


def show_cell(values: Cell | None) -> str:
    """``98.47 ± 0.12`` in percent, the deviation over seeds; a dash when nothing was measured."""
    if not values:
        return "–"
    mean = 100 * statistics.fmean(values)
    return f"{mean:.2f} ± {100 * statistics.stdev(values):.2f}" if len(values) > 1 else f"{mean:.2f}"


def markdown(table: Table) -> str:
    """A table as Markdown."""
    columns = _all_columns(table)
    lines = ["| model | " + " | ".join(columns) + " |", "|---" * (len(columns) + 1) + "|"]
    lines += [
        f"| {row} | " + " | ".join(show_cell(cells.get(c)) for c in columns) + " |" for row, cells in table.items()
    ]
    return "\n".join(lines)


def _all_columns(table: Table) -> list[str]:
    seen = dict.fromkeys(column for cells in table.values() for column in cells)
    return [c for c in seen if c != "certified"] + ["certified"]


def rich_view(table: Table) -> RichTable:
    """A table for the terminal."""
    from rich.table import Table as RichTable

    view = RichTable()
    view.add_column("model", no_wrap=True)
    for column in _all_columns(table):
        view.add_column(column, justify="right")
    for row, cells in table.items():
        view.add_row(row, *(show_cell(cells.get(c)) for c in _all_columns(table)))
    return view


def caption(dataset: str, results: list[Outcome], radius: float) -> str:
    """One line that says what the numbers of a dataset's table are."""
    seeds = len({o.labels["seed"] for o in results if o.ok and o.labels["dataset"] == dataset})
    spread = f"mean ± std over {seeds} seeds" if seeds > 1 else "one seed"
    return f"{dataset}: accuracy [%], {spread}; certified at L2 {radius:g}"
