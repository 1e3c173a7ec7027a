"""Put a report together: sections, verdicts, tables and figures, then every file of its folder."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from pipeline.report import curves, pictures
from pipeline.report.certified import certified_points, certified_table
from pipeline.report.claims import Claim, claims_of
from pipeline.report.content import Section, failed_check_lines, sections_of
from pipeline.report.drawing import Figure
from pipeline.report.machine import machine, versions
from pipeline.report.paper import dataset_name
from pipeline.report.tables import Table, distortion_table, main_table, other_table, time_table
from pipeline.report.text import csv_rows, latex_table, markdown_claims, markdown_table
from pipeline.report.tracked import Reader, TrackedRun


@dataclass
class Part:
    """A section with everything that is shown of it."""

    section: Section
    claims: list[Claim]
    tables: list[Table]
    more_tables: list[Table]
    figures: list[Figure]


@dataclass
class DatasetPart:
    """A dataset: its sections, what certified tuning adds on it, and remarks on its data."""

    name: str
    parts: list[Part]
    certified: Table | None
    certified_figure: Figure | None
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """The dataset as the paper writes it."""
        return dataset_name(self.name)


@dataclass
class Report:
    """A whole report."""

    name: str
    folder: Path
    datasets: list[DatasetPart]
    failed_checks: list[str]
    runs: list[TrackedRun]
    made: str = field(default_factory=lambda: datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"))
    machine: str = field(default_factory=machine)
    versions: str = field(default_factory=versions)

    @property
    def parts(self) -> list[Part]:
        """All sections."""
        return [part for dataset in self.datasets for part in dataset.parts]

    @property
    def commits(self) -> list[str]:
        """Commits that the runs were made with, shortened."""
        return sorted({run.commit[:10] for run in self.runs if run.commit})


def build(reader: Reader, runs: list[TrackedRun], name: str, folder: Path) -> Report:
    """Sort the runs and draw everything; the figures are written into ``folder/figures``."""
    drawn = folder / "figures"
    by_dataset: dict[str, list[Section]] = defaultdict(list)
    sections = sections_of(runs)
    for section in sections:
        by_dataset[section.dataset].append(section)
    datasets = []
    for dataset, own in by_dataset.items():
        points = certified_points(own, reader)
        notes = sorted({run.notes for section in own for run in section.runs if run.notes})
        figure = curves.over_training_radius(dataset, points, drawn)
        parts = [_part(section, reader, drawn) for section in own]
        datasets.append(DatasetPart(dataset, parts, certified_table(points), figure, notes))
    return Report(name, folder, datasets, failed_check_lines(sections, reader), runs)


def write(report: Report) -> list[Path]:
    """Write index.html and table.md, table.csv, table.tex."""
    from pipeline.report.page import render

    files = {
        "index.html": render(report),
        "table.md": markdown(report),
        "table.csv": csv_rows([part.section for part in report.parts]),
        "table.tex": "\n".join(latex_table(t, p.section) for p in report.parts for t in p.tables),
    }
    for name, text in files.items():
        (report.folder / name).write_text(text)
    return [report.folder / name for name in files]


def markdown(report: Report) -> str:
    """All tables and verdicts."""
    lines = [f"# {report.name}", "", f"Made {report.made} on {report.machine}.", f"{report.versions}.", ""]
    for dataset in report.datasets:
        lines += [f"## {dataset.title}", "", *(f"{note}\n" for note in dataset.notes)]
        for part in dataset.parts:
            lines += [f"### {part.section.label[:1].upper()}{part.section.label[1:]}", ""]
            lines += [markdown_table(table) for table in (*part.tables, *part.more_tables)]
            lines += [markdown_claims(part.claims)] if part.claims else []
        lines += [markdown_table(dataset.certified, level=3)] if dataset.certified else []
    if report.failed_checks:
        lines += ["## Failed checks", "", *(f"- {line}" for line in report.failed_checks), ""]
    return "\n".join(lines)


def _part(section: Section, reader: Reader, folder: Path) -> Part:
    attacks = {cell.setting.attack for row in section.paper_rows for cell in row.cells if cell.setting.is_paper}
    in_paper = bool(attacks & {"none", "fgsm", "pgd", "cw", "zoo"})
    drawn: list[Figure | None] = []
    if in_paper:
        drawn = [
            curves.against_paper(section, folder),
            curves.over_steps(section, folder, reader),
            curves.over_epsilon(section, folder, reader),
            curves.over_iterations(section, folder, reader),
            pictures.brackets(section, folder, reader),
            pictures.gallery(section, folder, reader),
        ]
    drawn.append(pictures.heat_maps(section, folder, reader))
    tables = [main_table(section), time_table(section)] if in_paper else []
    more = [distortion_table(section, reader), other_table(section)]
    claims = claims_of(section, reader) if in_paper else []
    if not any(comparison.measured for claim in claims for comparison in claim.comparisons):
        claims = []
    return Part(section, claims, tables, [t for t in more if t], [f for f in drawn if f])
