"""The page in a real browser: nothing fails to load, nothing overflows a phone."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from webdriver import Browser, missing

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(missing() is not None, reason=str(missing())),
]
PHONE, DESK = 400, 1300
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as window:
        yield window


@pytest.mark.parametrize("width", [PHONE, DESK])
@pytest.mark.parametrize("dark", [False, True])
def test_no_console_errors_and_all_images_load(browser: Browser, report: Path, width: int, dark: bool) -> None:
    browser.console()
    browser.open(report / "index.html", width=width, dark=dark)
    images = browser.run("return [...document.images].map(i => i.complete && i.naturalWidth > 50)")
    assert images
    assert all(images)
    assert browser.console() == []
    requests = browser.run(
        "return performance.getEntriesByType('resource').filter(r => !r.name.startsWith('data:')).length"
    )
    assert requests == 0


def test_only_tables_scroll_on_a_phone(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html", width=PHONE)
    assert browser.run("return document.documentElement.scrollWidth") <= PHONE
    boxes = browser.run(
        "return [...document.querySelectorAll('table')].map(t => {"
        " const box = t.closest('.scroll'), r = box.getBoundingClientRect();"
        " return [r.left, r.right, getComputedStyle(box).overflowX, parseFloat(getComputedStyle(t).fontSize)] })"
    )
    assert boxes
    for left, right, overflow, size in boxes:
        assert left >= 0
        assert right <= PHONE
        assert overflow == "auto"
        assert size >= 12


def test_row_names_stay_in_sight_while_a_table_scrolls(browser: Browser, report: Path) -> None:
    browser.open(report / "index.html", width=PHONE)
    left = browser.run(
        "const box = [...document.querySelectorAll('.scroll')].find(b => b.scrollWidth > b.clientWidth + 200);"
        "box.scrollLeft = 150; return box.querySelector('tbody th').getBoundingClientRect().left"
    )
    assert 0 <= left < 40


def test_dark_page_is_dark(browser: Browser, report: Path) -> None:
    grounds = []
    for dark in (False, True):
        browser.open(report / "index.html", width=DESK, dark=dark)
        grounds.append(browser.run("return getComputedStyle(document.body).backgroundColor"))
    assert grounds == ["rgb(255, 255, 255)", "rgb(15, 18, 21)"]
    assert "-dark" not in browser.run("return document.images[0].src.slice(0, 40)")


GITHUB = (
    "body{margin:0;font:16px/1.5 system-ui,sans-serif} main{width:980px;margin:auto} table{border-collapse:collapse}"
    "th,td{border:1px solid;padding:6px 13px} img{max-width:100%}"
)


@pytest.mark.parametrize("page", ["results.md", *sorted(f"results/{p.name}" for p in (DOCS / "results").glob("*.md"))])
def test_no_table_of_the_docs_is_wider_than_a_page_at_1280(browser: Browser, page: str, tmp_path: Path) -> None:
    """As a code host shows them: 980 px for the text beside its own column."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark").enable("table").render((DOCS / page).read_text())
    (tmp_path / "page.html").write_text(f"<meta charset=utf-8><style>{GITHUB}</style><main>{body}</main>")
    browser.open(tmp_path / "page.html", width=1280)
    widths = browser.run("return [...document.querySelectorAll('table')].map(t => t.offsetWidth)")
    assert widths
    assert max(widths) <= 980
