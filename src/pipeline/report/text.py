"""The tables as Markdown, LaTeX and CSV."""

from __future__ import annotations

import csv
import io

from pipeline.report.claims import TEST, Claim
from pipeline.report.content import Section
from pipeline.report.tables import Entry, Table


def markdown_table(table: Table, level: int = 4) -> str:
    """A table with its title and notes; spanning headers are joined into the column names."""
    lines = [f"{'#' * level} {table.title}", "", "| " + " | ".join(_flat_columns(table)) + " |"]
    lines.append("|---" * len(table.columns) + "|")
    for row in table.rows:
        lines.append("| " + " | ".join(_markdown_entry(entry) for entry in row) + " |")
    return "\n".join([*lines, "", *(f"{note}\n" for note in table.notes)])


def markdown_claims(claims: list[Claim], level: int = 4) -> str:
    """Verdicts with every comparison."""
    lines = [f"{'#' * level} The paper's claims", "", "| claim | verdict | ours | paper's means |", "|---|---|---|---|"]
    for claim in claims:
        ours = "<br>".join(f"{c.label}: {c.text}, {c.verdict}" for c in claim.comparisons)
        paper = "<br>".join(f"{c.label}: {c.paper_text}" for c in claim.comparisons)
        lines.append(f"| {claim.text} | **{claim.verdict}** | {ours} | {paper} |")
    return "\n".join([*lines, "", TEST, ""])


def latex_table(table: Table, section: Section) -> str:
    """A booktabs table for a paper."""
    spans = " & ".join(
        rf"\multicolumn{{{n}}}{{c}}{{{_tex(text)}}}" if n > 1 else _tex(text) for text, n in table.groups
    )
    head = " & ".join(_tex(column) for column in table.columns)
    body = [" & ".join(_tex(entry.text) for entry in row) + r" \\" for row in table.rows]
    failed = [f"{_tex(f)}: {_tex(row[0].text)}" for row in table.rows for entry in row for f in entry.failed]
    notes = [_tex(note) for note in table.notes] + list(dict.fromkeys(failed))
    return "\n".join(
        [
            r"\begin{table}[htbp]\centering\small",
            rf"\caption{{{_tex(section.title)}. {_tex(table.title)}.}}",
            r"\begin{tabular}{l" + "r" * (len(table.columns) - 1) + "}",
            r"\toprule",
            *([spans + r" \\"] if table.groups else []),
            head + r" \\",
            r"\midrule",
            *body,
            r"\bottomrule",
            r"\end{tabular}",
            r"\\[2pt] \parbox{\linewidth}{\footnotesize " + " ".join(notes) + "}",
            r"\end{table}",
            "",
        ]
    )


def csv_rows(sections: list[Section]) -> str:
    """Every measured cell as one line: what it is, its numbers (percent), what it rests on, the paper's number."""
    records = [record for section in sections for record in _records(section)]
    stream = io.StringIO()
    writer = csv.DictWriter(stream, fieldnames=list(records[0]) if records else ["dataset"])
    writer.writeheader()
    writer.writerows(records)
    return stream.getvalue()


def _records(section: Section) -> list[dict[str, str | int | float]]:
    records = []
    for row in section.rows:
        for cell in row.cells:
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
            record |= {
                "paper_mean": paper.mean if paper else "",
                "paper_std": paper.std if paper else "",
                "paper_minutes": paper.minutes if paper else "",
                "failed_checks": "; ".join(cell.failed_checks),
            }
            records.append(record)
    return records


def _flat_columns(table: Table) -> list[str]:
    groups = [text for text, n in table.groups for _ in range(n)] or [""] * len(table.columns)
    return [f"{group}: {column}" if group else column for group, column in zip(groups, table.columns)]


def _markdown_entry(entry: Entry) -> str:
    parts = [entry.text, *([f"<sub>{entry.below}</sub>"] if entry.below else []), *(f"**⚠ {f}**" for f in entry.failed)]
    return "<br>".join(parts).replace("|", "\\|")


def _tex(text: str) -> str:
    swaps = {"&": r"\&", "%": r"\%", "_": r"\_", "#": r"\#", "±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$"}
    swaps |= {"ε": r"$\varepsilon$", "γ": r"$\gamma$", "∞": r"$_\infty$", "–": "--", "√": r"$\surd$", "·": r"$\cdot$"}
    swaps |= {"“": "``", "”": "''", "’": "'", "⚠": ""}
    return "".join(swaps.get(character, character) for character in text)
