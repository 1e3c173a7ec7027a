"""Write docs/results.md: a reading, verdicts at a glance, and one page per dataset, all from one file of numbers.

The numbers are kept beside it as ``results.json`` (means and deviations in percent, comparisons, seconds), so that the
pages can be written anew, and the reading be checked, without the runs.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

from pipeline.errors import UserError
from pipeline.figures.style import SavedFigure
from pipeline.labels import dataset_name
from pipeline.paths import write_whole
from pipeline.report.build import Report, SectionReport, sentence
from pipeline.report.claims import TEST, Claim, Comparison, untested
from pipeline.report.content import PAPER_COLUMNS, Cell, Row
from pipeline.report.paper import CITATION, SOURCE_ERRORS
from pipeline.report.tables import BracketPoint, certified_points
from pipeline.report.tracked import Reader
from pipeline.tables import DASH, Entry, Stat, Table, name, seeds_text

READING = "reading.md"
_KEY_FIGURES = ("-against_paper", "-over_steps", "-over_epsilon", "-over_iterations", "-brackets", "-gallery")
Pair = tuple[float, float | None] | None


def write_docs(report: Report, reader: Reader, target: Path) -> Path:
    """Store the report's numbers and figures beside ``target``, and write the pages from them."""
    (target.parent / "figures").mkdir(parents=True, exist_ok=True)
    write_whole(target.with_suffix(".json"), compact(stored(report, reader, target)) + "\n")
    return render(target)


def compact(results: dict[str, Any]) -> str:
    """JSON with one line per cell and comparison: a change of one number is a change of one line."""
    text = json.dumps(results, indent=1, ensure_ascii=False)
    return re.sub(r"\{[^{}]*\}", lambda found: " ".join(found[0].split()), text)


def stored(report: Report, reader: Reader, target: Path) -> dict[str, Any]:
    """Everything the pages show."""
    folder = target.parent / "figures"
    tuning = {d.name: certified_points([part.section for part in d.parts], reader) for d in report.datasets}
    return {
        "made": report.made,
        "runs": len(report.runs),
        "machine": report.machine,
        "versions": report.versions,
        "commits": report.commits,
        "failed_checks": report.failed_checks,
        "notes": {dataset.name: dataset.notes for dataset in report.datasets},
        "sections": [_stored_section(part, folder) for part in report.parts if part.tables],
        "tuning": {name: [_stored_point(point) for point in points] for name, points in tuning.items() if points},
        "figures": {d.name: [_copied(figure, folder) for figure in d.figures] for d in report.datasets},
    }


def _stored_section(part: SectionReport, folder: Path) -> dict[str, Any]:
    section = part.section
    cells = []
    for row in section.shown_rows:
        clean = Stat.of(row.shared("clean_accuracy").values())
        if clean is not None:
            first = row.cells[0]
            paper = row.published(section.dataset, "none")
            cells.append(_stored_cell(row, "none", "Clean", None, clean, first, paper))
    for label, column in section.columns().items():
        for row, cell in column.items():
            low, high = zip(*cell.brackets)
            paper = row.published(section.dataset, cell.setting.attack) if cell.setting.is_paper else None
            certified = None if None in low else Stat.of(value for value in low if value is not None)
            cells.append(_stored_cell(row, cell.setting.attack, label, certified, Stat.of(high), cell, paper))
    seconds = []
    for row in section.shown_rows:
        means = [Stat.of(row.shared(f"{stage}_seconds").values()) for stage in ("tune", "train")]
        taken = {kind: round(mean.mean, 2) if mean else None for kind, mean in zip(("grid", "training"), means)}
        minutes = sorted(p.minutes for attack in PAPER_COLUMNS if (p := row.published(section.dataset, attack)))
        seconds.append({"row": row.label} | taken | {"paper_minutes": [minutes[0], minutes[-1]] if minutes else []})
    return {
        "dataset": section.dataset,
        "label": section.label,
        "cells": cells,
        "seconds": seconds,
        "claims": [
            {"id": c.id, "text": c.text, "remark": c.remark, "comparisons": [_without_nan(k) for k in c.comparisons]}
            for c in part.claims
        ],
        "figures": [_copied(figure, folder) for figure in part.figures if figure.id.endswith(_KEY_FIGURES)],
    }


def _stored_cell(
    row: Row, attack: str, column: str, low: Stat | None, high: Stat | None, cell: Cell, paper: Any
) -> dict[str, Any]:
    points = cell.n_test if attack == "none" else cell.setting.n_attacked
    basis = {"points": points, "of": cell.n_test, "seeds": high.n if high else 0}
    numbers = {"certified": _pair(low), "accuracy": _pair(high), "paper": [paper.mean, paper.std] if paper else None}
    return {"model": row.key.model, "row": row.label, "attack": attack, "column": column, **numbers, **basis}


