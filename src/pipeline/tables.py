"""One table for the terminal, Markdown, LaTeX and HTML, in which every number says what it rests on."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from pipeline.labels import visible

if TYPE_CHECKING:
    from rich.table import Table as RichTable

DASH = "–"


@dataclass(frozen=True)
class Stat:
    """Mean and sample deviation over seeds."""

    mean: float
    std: float
    n: int

    @classmethod
    def of(cls, values: Iterable[float]) -> Stat | None:
        """Of one value per seed; None of nothing."""
        numbers = [float(value) for value in values]
        if not numbers:
            return None
        return cls(statistics.fmean(numbers), statistics.stdev(numbers) if len(numbers) > 1 else 0.0, len(numbers))

    def percent(self) -> str:
        """``98.47 ± 0.12`` in percent; without the deviation when there is one seed."""
        spread = f" ± {100 * self.std:.2f}" if self.n > 1 else ""
        return f"{100 * self.mean:.2f}{spread}"


@dataclass(frozen=True)
class Entry:
    """One entry: the number, what it rests on (seeds, points), the failed checks that concern it."""

    text: str = DASH
    below: str = ""
    failed: tuple[str, ...] = ()
    kind: str = "ours"


def name(text: str, **more: str | tuple[str, ...]) -> Entry:
    """An entry that says what its row is about."""
    return Entry(text, kind="name", **more)  # type: ignore[arg-type]


def seeds_text(count: int) -> str:
    """``3 seeds``."""
    return f"{count} seeds" if count != 1 else "1 seed"


def bracket_of(metrics: Mapping[str, float], bounded: bool) -> tuple[float | None, float]:
    """Certified (None where it was not computed in the attack's own threat) and attacked accuracy, as fractions."""
    certified = metrics.get("certified_accuracy") if "undecided" in metrics else None
    return certified, metrics["robust_accuracy" if bounded else "accuracy_at_l2_cap"]


def bracket_entry(brackets: Sequence[tuple[float | None, float]]) -> Entry:
    """``[97.80, 98.90]`` over seeds, and below it the share of points about which neither side knows."""
    if not brackets:
        return Entry()
    certified, attacked = zip(*brackets)
    high = Stat.of(attacked)
    assert high is not None
    # Seeds with and without a certificate have no common mean.
    low = None if None in certified else Stat.of(value for value in certified if value is not None)
    if low is None:
        return Entry(f"[{DASH}, {high.percent()}]")
    undecided = 100 * (high.mean - low.mean)
    return Entry(f"[{low.percent()}, {high.percent()}]", "" if undecided < 0.005 else f"{undecided:.2f} undecided")


@dataclass
class Table:
    """A titled table; ``groups`` are the spanning headers (text, columns), ``columns`` the headers below them."""

    title: str
    columns: list[str]
    rows: list[list[Entry]] = field(default_factory=list)
    groups: list[tuple[str, int]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def flat_columns(self) -> list[str]:
        """Headers of one line each: the spanning ones are joined to those below."""
        groups = [text for text, n in self.groups for _ in range(n)] or [""] * len(self.columns)
        return [
            f"{group}: {column}" if group and column else group or column for group, column in zip(groups, self.columns)
        ]

    def lift_shared_basis(self) -> None:
        """Say what all entries of a column rest on once, in its header."""
        for place in range(1, len(self.columns)):
            entries = [row[place] for row in self.rows]
            shared = {entry.below for entry in entries if entry.text != DASH}
            if len(shared) == 1 and shared != {""}:
                self.columns[place] = ", ".join(filter(None, (self.columns[place], shared.pop())))
                for row in self.rows:
                    row[place] = replace(row[place], below="")

    def markdown(self, level: int | None = None) -> str:
        """As Markdown, with title and notes if a heading's ``level`` is given."""
        head = [f"{'#' * level} {_md(self.title)}", ""] if level else []
        lines = [_md_row(map(_md, self.flat_columns)), "|---" * len(self.columns) + "|"]
        lines += [_md_row(map(_md_entry, row)) for row in self.rows]
        notes = ["", *(f"{_md(note)}\n" for note in self.notes)] if level else []
        return "\n".join([*head, *lines, *notes])

    def rich(self) -> RichTable:
        """For the terminal; names are shown as they are, whatever markup they look like."""
        from rich.table import Table as RichTable
        from rich.text import Text

        view = RichTable()
        first, *others = self.flat_columns
        view.add_column(Text(first), no_wrap=True)
        for column in others:
            view.add_column(Text(column), justify="right")
        for row in self.rows:
            view.add_row(*(Text(visible("\n".join(filter(None, (entry.text, entry.below))))) for entry in row))
        return view

    def latex(self, caption: str) -> str:
        """A booktabs table for a paper."""
        spans = " & ".join(
            rf"\multicolumn{{{n}}}{{c}}{{{_tex(text)}}}" if n > 1 else _tex(text) for text, n in self.groups
        )
        failed = [f"{_tex(f)}: {_tex(row[0].text)}" for row in self.rows for entry in row for f in entry.failed]
        notes = [_tex(note) for note in self.notes] + list(dict.fromkeys(failed))
        lines = [
            r"\begin{table}[htbp]\centering\small",
            rf"\caption{{{_tex(caption)}. {_tex(self.title)}.}}",
            r"\begin{tabular}{l" + "r" * (len(self.columns) - 1) + "}",
            r"\toprule",
            *([spans + r" \\"] if self.groups else []),
            " & ".join(map(_tex, self.columns)) + r" \\",
            r"\midrule",
            *(" & ".join(_tex(entry.text) for entry in row) + r" \\" for row in self.rows),
            r"\bottomrule",
            r"\end{tabular}",
            r"\\[2pt] \parbox{\linewidth}{\footnotesize " + " ".join(notes) + "}",
            r"\end{table}",
            "",
        ]
        return "\n".join(lines)


def _md_row(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _md(text: str) -> str:
    """Text that Markdown shows as it is: a name may hold ``|``, ``<`` or ``*``."""
    return re.sub(r"[\\|<>*`]|(?<!\w)_|_(?!\w)|\](?=[(\[])", r"\\\g<0>", text).replace("\n", " ")


def _md_entry(entry: Entry) -> str:
    below = [f"<sub>{_md(entry.below)}</sub>"] if entry.below else []
    return "<br>".join([_md(entry.text), *below, *(f"**⚠ {_md(failed)}**" for failed in entry.failed)])


def _tex(text: str) -> str:
    swaps = {c: f"\\{c}" for c in "&%_#${}"} | {"±": r"$\pm$", "≤": r"$\leq$", "≥": r"$\geq$", "∞": r"$_\infty$"}
    swaps |= {"ε": r"$\varepsilon$", "γ": r"$\gamma$", "√": r"$\surd$", "·": r"$\cdot$", "×": r"$\times$"}
    swaps |= {"–": "--", "“": "``", "”": "''", "’": "'", "⚠": "", "\\": r"\textbackslash{}", "^": r"\^{}", "~": r"\~{}"}
    return "".join(swaps.get(character, character) for character in text)
