"""docs/benchmarks.md is made of benchmarks/results.jsonl, and a ratio in it that has doubled since is noticed."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
spec = importlib.util.spec_from_file_location("benchmarks_page", BENCHMARKS / "page.py")
assert spec is not None
assert spec.loader is not None
maker = importlib.util.module_from_spec(spec)
spec.loader.exec_module(maker)

LINES = maker.read((BENCHMARKS / "results.jsonl").read_text(encoding="utf-8"))
LINE = {
    "benchmark": "a",
    "section": "Speed",
    "what": "this",
    "against": "that",
    "shown": "both 1 s",
    "ratio": 0.12345,
    "measured": "2026-11-16",
}


def test_the_page_is_the_one_made_of_the_stored_lines() -> None:
    made = maker.page(LINES, (BENCHMARKS / "page.md").read_text(encoding="utf-8"))
    assert made == maker.PAGE.read_text(encoding="utf-8"), "run: python benchmarks/page.py"


def test_a_line_becomes_a_row_of_its_section() -> None:
    made = maker.page([LINE, {"benchmark": "b", "ratio": 1.0}], "before\n{{ tables }}\nafter")
    assert made.startswith("before\n## Speed\n")
    assert "| this | that | 0.123 | both 1 s | 2026-11-16 |\nafter" in made


def test_a_newer_line_takes_the_place_of_the_older() -> None:
    other, newer = {**LINE, "case": "x"}, {**LINE, "ratio": 0.5}
    assert maker.merge([LINE, other], [newer]) == [newer, other]


def test_what_a_library_prints_between_the_lines_is_passed_over() -> None:
    assert maker.read(f"a warning\n{json.dumps(LINE)}\n") == [LINE]


def test_stored_lines_are_one_of_each_and_name_scripts_that_exist() -> None:
    assert len({maker.identity(line) for line in LINES}) == len(LINES)
    scripts = {line["command"][0] for line in LINES if line["command"]}
    assert {name for name in scripts if not (BENCHMARKS / name).is_file()} == set()


def test_the_page_speaks_to_users_not_of_targets() -> None:
    assert not re.search(r"\b(targets?|not met)\b", maker.PAGE.read_text(encoding="utf-8"), flags=re.IGNORECASE)


CHEAP = {
    tuple(command): list(lines)
    for command, lines in groupby(
        sorted((line for line in LINES if line.get("cheap")), key=lambda line: line["command"]),
        key=lambda line: line["command"],
    )
}


@pytest.mark.ratios
@pytest.mark.timeout(900)
@pytest.mark.parametrize("command", CHEAP, ids=" ".join)
def test_no_cheap_ratio_has_doubled(command: tuple[str, ...]) -> None:
    """Not in two measurements out of two: the first may have met a busy moment."""
    doubled = _doubled(command) and _doubled(command)
    assert doubled == {}, "stored and measured ratio"


def _doubled(command: tuple[str, ...]) -> dict[tuple[str, str], tuple[float, float]]:
    done = subprocess.run(
        [sys.executable, str(BENCHMARKS / command[0]), *command[1:]], capture_output=True, text=True, check=False
    )
    missing = re.search(r"No module named '(\w+)'", done.stderr)
    if missing:
        pytest.skip(f"{missing[1]} is not installed (pip install '.[bench]')")
    assert done.returncode == 0, done.stderr
    now = {maker.identity(line): line for line in maker.read(done.stdout)}
    return {
        maker.identity(line): (line["ratio"], now[maker.identity(line)]["ratio"])
        for line in CHEAP[command]
        if now[maker.identity(line)]["ratio"] > 2 * line["ratio"]
    }