def _stored_point(point: BracketPoint) -> dict[str, Any]:
    numbers = {kind: _pair(getattr(point, kind)) for kind in ("clean", "attacked", "certified")}
    return {"model": point.model, "tuning": point.tuning, "epsilon": point.epsilon, "radius": point.radius, **numbers}


def _pair(stat: Stat | None) -> Pair:
    """Mean and deviation in percent; no deviation of one seed."""
    return (round(100 * stat.mean, 2), round(100 * stat.std, 2) if stat.n > 1 else None) if stat else None


def _without_nan(comparison: Comparison) -> dict[str, Any]:
    fields = dataclasses.asdict(comparison)
    return {k: None if isinstance(v, float) and math.isnan(v) else v for k, v in fields.items() if k != "verdict"}


def _copied(figure: SavedFigure, folder: Path) -> dict[str, str]:
    shutil.copyfile(figure.png, folder / figure.png.name)
    return {"file": figure.png.name, "title": figure.title, "caption": figure.caption}


def claims_in(section: dict[str, Any]) -> list[Claim]:
    """The stored claims, judged anew."""

    def comparison(fields: dict[str, Any]) -> Comparison:
        known = {k: v for k, v in fields.items() if v is not None}
        return Comparison(verdict=untested(known["n"], known.get("mean", math.nan)), **known)

    return [Claim(c["id"], c["text"], tuple(map(comparison, c["comparisons"])), c["remark"]) for c in section["claims"]]


def render(target: Path) -> Path:
    """Write ``target`` and a page per dataset into the folder of its name, from the stored numbers and the reading."""
    source = target.with_suffix(".json")
    try:
        results = json.loads(source.read_text())
    except (OSError, ValueError) as error:
        raise UserError(f"docs: no stored results can be read from {source} ({error})") from error
    reading = target.parent / READING
    pages = {s["dataset"]: dataset_name(s["dataset"]) for s in results["sections"]}
    body = [*([reading.read_text().strip(), ""] if reading.is_file() else []), *_at_a_glance(results)]
    if results["failed_checks"]:
        body += ["## Failed checks", "", *(f"- {line}" for line in results["failed_checks"]), ""]
    body += ["## What is wrong in the sources", "", *(f"- {line}" for line in SOURCE_ERRORS), ""]
    links = [f"- [{title}]({target.stem}/{dataset}.md): every table and figure" for dataset, title in pages.items()]
    headings = re.findall(r"^## (.+)$", "\n".join(body), flags=re.MULTILINE)
    contents = [f"- [{heading}](#{_anchor(heading)})" for heading in headings]
    made = f"Made {results['made']} from {results['runs']} tracked runs, on a machine with {results['machine']}."
    head = ["# Results", "", _comment(target), "", made, f"{results['versions']}.", f"The paper: {CITATION}.", ""]
    write_whole(target, "\n".join([*head, *contents, *links, "", *body]).rstrip() + "\n")
    (target.parent / target.stem).mkdir(exist_ok=True)
    for dataset in pages:
        page = _dataset_page(dataset, results, target)
        write_whole(target.parent / target.stem / f"{dataset}.md", "\n".join(page).rstrip() + "\n")
    return target


def _dataset_page(dataset: str, results: dict[str, Any], target: Path) -> list[str]:
    sections = [section for section in results["sections"] if section["dataset"] == dataset]
    back = f"[Results](../{target.name}) · how to read them, what was found"
    lines = [f"# {dataset_name(dataset)}", "", _comment(target), "", back, ""]
    lines += [f"- [{sentence(s['label'])}](#{_anchor(s['label'])})" for s in sections]
    tuning = results["tuning"].get(dataset, [])
    lines += ["- [What certified tuning adds](#what-certified-tuning-adds)"] if tuning else []
    lines += ["", *(f"Data: {note}\n" for note in results["notes"].get(dataset, []))]
    for section in sections:
        lines += [f"## {sentence(section['label'])}", ""]
        lines += [table.markdown(level=3) for table in section_tables(section) if table.rows]
        lines += [line for figure in section["figures"] for line in _figure(figure)]
    if tuning:
        lines += ["## What certified tuning adds", "", *(table.markdown(level=3) for table in tuning_tables(tuning))]
        lines += [line for figure in results["figures"].get(dataset, []) for line in _figure(figure)]
    return lines


def section_tables(section: dict[str, Any]) -> list[Table]:
    """One small table per question; the comparisons behind the verdicts are in the HTML report."""
    bounded = [c for c in section["cells"] if "≤" not in c["column"]]
    tables = [
        _accuracies("How accurate is it, clean and in the L∞ ball? [%]", bounded),
        _accuracies("How accurate is it within an L2 ball? [%]", [c for c in section["cells"] if "≤" in c["column"]]),
    ]
    claims = [claim for claim in claims_in(section) if any(c.measured for c in claim.comparisons)]
    verdicts = Table("Do the paper's claims hold?", ["claim", "verdict", "comparisons that hold, and the difference"])
    verdicts.rows = [[name(c.text), name(c.verdict), name(c.effect)] for c in claims]
    seconds = Table("How long does it take? [s]", ["model", "whole grid", "training", "paper [min]"])
    for row in section["seconds"]:
        minutes = " to ".join(f"{m:.1f}" for m in row["paper_minutes"]) or DASH
        numbers = [DASH if row[k] is None else f"{row[k]:.3g}" for k in ("grid", "training")]
        seconds.rows.append([name(row["row"]), *map(Entry, numbers), Entry(minutes, kind="paper")])
    return [*tables, verdicts, seconds]


