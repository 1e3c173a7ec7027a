"""The report's tables in one neutral form, which is then written as HTML, Markdown and LaTeX."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from pipeline.report.content import PAPER_COLUMNS, UNBOUNDED, Cell, Row, Section, Stat, stat
from pipeline.report.distortions import distortions_of
from pipeline.report.paper import ATTACKS
from pipeline.report.tracked import Reader

DASH = "–"


@dataclass(frozen=True)
class Entry:
    """One entry: the number, what it rests on (seeds, points), the failed checks that concern it."""

    text: str
    below: str = ""
    failed: tuple[str, ...] = ()
    kind: str = "ours"


@dataclass
class Table:
    """A titled table; ``groups`` are the spanning headers (text, columns), ``columns`` the headers below them."""

    title: str
    groups: list[tuple[str, int]]
    columns: list[str]
    rows: list[list[Entry]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def name(text: str) -> Entry:
    """The first entry of a row."""
    return Entry(text, kind="name")


def main_table(section: Section) -> Table:
    """The paper's table: ours beside the paper's, the unbounded attacks at the L2 cap and without one."""
    cap = section.l2_cap
    in_paper = any(row.published(section.dataset, "none") for row in section.paper_rows)
    groups, columns = [("", 1)], ["model"]
    for attack in PAPER_COLUMNS:
        own = [f"ours, L2 ≤ {cap:g}", "ours, no bound"] if attack in UNBOUNDED else ["ours"]
        own += (["paper, budget not stated"] if attack in UNBOUNDED else ["paper"]) if in_paper else []
        groups.append((ATTACKS[attack], len(own)))
        columns += own
    groups.append(("Certified", 1))
    columns.append(f"L2 ≤ {_certified_radius(section)}")
    table = Table("Accuracy [%]", groups, columns)
    for row in section.paper_rows:
        entries = [name(row.label)]
        for attack in PAPER_COLUMNS:
            cell = row.cell(attack)
            if attack == "none":
                entries.append(_clean_entry(row))
            else:
                entries += [_entry(cell, "accuracy_at_l2_cap")] if attack in UNBOUNDED else []
                entries.append(_entry(cell, "robust_accuracy"))
            entries += [_paper_entry(row, section, attack)] if in_paper else []
        entries.append(_shared_entry(row, "certified_accuracy"))
        table.rows.append(entries)
    _lift_shared_basis(table)
    table.notes.append(
        "Mean ± standard deviation over seeds, in percent of the test points that the attack got; points that were "
        "misclassified before count as broken. FGSM and PGD: L∞ ≤ 8/255, PGD with 10 steps of ε/4."
    )
    table.notes.append(
        "C&W and ZOO minimise the distortion without a bound: given time they break every point, so “no bound” says "
        f"only that they succeeded. The number to compare is the accuracy when examples beyond L2 {cap:g} do not count."
    )
    return table


def _lift_shared_basis(table: Table) -> None:
    """What all entries of a column rest on is said once, in its header."""
    for place in range(1, len(table.columns)):
        entries = [row[place] for row in table.rows]
        shared = {entry.below for entry in entries if entry.text != DASH}
        if len(shared) == 1 and shared != {""}:
            table.columns[place] += f", {shared.pop()}"
            for row in table.rows:
                row[place] = replace(row[place], below="")


def time_table(section: Section) -> Table:
    """Seconds of every stage beside the paper's minutes."""
    attacks = [a for a in ("fgsm", "pgd", *UNBOUNDED) if any(row.cell(a) for row in section.paper_rows)]
    groups = [("", 1), ("Ours [s]", 2 + len(attacks)), ("Paper [min]", 1)]
    columns = ["model", "grid", "training", *(ATTACKS[a] for a in attacks), "one cell of its table"]
    table = Table("Time", groups, columns)
    for row in section.paper_rows:
        entries = [name(row.label), _seconds(stat(row.shared("tune_seconds").values()))]
        entries.append(_seconds(stat(row.shared("train_seconds").values())))
        for attack in attacks:
            cell = row.cell(attack)
            entries.append(_seconds(cell.stat("attack_seconds"), cell) if cell else Entry(DASH))
        minutes = [p.minutes for a in ATTACKS if (p := row.published(section.dataset, a))]
        text = f"{min(minutes):.1f} to {max(minutes):.1f}" if minutes else DASH
        table.rows.append([*entries, Entry(text, kind="paper")])
    table.notes.append(
        "Grid: the whole 5-fold grid, once per model, shared by all seeds. Attacks: all attacked points together. "
        "Wall-clock of the machine that ran the job, whatever else it did; the paper does not say what it timed."
    )
    return table


