"""The tables of docs/networks.md and docs/robust_tuning.md are those that their stored numbers give."""

from __future__ import annotations

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def beside_the_scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "scripts"))


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["networks_page", "robust_tuning_page"])
def test_the_page_is_the_one_made_of_the_stored_numbers(name: str) -> None:
    maker = script(name)
    page = maker.PAGE.read_text(encoding="utf-8")
    assert maker.render(page) == page, f"run: python scripts/{name}.py write"
    assert page.count("<!-- end -->") == len(re.findall("<!-- (?:table|adv|front)", page)) > 0


@pytest.mark.parametrize("name", ["networks_page", "robust_tuning_page"])
def test_a_changed_number_changes_the_page(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    maker = script(name)
    page = maker.PAGE.read_text(encoding="utf-8")
    for file in ("results.json", "robust_tuning.json", "networks.json"):
        (tmp_path / file).write_text((maker.DOCS / file).read_text())
    stored = json.loads(maker.STORED.read_text())
    clean = stored["runs"][0]["clean"]
    clean[next(iter(clean)) if isinstance(clean, dict) else 0] = 12.34
    (tmp_path / maker.STORED.name).write_text(json.dumps(stored))
    monkeypatch.setattr(maker, "DOCS", tmp_path)
    monkeypatch.setattr(maker, "STORED", tmp_path / maker.STORED.name)
    assert maker.render(page) != page


def test_every_percentage_in_the_words_about_networks_stands_in_a_table() -> None:
    page, reading = ((ROOT / "docs" / name).read_text() for name in ("networks.md", "reading.md"))
    tables = set(re.findall(r"\d+\.\d+", " ".join(line for line in page.splitlines() if line.startswith("|"))))
    words = " ".join(line for line in page.splitlines() if not line.startswith("|"))
    words += reading.split("## Networks beside the kernel machines")[1].split("\n## ")[0]
    quoted = set(re.findall(r"\d+\.\d\d", words)) - {"0.02", "0.05"}  # learning rates
    assert len(quoted) > 5
    assert quoted <= tables
