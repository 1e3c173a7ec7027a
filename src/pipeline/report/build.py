"""Put a report together: sections, verdicts, tables and figures, then every file of its folder, and its run."""

from __future__ import annotations

import base64
import csv
import io
import os
import platform
import shlex
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from importlib import metadata
from importlib.resources import files
from pathlib import Path
from typing import Any

from pipeline.cores import available_cores
from pipeline.figures import dataset_figure, report_figure
from pipeline.figures.style import DPI, SavedFigure
from pipeline.labels import dataset_name
from pipeline.report.claims import BADGES, TEST, Claim, claims_of, claims_table
from pipeline.report.content import Section, failed_check_lines, sections_of
from pipeline.report.paper import CITATION, SOURCE_ERRORS
from pipeline.report.tables import (
    accuracy_table,
    certified_points,
    certified_table,
    distortion_table,
    other_table,
    time_table,
)
from pipeline.report.tracked import Reader, TrackedRun
from pipeline.tables import Table
from pipeline.tracking import runs as tracking_runs
from pipeline.tracking.store import TrackingStore

_LIBRARIES = ("numpy", "scipy", "torch", "scikit-learn", "mlflow", "hydra-core")


@dataclass
class SectionReport:
    """A section with everything that is shown of it."""

    section: Section
    claims: list[Claim]
    tables: list[Table]
    more_tables: list[Table]
    figures: list[SavedFigure]


@dataclass
class DatasetReport:
    """A dataset: its sections, what certified tuning adds on it, and remarks on its data."""

    name: str
    parts: list[SectionReport]
    certified: Table | None
    figures: list[SavedFigure]
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
    datasets: list[DatasetReport]
    failed_checks: list[str]
    runs: list[TrackedRun]
    made: str = field(default_factory=lambda: datetime.now().astimezone().strftime("%Y-%m-%d %H:%M"))

    @property
    def parts(self) -> list[SectionReport]:
        """All sections."""
        return [part for dataset in self.datasets for part in dataset.parts]

    @property
    def in_paper(self) -> bool:
        """Whether the paper has numbers for some of the data."""
        return any(part.section.in_paper for part in self.parts)

    @property
    def commits(self) -> list[str]:
        """Commits that the runs were made with, shortened."""
        return sorted({run.commit[:10] for run in self.runs if run.commit})

    @property
    def machine(self) -> str:
        """The class of machine, never its name: ``2 cores, 24 GB memory, Intel(R) Xeon(R) …, Linux``."""
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        return f"{available_cores()} cores, {memory:.0f} GB memory, {_processor()}, {platform.system()}"

    @property
    def versions(self) -> str:
        """``Python 3.11.7, numpy 2.4.6, …``."""
        found = [f"{name} {metadata.version(name)}" for name in _LIBRARIES]
        return ", ".join([f"Python {platform.python_version()}", *found])


def build_report(reader: Reader, runs: list[TrackedRun], name: str, folder: Path, figures: str = "auto") -> Report:
    """Sort the runs and draw everything; the figures are written into ``folder/figures``."""
    by_dataset: dict[str, list[Section]] = defaultdict(list)
    sections = sections_of(runs)
    for section in sections:
        by_dataset[section.dataset].append(section)
    datasets, drawn = [], folder / "figures"
    for dataset, own in by_dataset.items():
        own_figures = dataset_figure.draw(drawn, own, reader, which=figures, name=f"{dataset}-{{}}", everywhere=True)
        notes = sorted({run.notes for section in own for run in section.runs if run.notes})
        parts = [_section_report(section, reader, drawn, figures) for section in own]
        table = certified_table(certified_points(own, reader))
        datasets.append(DatasetReport(dataset, parts, table, own_figures, notes))
    return Report(name, folder, datasets, failed_check_lines(sections, reader), runs)