def distortion_table(section: Section, reader: Reader) -> Table | None:
    """How far C&W and ZOO went, and the budget at which ours gives the paper's number."""
    groups = [("", 2), ("L2 distortion of broken points", 3), ("", 3)]
    columns = [
        "model",
        "attack",
        "10 %",
        "median",
        "90 %",
        "success [%]",
        "queries per point",
        "L2 cap for the paper's",
    ]
    table = Table("How far the unbounded attacks had to go", groups, columns)
    for row in section.paper_rows:
        for attack in UNBOUNDED:
            cell, paper = row.cell(attack), row.published(section.dataset, attack)
            found = distortions_of(cell, section, paper.mean if paper else None, reader) if cell else None
            if found is None or cell is None:
                continue
            budget = DASH if found.matching_budget is None else f"{found.matching_budget:.2f}"
            numbers = [f"{v:.2f}" for v in (found.q10, found.median, found.q90)]
            numbers += [f"{100 * found.success_rate:.1f}", f"{found.queries:,.0f}".replace(",", " "), budget]
            first = Entry(ATTACKS[attack], below=_basis(cell), failed=_failed(cell), kind="name")
            table.rows.append([name(row.label), first, *(Entry(n) for n in numbers)])
    table.notes.append(
        "Last column: the L2 cap at which our accuracy equals the paper's C&W or ZOO number; a dash where our clean "
        "accuracy is already below it or the paper has no such cell."
    )
    return table if table.rows else None


def other_table(section: Section) -> Table | None:
    """Everything measured that has no place in the paper's table: other radii, other budgets."""
    columns = ["model", "attack", "clean", "under attack", f"L2 ≤ {section.l2_cap:g}", "certified"]
    table = Table("Other settings that were measured", [], columns)
    for row in section.rows:
        shown = [] if not row.key.is_paper else [row.cell(a) for a in ("none", "fgsm", "pgd", *UNBOUNDED)]
        for cell in row.cells:
            if any(cell is other for other in shown):
                continue
            metrics = ("clean_accuracy", "robust_accuracy", "accuracy_at_l2_cap", "certified_accuracy")
            first, *rest = (_entry(cell, metric) for metric in metrics)
            plain = [Entry(entry.text) for entry in rest]
            table.rows.append([name(row.label), name(cell.setting.label), first, *plain])
    return table if table.rows else None


def _certified_radius(section: Section) -> str:
    radii = {run.params.get("evaluation.certified_radius", "?") for run in section.runs}
    return ", ".join(sorted(radii))


def _entry(cell: Cell | None, metric: str) -> Entry:
    value = cell.stat(metric) if cell else None
    if cell is None or value is None:
        return Entry(DASH)
    return Entry(value.percent(), _basis(cell), _failed(cell))


def _clean_entry(row: Row) -> Entry:
    entry = _shared_entry(row, "clean_accuracy")
    cell = row.cell("none")
    return Entry(entry.text, entry.below, _failed(cell) if cell else ())


def _shared_entry(row: Row, metric: str) -> Entry:
    values = row.shared(metric)
    value = stat(values.values())
    if value is None:
        return Entry(DASH)
    return Entry(value.percent(), f"{row.cells[0].n_test} points · {seeds_text(value.n)}")


def _paper_entry(row: Row, section: Section, attack: str) -> Entry:
    paper = row.published(section.dataset, attack)
    return Entry(f"{paper.mean:.2f} ± {paper.std:.2f}" if paper else DASH, kind="paper")


def _seconds(value: Stat | None, cell: Cell | None = None) -> Entry:
    if value is None:
        return Entry(DASH)
    digits = 0 if value.mean >= 100 else 1 if value.mean >= 1 else 2
    return Entry(f"{value.mean:.{digits}f}", f"{cell.setting.n_attacked} points" if cell else "")


def _basis(cell: Cell) -> str:
    every = "" if cell.setting.n_attacked >= cell.n_test else f" of {cell.n_test}"
    return f"{cell.setting.n_attacked}{every} points · {seeds_text(len(cell.runs))}"


def seeds_text(count: int) -> str:
    """``3 seeds``."""
    return f"{count} seeds" if count != 1 else "1 seed"


def _failed(cell: Cell) -> tuple[str, ...]:
    def where(seeds: list[int]) -> str:
        return f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}"

    return tuple(f"check {check} failed ({where(seeds)})" for check, seeds in cell.failed_checks.items())
