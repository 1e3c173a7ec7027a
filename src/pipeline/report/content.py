"""The report's content: tables of one dataset and setup, rows of models, cells that hold one run per seed."""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, field

from pipeline.labels import ATTACKS, DATASETS, MODELS, dataset_name, place
from pipeline.report.paper import PaperCell, published
from pipeline.report.tracked import Reader, TrackedRun
from pipeline.report.variants import (
    PAPER_EPSILON,
    AttackSetting,
    RowKey,
    Setup,
    row_label,
    row_of,
    setting_of,
    setup_label,
    setup_of,
)
from pipeline.tables import Stat, bracket_of

PAPER_COLUMNS = ("none", "fgsm", "pgd", "cw", "zoo")
__all__ = ["PAPER_COLUMNS", "PAPER_EPSILON", "Cell", "Row", "Section", "sections_of"]


@dataclass
class Cell:
    """One model under one attack setting: the latest finished run of every seed."""

    setting: AttackSetting
    runs: dict[int, TrackedRun] = field(default_factory=dict)

    def values(self, metric: str) -> dict[int, float]:
        """A metric by seed."""
        return {seed: run.metrics[metric] for seed, run in sorted(self.runs.items()) if metric in run.metrics}

    def stat(self, metric: str) -> Stat | None:
        """A metric over the seeds."""
        return Stat.of(self.values(metric).values())

    @property
    def brackets(self) -> list[tuple[float | None, float]]:
        """Certified and attacked accuracy in the attack's threat, by seed."""
        return [bracket_of(run.metrics, self.setting.bounded) for _, run in sorted(self.runs.items())]

    @property
    def n_test(self) -> int:
        """Size of the test set."""
        return int(next(iter(self.runs.values())).metrics["n_test"])

    @property
    def failed_checks(self) -> dict[str, list[int]]:
        """Ids of failed checks with the seeds they failed for."""
        failed = defaultdict(list)
        for seed, run in sorted(self.runs.items()):
            for check in run.failed_checks:
                failed[check].append(seed)
        return dict(failed)

    @property
    def first(self) -> TrackedRun:
        """The run of the smallest seed."""
        return self.runs[min(self.runs)]


@dataclass(eq=False)
class Row:
    """A model with its training radius, under every attack setting it met."""

    key: RowKey
    label: str
    cells: list[Cell] = field(default_factory=list)

    def cell(self, attack: str) -> Cell | None:
        """The cell of the paper's column: the paper's budget, then the most seeds, then the most points."""
        fitting = [c for c in self.cells if c.setting.attack == attack and c.setting.is_paper]
        latest = lambda c: max(run.started for run in c.runs.values())  # noqa: E731
        return max(fitting, key=lambda c: (len(c.runs), c.setting.n_attacked, latest(c)), default=None)

    def shared(self, metric: str) -> dict[int, float]:
        """A metric that does not depend on the attack (clean accuracy, seconds of training), by seed."""
        values: dict[int, float] = {}
        for cell in sorted(self.cells, key=lambda c: c.setting.attack != "none"):
            for seed, value in cell.values(metric).items():
                values.setdefault(seed, value)
        return dict(sorted(values.items()))

    def published(self, dataset: str, attack: str) -> PaperCell | None:
        """The paper's cell, if this row is one of the paper's."""
        return published().get((dataset, self.key.model, attack)) if self.key.is_paper else None

    @property
    def runs(self) -> list[TrackedRun]:
        """All runs of the row."""
        return [run for cell in self.cells for run in cell.runs.values()]


@dataclass
class Section:
    """One table of the report: a dataset and a setup."""

    setup: Setup
    label: str
    rows: list[Row]

    @property
    def dataset(self) -> str:
        """The dataset's short name."""
        return self.setup.dataset

    @property
    def title(self) -> str:
        """Dataset and setup."""
        return f"{dataset_name(self.dataset)}: {self.label}"

    @property
    def slug(self) -> str:
        """Name for files and anchors."""
        words = re.sub(r"\(.*?\)", "", self.label).lower()
        return f"{self.dataset}-" + re.sub(r"[^a-z0-9]+", "-", words).strip("-")

    @property
    def in_paper(self) -> bool:
        """Whether the paper has numbers for this data."""
        return any(dataset == self.dataset for dataset, _, _ in published())

    @property
    def shown_rows(self) -> list[Row]:
        """The rows of the main table and the figures: the paper's on its data, all on other data."""
        return self.paper_rows if self.in_paper else self.rows

    def columns(self) -> dict[str, dict[Row, Cell]]:
        """The attacks of the main table with the cells of its rows: the paper's on its data, all on other data."""
        found: dict[str, dict[Row, Cell]] = defaultdict(dict)
        if self.in_paper:
            for attack in PAPER_COLUMNS[1:]:
                cells = {row: cell for row in self.paper_rows if (cell := row.cell(attack)) is not None}
                if cells:
                    setting = next(iter(cells.values())).setting
                    found[setting.label.split(",")[0] if setting.bounded else setting.label] = cells
            return found
        settings = dict.fromkeys(c.setting for row in self.rows for c in row.cells if c.setting.attack != "none")
        for setting in settings:
            label = setting.label
            alike = [other for other in settings if other.label == label]
            if len(alike) > 1:
                differing = [i for i in setting.items if any(i not in other.items for other in alike)]
                label += "".join(f", {key}={value}" for key, value in differing) or f", {setting.n_attacked} points"
            found[label] |= {row: cell for row in self.rows for cell in row.cells if cell.setting == setting}
        return found

    @property
    def paper_rows(self) -> list[Row]:
        """Rows that stand in the paper's table, and the baseline."""
        return [row for row in self.rows if row.key.is_paper]

    def row(self, model: str) -> Row | None:
        """The paper's row of a model."""
        return next((row for row in self.paper_rows if row.key.model == model), None)

    @property
    def runs(self) -> list[TrackedRun]:
        """All runs of the section."""
        return [run for row in self.rows for run in row.runs]

    @property
    def l2_cap(self) -> float:
        """The L2 cap of the unbounded attacks' columns."""
        caps = [cell.setting.l2_cap for row in self.rows for cell in row.cells]
        return next((cap for cap in caps if not math.isnan(cap)), float("nan"))

    @property
    def pixels(self) -> int | None:
        """Number of pixels d."""
        return next((int(run.profile["features"]) for run in self.runs if "features" in run.profile), None)


