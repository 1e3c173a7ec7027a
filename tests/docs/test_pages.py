"""The pages of the site: their Python prints what they show, their commands work, every page can be reached."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from fenced import Block, blocks, numbers, printed, script, words

from runs import ENVIRONMENT

REPOSITORY = Path(__file__).resolve().parents[2]
DOCS = REPOSITORY / "docs"
TRIED = ("index.md", "attack.md", "certify.md", "reproduce.md", "extend.md")


def _run(folder: Path, *command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=folder, env=ENVIRONMENT, capture_output=True, text=True, timeout=240)


def _commands(shown: list[Block]) -> list[str]:
    lines = [line for block in shown if block.language == "sh" for line in block.text.splitlines()]
    return [line.replace("python ", f"{sys.executable} ", 1) for line in lines]


@pytest.mark.slow
@pytest.mark.parametrize("page", TRIED)
def test_a_page_prints_what_it_shows_and_its_commands_work(page: str, tmp_path: Path) -> None:
    shown = blocks(DOCS / page)
    for block in shown:
        if block.file is not None:
            (tmp_path / block.file).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / block.file).write_text(block.text)
    if code := script(shown):
        (tmp_path / "page.py").write_text(code)
        answer = _run(tmp_path, sys.executable, "page.py")
        assert answer.returncode == 0, answer.stderr
        assert words(answer.stdout) == words(printed(shown))
        assert numbers(answer.stdout) == pytest.approx(numbers(printed(shown)), abs=2.5)
    for command in _commands(shown):
        answer = _run(tmp_path, "sh", "-c", command)
        assert answer.returncode == 0, f"{command}\n{answer.stdout}{answer.stderr}"
        assert "Traceback" not in answer.stderr


class _Loader(yaml.SafeLoader):
    """mkdocs.yml names a Python function for its anchors; what it is does not matter here."""


_Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda loader, suffix, node: suffix)


def test_every_page_is_in_the_navigation() -> None:
    named = str(yaml.load((REPOSITORY / "mkdocs.yml").read_text(), _Loader)["nav"])
    pages = [page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md")]
    pages += [page.relative_to(DOCS).with_suffix(".md").as_posix() for page in DOCS.rglob("*.ipynb")]
    assert [page for page in pages if f"'{page}'" not in named] == []


def test_no_page_loads_anything_from_the_network() -> None:
    settings = yaml.load((REPOSITORY / "mkdocs.yml").read_text(), _Loader)
    assert settings["theme"]["font"] is False
    assert "://" not in str([settings["extra_css"], settings["extra"], settings["plugins"]])
    assert "://" not in (DOCS / "stylesheets" / "site.css").read_text()
