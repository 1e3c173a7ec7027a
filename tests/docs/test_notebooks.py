"""The notebooks run from top to bottom and print what they show."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from fenced import numbers, words

NOTEBOOKS = sorted((Path(__file__).resolve().parents[2] / "docs" / "notebooks").glob("*.ipynb"))


def _printed(cells: list[dict[str, Any]]) -> str:
    outputs = [output for cell in cells for output in cell.get("outputs", [])]
    return "".join("".join(output["text"]) for output in outputs if output["output_type"] == "stream")


def _errors(cells: list[dict[str, Any]]) -> list[Any]:
    return [output for cell in cells for output in cell.get("outputs", []) if output["output_type"] == "error"]


def test_there_are_two_and_they_are_small() -> None:
    assert [notebook.stem for notebook in NOTEBOOKS] == ["own_svc", "reading_a_bracket"]
    assert all(notebook.stat().st_size < 60_000 for notebook in NOTEBOOKS)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_prints_what_it_shows(notebook: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    shown = json.loads(notebook.read_text())["cells"]
    running = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(running, timeout=240, kernel_name="python3").execute()
    assert _errors(running.cells) == []
    assert words(_printed(running.cells)) == words(_printed(shown))
    assert numbers(_printed(running.cells)) == pytest.approx(numbers(_printed(shown)), abs=2.5)
