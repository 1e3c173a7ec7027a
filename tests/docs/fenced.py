"""The fenced blocks of a Markdown page, and running them as a reader would."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the words after it, and its text."""

    language: str
    words: tuple[str, ...]
    text: str

    @property
    def file(self) -> str | None:
        """Where a reader would save it (``file=my_attack.py``)."""
        return next((word.removeprefix("file=") for word in self.words if word.startswith("file=")), None)


def blocks(page: Path) -> list[Block]:
    """All blocks that name a language, in order."""
    found = re.findall(r"^```(\w+)([^\n]*)\n(.*?)^```$", page.read_text(), re.M | re.S)
    return [Block(language, tuple(words.split()), text) for language, words, text in found]


def script(shown: list[Block]) -> str:
    """The Python blocks that are not files of their own, as one script."""
    return "\n".join(block.text for block in shown if block.language == "python" and block.file is None)


def printed(shown: list[Block]) -> str:
    """What the page says that its script prints."""
    return "".join(block.text for block in shown if block.language == "text")


def numbers(text: str) -> list[float]:
    """All numbers in a text."""
    return [float(number) for number in re.findall(r"\d+(?:\.\d+)?", text)]


def words(text: str) -> str:
    """The text without its numbers."""
    return re.sub(r"[\d.]+", "#", text)
