"""Write docs/results.md: the tables and key figures, dated, with a hand-written reading kept in a file beside it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from pipeline.report.build import Part, Report
from pipeline.report.claims import TEST
from pipeline.report.drawing import Figure
from pipeline.report.paper import CITATION, SOURCE_ERRORS
from pipeline.report.text import markdown_claims, markdown_table

READING = "reading.md"
_KEY_FIGURES = ("-against-paper", "-over-steps", "-over-epsilon", "-over-iterations", "-brackets", "-gallery")


def write_docs(report: Report, target: Path) -> Path:
    """Write ``target`` and copy the figures it shows to ``figures/`` beside it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    folder = target.parent / "figures"
    folder.mkdir(exist_ok=True)
    reading = target.parent / READING
    lines = [
        "# Results",
        "",
        f"<!-- Made by `python -m pipeline.report --docs {target.parent.name}/{target.name}`; reading: {READING}. -->",
        "",
        f"Made {report.made} from {len(report.runs)} tracked runs, on a machine with {report.machine}.",
        f"{report.versions}.",
        f"The paper: {CITATION}.",
        "",
    ]
    if reading.is_file():
        lines += [reading.read_text().strip(), ""]
    lines += _at_a_glance(report)
    for dataset in report.datasets:
        lines += [f"## {dataset.title}", "", *(f"Data: {note}\n" for note in dataset.notes)]
        for part in dataset.parts:
            lines += _section(part, folder)
        if dataset.certified:
            lines.append(markdown_table(dataset.certified, level=3))
        if dataset.certified_figure:
            lines += _figure(dataset.certified_figure, folder)
    if report.failed_checks:
        lines += ["## Failed checks", "", *(f"- {line}" for line in report.failed_checks), ""]
    lines += ["## What is wrong in the sources", "", *(f"- {line}" for line in SOURCE_ERRORS), ""]
    temporary = target.with_name(f".{target.name}")
    temporary.write_text("\n".join(lines))
    os.replace(temporary, target)
    return target


def _at_a_glance(report: Report) -> list[str]:
    parts = [part for part in report.parts if part.claims]
    if not parts:
        return []
    lines = ["## The paper's claims at a glance", "", "| claim | " + " | ".join(p.section.title for p in parts) + " |"]
    lines.append("|---" * (len(parts) + 1) + "|")
    for place, claim in enumerate(parts[0].claims):
        lines.append(f"| {claim.text} | " + " | ".join(p.claims[place].verdict for p in parts) + " |")
    return [*lines, "", TEST, ""]


def _section(part: Part, folder: Path) -> list[str]:
    label = part.section.label
    lines = [f"### {label[:1].upper()}{label[1:]}", "", *(markdown_table(table) for table in part.tables)]
    lines += [markdown_claims(part.claims).replace(f"\n{TEST}\n", "")] if part.claims else []
    lines += [markdown_table(table) for table in part.more_tables if len(table.rows) <= 12]
    for figure in part.figures:
        if figure.id.endswith(_KEY_FIGURES):
            lines += _figure(figure, folder)
    return lines


def _figure(figure: Figure, folder: Path) -> list[str]:
    shutil.copyfile(figure.png, folder / figure.png.name)
    return [f"![{figure.title}](figures/{figure.png.name})", "", f"*{figure.title}.* {figure.caption}", ""]