def _section_report(section: Section, reader: Reader, folder: Path, which: str) -> SectionReport:
    figures = report_figure.draw(folder, section, reader, which=which, name=f"{section.slug}-{{}}", everywhere=True)
    tables = [accuracy_table(section), time_table(section)] if section.shown_rows else []
    more = [distortion_table(section, reader), other_table(section)]
    claims = claims_of(section, reader) if section.in_paper else []
    if not any(comparison.measured for claim in claims for comparison in claim.comparisons):
        claims = []
    return SectionReport(section, claims, tables, [t for t in more if t], figures)


def write(report: Report) -> None:
    """Write index.html and table.md, table.csv, table.tex."""
    files = {
        "index.html": page(report),
        "table.md": markdown(report),
        "table.csv": csv_rows([part.section for part in report.parts]),
        "table.tex": "\n".join(t.latex(p.section.title) for p in report.parts for t in p.tables),
    }
    for name, text in files.items():
        (report.folder / name).write_text(text)


def markdown(report: Report) -> str:
    """All tables and verdicts."""
    lines = [f"# {report.name}", "", f"Made {report.made} on {report.machine}.", f"{report.versions}.", ""]
    for dataset in report.datasets:
        lines += [f"## {dataset.title}", "", *(f"{note}\n" for note in dataset.notes)]
        for part in dataset.parts:
            lines += [f"### {sentence(part.section.label)}", ""]
            lines += [table.markdown(level=4) for table in (*part.tables, *part.more_tables)]
            lines += [claims_table(part.claims).markdown(level=4), TEST, ""] if part.claims else []
        lines += [dataset.certified.markdown(level=3)] if dataset.certified else []
    if report.failed_checks:
        lines += ["## Failed checks", "", *(f"- {line}" for line in report.failed_checks), ""]
    return "\n".join(lines)


def sentence(text: str) -> str:
    """The text with a capital letter."""
    return text[:1].upper() + text[1:]


def csv_rows(sections: list[Section]) -> str:
    """Every measured cell as one line: what it is, its numbers (percent), what it rests on, the paper's number."""
    records = [_record(section, row, cell) for section in sections for row in section.rows for cell in row.cells]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(records[0]) if records else ["dataset"])
    writer.writeheader()
    writer.writerows({key: inert(value) for key, value in record.items()} for record in records)
    return stream.getvalue()


def inert(value: str | int | float) -> str | int | float:
    """As a spreadsheet takes it for text: a name that starts like a formula would be computed when it is opened."""
    return f"'{value}" if isinstance(value, str) and value.startswith(("=", "+", "-", "@", "\t", "\r")) else value


def _record(section: Section, row: Any, cell: Any) -> dict[str, str | int | float]:
    paper = row.published(section.dataset, cell.setting.attack) if cell.setting.is_paper else None
    record: dict[str, str | int | float] = {
        "dataset": section.dataset,
        "setup": section.label,
        "model": row.key.model,
        "model_label": row.label,
        "train_epsilon": "" if row.key.epsilon is None else row.key.epsilon,
        "attack": cell.setting.attack,
        "attack_label": cell.setting.label,
        "seeds": " ".join(str(seed) for seed in sorted(cell.runs)),
        "n_attacked": cell.setting.n_attacked,
        "n_test": cell.n_test,
        "l2_cap": cell.setting.l2_cap,
    }
    for metric in ("clean_accuracy", "robust_accuracy", "accuracy_at_l2_cap", "certified_accuracy"):
        value = cell.stat(metric)
        record[f"{metric}_mean"] = round(100 * value.mean, 4) if value else ""
        record[f"{metric}_std"] = round(100 * value.std, 4) if value and value.n > 1 else ""
    for metric in ("distortion_l2_median", "queries_mean", "tune_seconds", "train_seconds", "attack_seconds"):
        value = cell.stat(metric)
        record[metric] = round(value.mean, 4) if value else ""
    return record | {
        "paper_mean": paper.mean if paper else "",
        "paper_std": paper.std if paper else "",
        "paper_minutes": paper.minutes if paper else "",
        "failed_checks": "; ".join(cell.failed_checks),
    }


