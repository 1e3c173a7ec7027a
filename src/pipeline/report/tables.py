"""The report's tables: ours beside the paper's, seconds, how far attacks went, what certified tuning adds."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from pipeline.figures.charts import certified_at
from pipeline.labels import attack_name, model_name
from pipeline.report.content import PAPER_COLUMNS, Cell, Row, Section
from pipeline.report.tracked import Reader, TrackedRun
from pipeline.report.variants import tune_label
from pipeline.tables import DASH, Entry, Stat, Table, bracket_entry, name, seeds_text


def accuracy_table(section: Section) -> Table:
    """Clean accuracy and, per attack, ``[certified, attacked]`` in its own threat; the paper's numbers on its data."""
    attacks = section.columns()
    paper = ["paper"] if section.in_paper else []
    groups, columns = [("", 1), ("Clean", 1 + len(paper))], ["model", "ours" if paper else "", *paper]
    for label, cells in attacks.items():
        groups.append((label, 1 + len(paper)))
        shared = _shared_basis(cells.values())
        columns += [", ".join(filter(None, ("[certified, attacked]", shared))), *paper]
    table = Table("Accuracy [%]", columns, groups=groups)
    for row in section.shown_rows:
        entries = [name(row.label), _clean_entry(row)]
        entries += [_paper_entry(row, section, "none")] if paper else []
        for cells in attacks.values():
            entries.append(_bracket(cells.get(row), _shared_basis(cells.values())))
            attack = next(iter(cells.values())).setting.attack
            entries += [_paper_entry(row, section, attack)] if paper else []
        table.rows.append(entries)
    table.lift_shared_basis()
    table.notes.append(
        "[certified, attacked]: true robust accuracy lies between the two, what is proved and what the attack left, "
        "both in the norm and radius of the column; a dash: not certified in that threat. Mean ± standard deviation "
        "over seeds, in percent of the attacked points; points that were misclassified before count as broken."
    )
    if any(not cell.setting.bounded for cells in attacks.values() for cell in cells.values()):
        table.notes.append(
            "C&W and ZOO minimise the distortion without a bound: given time they break every point, so only examples "
            "within the L2 radius of the column count." + (" The paper states no budget for them." if paper else "")
        )
    return table


def _bracket(cell: Cell | None, said: str = "") -> Entry:
    """The bracket, what it rests on unless that is ``said`` in the header, and what failed."""
    entry = bracket_entry(cell.brackets if cell else [])
    if cell is None:
        return entry
    basis = _basis(cell)
    return Entry(entry.text, " · ".join(filter(None, (entry.below, basis if basis != said else ""))), _failed(cell))


def _shared_basis(cells: Iterable[Cell]) -> str:
    found = {_basis(cell) for cell in cells}
    return found.pop() if len(found) == 1 else ""


def time_table(section: Section) -> Table:
    """Seconds of every stage, beside the paper's minutes on its data."""
    attacks = section.columns()
    groups, columns = [("", 1), ("Ours [s]", 2 + len(attacks))], ["model", "grid", "training", *attacks]
    if section.in_paper:
        groups.append(("Paper [min]", 1))
        columns.append("one cell of its table")
    table = Table("Time", columns, groups=groups)
    for row in section.shown_rows:
        entries = [name(row.label)]
        entries += [_seconds(Stat.of(row.shared(f"{stage}_seconds").values())) for stage in ("tune", "train")]
        for cells in attacks.values():
            cell = cells.get(row)
            entries.append(_seconds(cell.stat("attack_seconds"), cell) if cell else Entry())
        minutes = [p.minutes for a in PAPER_COLUMNS if (p := row.published(section.dataset, a))]
        text = f"{min(minutes):.1f} to {max(minutes):.1f}" if minutes else DASH
        table.rows.append(entries + ([Entry(text, kind="paper")] if section.in_paper else []))
    table.notes.append(
        "Grid: the whole grid with its folds, once per model, shared by all seeds. Attacks: all attacked points "
        "together. Wall-clock of the machine that ran the job, whatever else it did."
        + (" The paper does not say what it timed." if section.in_paper else "")
    )
    return table