def sections_of(runs: Iterable[TrackedRun]) -> list[Section]:
    """Sort runs into sections, rows and cells; of runs that differ only in when they ran, the latest is kept."""
    by_setup: dict[Setup, list[TrackedRun]] = defaultdict(list)
    for run in runs:
        # Runs that follow the convergence to an optimum train on a few rows on purpose.
        if "n_attacked" in run.metrics and run.params.get("evaluation.convergence") != "True":
            by_setup[setup_of(run)].append(run)
    kernel_setups = [s for s in by_setup if s.kernel]
    sections = []
    for setup in by_setup:
        if setup.kernel:
            # A model without an expansion belongs into every table of the same data and tuning.
            others = Setup(setup.dataset, setup.digest, setup.tune, ())
            members = by_setup[setup] + by_setup.get(others, [])
        elif any((s.dataset, s.digest, s.tune) == (setup.dataset, setup.digest, setup.tune) for s in kernel_setups):
            continue
        else:
            members = by_setup[setup]
        sections.append(Section(setup, setup_label(members), _rows(members)))
    _distinguish(sections)
    return sorted(sections, key=lambda s: (place(DATASETS, s.dataset), s.dataset, s.label))


def _rows(runs: list[TrackedRun]) -> list[Row]:
    rows: dict[RowKey, Row] = {}
    cells: dict[tuple[RowKey, AttackSetting], Cell] = {}
    for run in sorted(runs, key=lambda r: r.started):
        key, setting = row_of(run), setting_of(run)
        row = rows.setdefault(key, Row(key, row_label(run)))
        if (key, setting) not in cells:
            cells[key, setting] = Cell(setting)
            row.cells.append(cells[key, setting])
        cells[key, setting].runs[run.seed] = run
    for row in rows.values():
        row.cells.sort(key=lambda c: (place(ATTACKS, c.setting.attack), c.setting.number("epsilon") or 0.0))
    return sorted(rows.values(), key=lambda r: (place(MODELS, r.key.model), r.key.epsilon or 0.0))


def _distinguish(sections: list[Section]) -> None:
    """Two different setups never share a label: name what differs."""
    groups = defaultdict(list)
    for section in sections:
        groups[section.dataset, section.label].append(section)
    for same in groups.values():
        if len(same) < 2:
            continue
        settings = [dict(s.setup.kernel) | {f"tune.{k}": v for k, v in s.setup.tune} | _of_file(s) for s in same]
        names = sorted({k for one in settings for k in one if len({str(o.get(k)) for o in settings}) > 1})
        for section, one in zip(same, settings):
            words = [f"{name} = {one[name]}" for name in names if name in one]
            section.label += " · " + (", ".join(words) or f"data {section.setup.digest[:8]}")


def _of_file(section: Section) -> dict[str, str]:
    """How a user's own data was read: two files, or one file scaled twice, are two tables."""
    params = section.rows[0].runs[0].params
    found = {key: params[f"dataset.{key}"] for key in ("path", "scale", "classes", "box") if f"dataset.{key}" in params}
    return found | ({"path": found["path"].rsplit("/", 1)[-1]} if "path" in found else {})


def failed_check_lines(sections: list[Section], reader: Reader) -> list[str]:
    """One line per failed check, with the number it concerns and what the check said."""
    lines: dict[str, None] = {}
    for section in sections:
        for row in section.rows:
            for cell in row.cells:
                for check, seeds in cell.failed_checks.items():
                    said = reader.check_messages(cell.runs[seeds[0]]).get(check, "")
                    where = f"{section.title}: {row.label} under {cell.setting.label}"
                    lines[f"{where}, seed {', '.join(map(str, seeds))}: check {check} failed. {said}".strip()] = None
    return list(lines)
