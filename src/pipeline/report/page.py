"""The self-contained HTML page: style and images inside, nothing fetched."""

from __future__ import annotations

import base64
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.report.claims import FAILS, HOLDS, MISSING, NOISE, ONE_SEED, TEST, Claim
from pipeline.report.paper import CITATION, SOURCE_ERRORS

if TYPE_CHECKING:
    from pipeline.report.build import Report

_BADGES = {HOLDS: "good", FAILS: "bad", NOISE: "open", ONE_SEED: "none", MISSING: "none"}


def render(report: Report) -> str:
    """The page as text."""
    template = _environment().get_template("page.html.j2")
    style = files(__package__).joinpath("style.css").read_text()
    overview = [part for part in report.parts if part.claims]
    return template.render(
        report=report,
        style=style,
        overview=overview,
        claim_texts=[claim.text for claim in overview[0].claims] if overview else [],
        test=TEST,
        citation=CITATION,
        source_errors=SOURCE_ERRORS,
        missing=_missing(report),
    )


def data_uri(path: Path) -> str:
    """A PNG as a data address."""
    return "data:image/png;base64," + base64.b64encode(path.read_bytes()).decode()


def _missing(report: Report) -> list[tuple[str, str]]:
    """Figures that the runs at hand do not give, with the command that would."""
    wanted = []
    for dataset in report.datasets:
        drawn = {figure.id for part in dataset.parts for figure in part.figures}
        command = f"python -m pipeline.run -m experiment={{}} dataset={dataset.name}"
        if not any(id.endswith("-over-epsilon") for id in drawn):
            wanted.append((f"{dataset.title}: accuracy over ε and K", command.format("attack_strength")))
        if dataset.certified is None:
            wanted.append((f"{dataset.title}: what certified tuning adds", command.format("certified")))
        if not any(part.section.row("natural") for part in dataset.parts if part.tables):
            wanted.append((f"{dataset.title}: the paper's table", command.format("paper_tables")))
    return wanted


def _badge(claim: Claim | Any) -> str:
    return _BADGES.get(claim.verdict, "none")


@cache
def _environment() -> Any:
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("pipeline.report", "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["data_uri"] = data_uri
    environment.filters["badge"] = _badge
    environment.filters["sentence"] = lambda text: text[:1].upper() + text[1:]
    return environment