def distortion_table(section: Section, reader: Reader) -> Table | None:
    """How far attacks without a bound went, and the budget at which ours gives the paper's number."""
    columns = ["model", "attack", "10 %", "median", "90 %", "success [%]", "queries per point"]
    columns += ["L2 cap for the paper's"] if section.in_paper else []
    table = Table("How far the unbounded attacks had to go", columns)
    table.groups = [("", 2), ("L2 distortion of broken points", 3), ("", len(columns) - 5)]
    for row in section.shown_rows:
        for cell in (cells[row] for cells in section.columns().values() if row in cells):
            seeds = [] if cell.setting.bounded else cell.runs.values()
            distances = np.concatenate([np.zeros(0), *(_distances(run, reader) for run in seeds)])
            if not distances.size:
                continue
            moved = distances[(distances > 0) & np.isfinite(distances)]
            numbers = [f"{v:.2f}" for v in (np.quantile(moved, [0.1, 0.5, 0.9]) if moved.size else np.zeros(3))]
            success, queries = (cell.stat(metric) for metric in ("attack_success_rate", "queries_mean"))
            numbers.append(f"{100 * success.mean:.1f}" if success else DASH)
            numbers.append(f"{queries.mean:,.0f}".replace(",", " ") if queries else DASH)
            if section.in_paper:
                paper = row.published(section.dataset, cell.setting.attack)
                budget = _budget(distances, paper.mean if paper else None)
                numbers.append(DASH if budget is None else f"{budget:.2f}")
            first = name(attack_name(cell.setting.attack), below=_basis(cell), failed=_failed(cell))
            table.rows.append([name(row.label), first, *(Entry(n) for n in numbers)])
    if section.in_paper:
        table.notes.append(
            "Last column: the L2 cap at which our accuracy equals the paper's C&W or ZOO number; a dash where our "
            "clean accuracy is already below it or the paper has no such cell."
        )
    return table if table.rows else None


def other_table(section: Section) -> Table | None:
    """Everything measured that has no place in the paper's table: other radii, other budgets."""
    columns = ["model", "attack", "clean", "[certified, attacked]"]
    table = Table("Other settings that were measured", columns)
    shown = [cell for cells in section.columns().values() for cell in cells.values()]
    shown += [cell for row in section.shown_rows if (cell := row.cell("none"))]
    for row in section.rows:
        for cell in row.cells:
            if not any(cell is other for other in shown):
                entries = [name(row.label), name(cell.setting.label), _clean_of(cell), _bracket(cell)]
                table.rows.append(entries)
    return table if table.rows else None


def _clean_of(cell: Cell) -> Entry:
    value = cell.stat("clean_accuracy")
    return Entry(value.percent(), _basis(cell), _failed(cell)) if value else Entry()


def _clean_entry(row: Row) -> Entry:
    value, cell = Stat.of(row.shared("clean_accuracy").values()), row.cell("none")
    failed = _failed(cell) if cell else ()
    if value is None:
        return Entry(failed=failed)
    return Entry(value.percent(), f"{row.cells[0].n_test} points · {seeds_text(value.n)}", failed)


def _paper_entry(row: Row, section: Section, attack: str) -> Entry:
    paper = row.published(section.dataset, attack)
    return Entry(f"{paper.mean:.2f} ± {paper.std:.2f}" if paper else DASH, kind="paper")


def _seconds(value: Stat | None, cell: Cell | None = None) -> Entry:
    if value is None:
        return Entry()
    digits = 0 if value.mean >= 100 else 1 if value.mean >= 1 else 2
    return Entry(f"{value.mean:.{digits}f}", f"{cell.setting.n_attacked} points" if cell else "")


def _basis(cell: Cell) -> str:
    every = "" if cell.setting.n_attacked >= cell.n_test else f" of {cell.n_test}"
    return f"{cell.setting.n_attacked}{every} points · {seeds_text(len(cell.runs))}"


def _failed(cell: Cell) -> tuple[str, ...]:
    def where(seeds: list[int]) -> str:
        return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"

    return tuple(f"check {check} failed ({where(seeds)})" for check, seeds in cell.failed_checks.items())


