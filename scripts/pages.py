"""What the pages made of stored numbers share."""

from __future__ import annotations

import re
from collections.abc import Mapping
from statistics import mean, stdev


def spread(values: list[float]) -> str:
    """98.71 of one seed, 98.71 ± 0.20 of several."""
    return f"{mean(values):.2f}" + (f" ± {stdev(values):.2f}" if len(values) > 1 else "")


def fill(page: str, parts: Mapping[str, str]) -> str:
    """The page with each part's text between ``<!-- its name -->`` and the next ``<!-- end -->``."""
    for name, text in parts.items():
        pattern = rf"(<!-- {re.escape(name)} -->\n).*?(<!-- end -->)"
        page = re.sub(pattern, lambda found, text=text: f"{found[1]}\n{text}\n\n{found[2]}", page, flags=re.S)
    return page
