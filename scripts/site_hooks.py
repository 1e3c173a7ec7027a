"""What the documentation site needs beyond Markdown: formulas as MathML, notebooks and linked source as pages.

All of it happens while the site is built, so that its pages load nothing from anywhere.
"""

from __future__ import annotations

import html
import json
import re
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files, InclusionLevel

_FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.S)
# What the tests are told about a block: ```sh fails, ```python file=my_attack.py
_FENCE = re.compile(r"^```(\w+) (?:file=(\S+)|[a-z]+)$", re.M)
_NOTEBOOK = re.compile(r"\]\(([\w/]+)\.ipynb\)")
# A link that leaves docs/ for the source: ../src/models/training.py
_SOURCE = re.compile(r"\]\((?:\.\./)+(src/[\w/]+\.py)\)")


def on_files(files: Files, config: Any) -> Files:
    """Add a page for every notebook and for every source file that a page links to, and the font of formulas."""
    docs = Path(config.docs_dir)
    # Scripts sit where they belong only with a font made for formulas, and few systems have one.
    font = (Path(find_spec("ziamath").origin).parent / "fonts" / "STIXTwoMath-Regular.ttf").read_bytes()
    files.append(File.generated(config, "stylesheets/STIXTwoMath.ttf", content=font))
    for notebook in sorted(docs.glob("notebooks/*.ipynb")):
        name = notebook.relative_to(docs).with_suffix(".md").as_posix()
        files.append(File.generated(config, name, content=notebook_page(notebook)))
    linked = {name for page in docs.rglob("*.md") for name in _SOURCE.findall(page.read_text())}
    for name in sorted(linked):
        code = (docs.parent / name).read_text()
        page = f"# `{name}`\n\n````python\n{code}\n````\n"
        files.append(File.generated(config, _page_of(name), content=page, inclusion=InclusionLevel.NOT_IN_NAV))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Links to source and notebooks lead to their pages; fences show names of files, not what tests are told."""
    markdown = _FENCE.sub(lambda m: f'```{m[1]} title="{m[2]}"' if m[2] else f"```{m[1]}", markdown)
    if page.file.generated_by is None:  # the page of a notebook also links to the notebook itself
        markdown = _NOTEBOOK.sub(r"](\1.md)", markdown)
    depth = "../" * page.file.src_uri.count("/")
    return _SOURCE.sub(lambda match: f"]({depth}{_page_of(match[1])})", markdown)


def on_page_content(content: str, **_: Any) -> str:
    """Formulas become MathML, which browsers draw by themselves."""
    return _FORMULA.sub(_mathml, content)


def notebook_page(notebook: Path) -> str:
    """The cells and their stored outputs as Markdown."""
    lines = []
    for cell in json.loads(notebook.read_text())["cells"]:
        text = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            lines += [_NOTEBOOK.sub(r"](\1.md)", text), ""]
            continue
        lines += ["```python", text, "```", ""]
        for output in cell["outputs"]:
            lines += _output(output)
    name = notebook.name
    return "\n".join([*lines, "---", "", f"This page is a notebook: [{name}]({name}).", ""])


def _output(output: dict[str, Any]) -> list[str]:
    data = output.get("data", {})
    if "image/png" in data:
        return [f"![](data:image/png;base64,{''.join(data['image/png']).strip()})", ""]
    text = "".join(output.get("text", data.get("text/plain", ""))).rstrip()
    return ["```text", text, "```", ""] if text else []


def _page_of(source: str) -> str:
    return f"source/{source.removeprefix('src/').removesuffix('.py')}.md"


def _mathml(match: re.Match[str]) -> str:
    formula = html.unescape(match[2]).strip()
    # The converter knows \bigl before a bracket, not before a command.
    formula = re.sub(r"\\[Bb]igg?[lr]?\\[lr]Vert", lambda m: r"\lVert" if "lVert" in m[0] else r"\rVert", formula)
    formula = formula.replace("{aligned}", "{align*}").replace(r"\mathcal H", "ℋ").replace(r"\mathcal N", "𝒩")
    block = match[1] == "div"
    drawn = convert(formula, display="block" if block else "inline")
    # Bars that stand by themselves would each stretch to the height of the line, not of what they enclose.
    drawn = re.sub(r"<mo(?: [^>]*)?>(&#x02016;|&#x02225;|&#x0007C;)</mo>", r'<mo stretchy="false">\1</mo>', drawn)
    return f'<div class="math">{drawn}</div>' if block else drawn