def publish(report: Report, store: TrackingStore) -> str:
    """Keep the report in MLflow, in a run of its own (tag ``role=report``), and return the run's id."""
    verdicts = [f"- {p.section.title}: {claim.text}: **{claim.verdict}**" for p in report.parts for claim in p.claims]
    note = [f"**Report {report.name}**, made {report.made}: open `index.html` among the artifacts.", "", *verdicts]
    tags = {
        "role": "report",
        "dataset": ", ".join(dataset.name for dataset in report.datasets)[:4000],
        "model": "(report)",
        "mlflow.note.content": "\n".join(note)[:8000],
        "mlflow.source.name": "pipeline.report",
    }
    run_id = tracking_runs.start(store, f"report · {report.name}", tags)
    with tracking_runs.filled(store, run_id):
        store.client.log_metric(run_id, "runs_reported", len(report.runs))
        store.client.log_metric(run_id, "checks_failed", len(report.failed_checks))
        store.client.log_artifacts(run_id, str(report.folder))
    return run_id


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


# Of the browser: a figure of 6 inches is 528 wide.
_PIXELS_PER_INCH = 88


def page(report: Report) -> str:
    """The self-contained HTML page: style and images inside, nothing fetched."""
    template = _environment().get_template("page.html.j2")
    style = files(__package__).joinpath("style.css").read_text()
    overview = [part for part in report.parts if part.claims]
    return template.render(
        report=report,
        style=style,
        overview=overview,
        claim_texts=[claim.text for claim in overview[0].claims] if overview else [],
        test=TEST,
        citation=CITATION,
        source_errors=SOURCE_ERRORS,
        missing=_missing(report),
    )


def data_uri(path: Path, kind: str = "png") -> str:
    """A picture as a data address."""
    return f"data:image/{kind};base64," + base64.b64encode(path.read_bytes()).decode()


def shown_width(path: Path) -> int:
    """Pixels of the page that a picture takes: letters have the same size in all of them, whatever their width."""
    from PIL import Image

    with Image.open(path) as image:
        return round(image.width * _PIXELS_PER_INCH / DPI)


def _missing(report: Report) -> list[tuple[str, str]]:
    """Figures that the runs at hand do not give, with the command that would."""
    wanted = []
    for dataset in report.datasets:
        drawn = {figure.id for part in dataset.parts for figure in part.figures}
        command = f"python -m pipeline.run -m experiment={{}} dataset={dataset.name}{_own_file(dataset.parts)}"
        if not any(id.endswith("-over_epsilon") for id in drawn):
            wanted.append((f"{dataset.title}: accuracy over ε and K", command.format("attack_strength")))
        if dataset.certified is None:
            wanted.append((f"{dataset.title}: what certified tuning adds", command.format("certified")))
        if not all(part.section.in_paper for part in dataset.parts):
            continue
        if not any(part.section.row("natural") for part in dataset.parts if part.tables):
            wanted.append((f"{dataset.title}: the paper's table", command.format("paper_tables")))
    return wanted


def _own_file(parts: Sequence[Any]) -> str:
    """What a user's own data needs on the command line beside its name; nothing for the datasets that come along."""
    params: dict[str, str] = next((run.params for part in parts for row in part.section.rows for run in row.runs), {})
    given = {
        key: params.get(f"dataset.{key}", "None") for key in ("path", "id", "test_path", "label", "scale", "classes")
    }
    if given["path"] == given["id"] == "None":
        return ""
    return "".join(f" {shlex.quote(f'dataset.{key}={value}')}" for key, value in given.items() if value != "None")


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pipeline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = data_uri
    environment.filters["shown_width"] = shown_width
    environment.filters["badge"] = lambda claim: BADGES.get(claim.verdict, "none")
    environment.filters["sentence"] = sentence
    return environment
