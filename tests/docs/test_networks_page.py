"""The part of docs/reading.md about networks says what docs/networks.json holds."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "reading.md").read_text().split("## Networks beside the kernel machines")[1].split("\n## ")[0]
STORED = json.loads((ROOT / "docs" / "networks.json").read_text())
SCRIPT = runpy.run_path(str(ROOT / "scripts" / "networks_page.py"))


@pytest.mark.parametrize("dataset", sorted({run["dataset"] for run in STORED["runs"]}))
def test_a_table_is_the_stored_one(dataset: str) -> None:
    title = SCRIPT["PAIRS"][dataset]
    shown = PAGE.split(f"### {title}\n")[1].split("\n### ")[0].splitlines()
    assert [line for line in shown if line.startswith("|")] == SCRIPT["table"](STORED, dataset)


def test_no_table_is_without_stored_numbers() -> None:
    titles = re.findall(r"^### (.+)$", PAGE, re.MULTILINE)
    told = {SCRIPT["PAIRS"][run["dataset"]] for run in STORED["runs"]}
    assert set(titles) & set(SCRIPT["PAIRS"].values()) == told


def test_a_mean_is_over_the_seeds_and_a_missing_column_is_a_dash() -> None:
    assert SCRIPT["spread"]({"0": 98.0, "1": 99.0, "2": 100.0}) == "99.00 ± 1.00"
    assert SCRIPT["spread"]({"0": 98.5}) == "98.50"
    assert SCRIPT["spread"](None) == "–"


@pytest.mark.parametrize("quote", STORED["quotes"], ids=lambda quote: quote["text"][:40])
def test_a_quoted_number_is_the_stored_mean(quote: dict) -> None:
    """A quote names its cells, [pair, model, column] each, in the order of the numbers in its text."""
    assert quote["text"] in " ".join(PAGE.split())
    numbers = [float(number) for number in re.findall(r"\d+\.\d", quote["text"])]
    runs = {(run["dataset"], run["model"]): run for run in STORED["runs"]}
    values = [list(runs[pair, model][column].values()) for pair, model, column in quote["cells"]]
    assert numbers == [pytest.approx(sum(v) / len(v), abs=0.0501) for v in values]
