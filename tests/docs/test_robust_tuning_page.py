"""The words of docs/robust_tuning.md are what docs/robust_tuning.json holds; its tables are made of it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"
PAGE = (DOCS / "robust_tuning.md").read_text()
STORED = json.loads((DOCS / "robust_tuning.json").read_text())


@pytest.mark.parametrize("quote", STORED["quotes"], ids=lambda q: q["text"][:40])
def test_a_quoted_number_is_the_stored_one(quote: dict) -> None:
    page = " ".join((DOCS / quote.get("page", "robust_tuning.md")).read_text().split())
    assert quote["text"].format(*quote["numbers"]) in page
