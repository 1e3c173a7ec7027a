"""The self-contained HTML page: style and images inside, nothing fetched."""

from __future__ import annotations

import base64
import shlex
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.figures.style import DPI
from pipeline.report.build import sentence
from pipeline.report.claims import EQUAL, FAILS, HOLDS, MISSING, NOISE, ONE_SEED, PARTLY, TEST, Claim
from pipeline.report.paper import CITATION, SOURCE_ERRORS

if TYPE_CHECKING:
    from pipeline.report.build import Report

# Of the browser: a figure of 6 inches is 528 wide.
_PIXELS_PER_INCH = 88
_BADGES = {HOLDS: "good", FAILS: "bad", NOISE: "open", PARTLY: "open", EQUAL: "none", ONE_SEED: "none", MISSING: "none"}


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


def data_uri(path: Path, kind: str = "png") -> str:
    """A picture as a data address."""
    return f"data:image/{kind};base64," + base64.b64encode(path.read_bytes()).decode()


def shown_width(path: Path) -> int:
    """Pixels of the page that a picture takes: letters have the same size in all of them, whatever their width."""
    from PIL import Image

    with Image.open(path) as image:
        return round(image.width * _PIXELS_PER_INCH / DPI)


def _missing(report: Report) -> list[tuple[str, str]]:
    """Figures that the runs at hand do not give, with the command that would."""
    wanted = []
    for dataset in report.datasets:
        drawn = {figure.id for part in dataset.parts for figure in part.figures}
        command = f"python -m pipeline.run -m experiment={{}} dataset={dataset.name}{_own_file(dataset.parts)}"
        if not any(id.endswith("-over_epsilon") for id in drawn):
            wanted.append((f"{dataset.title}: accuracy over ε and K", command.format("attack_strength")))
        if dataset.certified is None:
            wanted.append((f"{dataset.title}: what certified tuning adds", command.format("certified")))
        if not all(part.section.in_paper for part in dataset.parts):
            continue
        if not any(part.section.row("natural") for part in dataset.parts if part.tables):
            wanted.append((f"{dataset.title}: the paper's table", command.format("paper_tables")))
    return wanted


def _own_file(parts: Sequence[Any]) -> str:
    """What a user's own data needs on the command line beside its name; nothing for the datasets that come along."""
    params: dict[str, str] = next((run.params for part in parts for row in part.section.rows for run in row.runs), {})
    given = {
        key: params.get(f"dataset.{key}", "None") for key in ("path", "id", "test_path", "label", "scale", "classes")
    }
    if given["path"] == given["id"] == "None":
        return ""
    return "".join(f" {shlex.quote(f'dataset.{key}={value}')}" for key, value in given.items() if value != "None")


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
    environment.filters["shown_width"] = shown_width
    environment.filters["badge"] = _badge
    environment.filters["sentence"] = sentence
    return environment