def _distances(run: TrackedRun, reader: Reader) -> np.ndarray:
    """Per example the L2 distortion that changed its label: 0 if it was wrong before, infinity if it stood."""
    arrays = reader.arrays(run, "adversarial/examples.npz", ("success", "distortion_l2"))
    return np.zeros(0) if arrays is None else np.where(arrays["success"], arrays["distortion_l2"], np.inf)


def _budget(distances: np.ndarray, percent: float | None) -> float | None:
    """The L2 cap at which our accuracy equals the paper's: the smallest radius whose accuracy is no longer above it.

    None when the paper has no such cell or clean accuracy is already below.
    """
    if percent is None or 100 * np.mean(distances > 0) < percent:
        return None
    # accuracy(r) = share of distances above r, so r is the quantile at 1 - accuracy.
    radius = float(np.sort(distances)[min(len(distances) - 1, int(np.floor((1 - percent / 100) * len(distances))))])
    return radius if np.isfinite(radius) else None


@dataclass(frozen=True)
class BracketPoint:
    """One model at one training radius ε, tuned one way, bracketed at the L2 radius ``radius``."""

    model: str
    tuning: str
    epsilon: float
    radius: float
    clean: Stat
    certified: Stat | None
    attacked: Stat
    cell: Cell


def certified_points(sections: list[Section], reader: Reader) -> list[BracketPoint]:
    """All cells attacked by PGD in an L2 ball, of sections that use the exact kernel."""
    points = []
    for section in sections:
        for row in section.rows:
            for cell in row.cells:
                radius = cell.setting.number("epsilon")
                if cell.setting.get("norm") != "l2" or radius is None or row.key.epsilon is None:
                    continue
                clean, attacked = cell.stat("clean_accuracy"), cell.stat("robust_accuracy")
                if clean is None or attacked is None:
                    continue
                model = f"{model_name(row.key.model)}, {section.label.rsplit(' · ', 1)[0]}"
                tuning, certified = tune_label(cell.first.params), _certified_at(cell, radius, reader)
                points.append(BracketPoint(model, tuning, row.key.epsilon, radius, clean, certified, attacked, cell))
    return points


def certified_table(points: list[BracketPoint]) -> Table | None:
    """Rows: training radius ε; columns: tuning × (clean, attacked, certified)."""
    if not points:
        return None
    tunings = sorted({p.tuning for p in points})
    groups = [("", 3)] + [(tuning, 3) for tuning in tunings]
    columns = ["model", "ε (L2)", "r (L2)"] + ["clean", "PGD-L2 at r", "certified at r"] * len(tunings)
    table = Table("What certified tuning adds: accuracy [%] over the training radius ε", columns, groups=groups)
    rows: dict[tuple[str, float, float], dict[str, BracketPoint]] = defaultdict(dict)
    for point in points:
        rows[point.model, point.radius, point.epsilon][point.tuning] = point
    for (model, radius, epsilon), by_tuning in sorted(rows.items()):
        entries = [name(model), name(f"{epsilon:.4g}"), name(f"{radius:.4g}")]
        for tuning in tunings:
            p = by_tuning.get(tuning)
            if p is None:
                entries += [Entry()] * 3
                continue
            certified = Entry(p.certified.percent() if p.certified else DASH)
            attacked = Entry(p.attacked.percent(), failed=_failed(p.cell))
            entries += [Entry(p.clean.percent(), _basis(p.cell)), attacked, certified]
        table.rows.append(entries)
    table.notes.append(
        "True robust accuracy at the L2 radius r lies between the certified accuracy (proved) and the accuracy under "
        "PGD in the L2 ball (an attack that may not be the best one). ε = 0 is the natural model."
    )
    return table


def _certified_at(cell: Cell, radius: float, reader: Reader) -> Stat | None:
    """In the attack's own threat; of runs from before that was computed, from the general radii."""
    own = [certified for certified, _ in cell.brackets if certified is not None]
    if len(own) == len(cell.runs):
        return Stat.of(own)
    stored = [reader.arrays(run, "certificates/radii.npz", ("radii",)) for run in cell.runs.values()]
    return Stat.of(float(certified_at(arrays["radii"], np.array([radius]))[0]) for arrays in stored if arrays)
