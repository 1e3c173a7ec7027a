"""docs/benchmarks.md from the lines that the benchmarks print.

    python benchmarks/page.py                   the page from benchmarks/results.jsonl
    python benchmarks/page.py NEW.jsonl ...     first put the lines of these files in the place of older ones

`results.jsonl` holds the newest line of every benchmark and case; page.md is the page around the tables.
"""

import json
import re
import sys
from pathlib import Path

HERE = Path(__file__).parent
RESULTS, FRAME, PAGE = HERE / "results.jsonl", HERE / "page.md", HERE.parent / "docs" / "benchmarks.md"
SHOWN = ("section", "what", "against", "shown")


def read(text: str) -> list[dict]:
    """The lines that are JSON: a benchmark may print others, a library's warning for one."""
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def identity(line: dict) -> tuple[str, str]:
    """Two lines with the same name and case are two measurements of one thing."""
    return line["benchmark"], line.get("case", "")


def merge(old: list[dict], new: list[dict]) -> list[dict]:
    """The newest line of each identity, where the first of them stood; what is new comes last."""
    latest = {identity(line): line for line in (*old, *new)}
    return list(latest.values())


def row(line: dict) -> str:
    """One row of a table."""
    ratio = "" if line.get("ratio") is None else f"{line['ratio']:.3g}"
    shown = re.sub(r"(\d)%", r"\1 %", line["shown"])
    measured = line["measured"] + (", one core" if line.get("cores") == 1 else "")
    measured += ", processor time: other jobs were running" if line.get("clock") == "cpu" else ""
    return f"| {line['what']} | {line['against']} | {ratio} | {shown} | {measured} |"


def page(lines: list[dict], frame: str) -> str:
    """The whole page, what one benchmark measured together; lines without the fields of a row are data only."""
    rows = [line for line in lines if all(key in line for key in SHOWN)]
    names = list(dict.fromkeys(line["benchmark"] for line in rows))
    rows.sort(key=lambda line: (names.index(line["benchmark"]), line.get("case", "")))
    parts = []
    for section in dict.fromkeys(line["section"] for line in lines if line in rows):
        head = "| what | against | ours ÷ theirs | what each reached | measured |\n|---|---|---|---|---|"
        parts.append("\n".join([f"## {section}\n", head, *(row(line) for line in rows if line["section"] == section)]))
    return frame.replace("{{ tables }}", "\n\n".join(parts))


def main() -> None:
    new = [line for name in sys.argv[1:] for line in read(Path(name).read_text(encoding="utf-8"))]
    lines = merge(read(RESULTS.read_text(encoding="utf-8")), new)
    RESULTS.write_text("".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines), encoding="utf-8")
    PAGE.write_text(page(lines, FRAME.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