def _accuracies(title: str, cells: list[dict[str, Any]]) -> Table:
    """Ours, and beside it the paper's where it has some."""
    found = {(cell["row"], cell["column"]): cell for cell in cells}
    columns = {
        c: any(cell["paper"] for cell in cells if cell["column"] == c) for c in dict.fromkeys(c for _, c in found)
    }
    table = Table(title, ["model"])
    for column, in_paper in columns.items():
        counts = sorted({(c["points"], c["of"], c["seeds"]) for c in cells if c["column"] == column})
        basis = [f"{p}{f' of {n}' if n > p else ''} points, {seeds_text(s)}" for p, n, s in counts]
        table.columns += [f"{column}, {'; '.join(basis)}", *(["paper"] if in_paper else [])]
    for row in dict.fromkeys(row for row, _ in found):
        entries = [name(row)]
        for column, in_paper in columns.items():
            cell = found.get((row, column))
            entries.append(_bracket(cell))
            entries += [Entry(_number(cell["paper"]) if cell else DASH, kind="paper")] if in_paper else []
        table.rows.append(entries)
    if any(cell["certified"] for cell in cells):
        table.notes.append("[certified, attacked]: true robust accuracy lies between the two.")
    return table


def _bracket(cell: dict[str, Any] | None) -> Entry:
    high = _number(cell["accuracy"] if cell else None)
    return Entry(f"[{_number(cell['certified'])}, {high}]" if cell and cell["certified"] else high)


def tuning_tables(points: list[dict[str, Any]]) -> list[Table]:
    """Per radius r: clean, attacked and certified accuracy over the training radius ε, for every way of tuning."""
    tunings = sorted({p["tuning"] for p in points})
    tables = []
    for radius in sorted({p["radius"] for p in points}):
        for model in sorted({p["model"] for p in points}):
            columns = ["ε (L2)", *["clean", "[certified, PGD]"] * len(tunings)]
            groups = [("", 1)] + [(tuning, 2) for tuning in tunings]
            table = Table(f"In an L2 ball of {radius:g}: {model} [%]", columns, groups=groups)
            own = [p for p in points if (p["radius"], p["model"]) == (radius, model)]
            for epsilon in sorted({p["epsilon"] for p in own}):
                entries = [name(f"{epsilon:.4g}")]
                for tuning in tunings:
                    p = next((p for p in own if (p["epsilon"], p["tuning"]) == (epsilon, tuning)), None)
                    bracket = f"[{_number(p['certified'])}, {_number(p['attacked'])}]" if p else DASH
                    entries += [Entry(_number(p["clean"]) if p else DASH), Entry(bracket)]
                table.rows.append(entries)
            tables.append(table)
    return tables


def _at_a_glance(results: dict[str, Any]) -> list[str]:
    """Claims × datasets, one table per setup."""
    lines = []
    labels = dict.fromkeys(s["label"] for s in results["sections"])
    for label in labels:
        claims = {s["dataset"]: claims_in(s) for s in results["sections"] if s["label"] == label}
        measured = {d: own for d, own in claims.items() if any(k.measured for c in own for k in c.comparisons)}
        texts = dict.fromkeys(c.text for own in measured.values() for c in own)
        if len(measured) < 2:
            continue
        table = Table(sentence(label), ["claim", *map(dataset_name, measured)])
        for text in texts:
            verdicts = [next((c.verdict for c in own if c.text == text), DASH) for own in measured.values()]
            table.rows.append([name(text), *(Entry(verdict) for verdict in verdicts)])
        lines.append(table.markdown(level=3))
    return ["## The paper's claims at a glance", "", *lines, TEST, ""] if lines else []


def _number(pair: Any) -> str:
    if pair is None:
        return DASH
    mean, std = pair
    return f"{mean:.2f} ± {std:.2f}" if std is not None else f"{mean:.2f}"


def _figure(figure: dict[str, str]) -> list[str]:
    return [f"![{figure['title']}](../figures/{figure['file']})", "", f"*{figure['title']}.* {figure['caption']}", ""]


def _anchor(heading: str) -> str:
    """As GitHub makes it: small letters, no punctuation, a dash for every blank."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _comment(target: Path) -> str:
    command = f"python -m pipeline.report docs={target.parent.name}/{target.name}"
    return f"<!-- Written by `{command}`; reading: {READING}. -->"
