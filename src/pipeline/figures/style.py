"""How figures look and where they go: PNG for light and dark pages, SVG for papers."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours: told apart by colour-blind readers, on white and on dark grey.
BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, GREY = (
    "#0a84c6",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#8a8f98",
)
CYCLE = (BLUE, ORANGE, GREEN, PINK, YELLOW, SKY, GREY)
COLOURS = {"natural": GREY, "adv_linear_svm": ORANGE, "adv_svm_d": BLUE, "adv_svm_c": GREEN, "svc": PINK}
PROVED, BROKEN = GREEN, ORANGE
_LIGHT = {"text": "#1f2328", "soft": "#d0d7de", "ground": "#ffffff"}
_DARK = {"text": "#e6e8eb", "soft": "#3a4048", "ground": "#16191d"}
DPI = 130
# Inches of one panel, and of the space beside the panels that the legend takes.
PANEL, LEGEND = (3.6, 2.7), 1.9
_LETTERS_PER_INCH = 9.0


@dataclass(frozen=True)
class Drawing:
    """A figure to be drawn: what it shows, how to read it, and the function that paints it (once per style)."""

    title: str
    paint: Callable[[], Figure]
    caption: str = ""


@dataclass(frozen=True)
class SavedFigure:
    """A drawn figure and its files; ``dark`` and ``svg`` are None when only the PNG was asked for."""

    id: str
    title: str
    caption: str
    png: Path
    dark: Path | None = None
    svg: Path | None = None


def save(drawing: Drawing, folder: Path, id: str, *, everywhere: bool = False) -> SavedFigure:
    """Write ``id.png``, and with ``everywhere`` also ``id-dark.png`` and ``id.svg``."""
    folder.mkdir(parents=True, exist_ok=True)
    png = folder / f"{id}.png"
    dark, svg = (folder / f"{id}-dark.png", folder / f"{id}.svg") if everywhere else (None, None)
    for colours, targets in ((_LIGHT, (png, svg)), (_DARK, (dark,))):
        if not any(targets):
            continue
        import matplotlib

        with matplotlib.rc_context(_settings(colours)):
            figure = drawing.paint()
            width = int(_LETTERS_PER_INCH * figure.get_figwidth())
            figure.suptitle(textwrap.fill(drawing.title, width), fontsize=11, fontweight="bold")
            arrange(figure)
            for target in filter(None, targets):
                # No date inside the file: the same runs give the same bytes.
                meta = {"Date": None} if target.suffix == ".svg" else {"Software": None}
                figure.savefig(target, dpi=DPI, metadata=meta)
    return SavedFigure(id, drawing.title, drawing.caption, png, dark, svg)


def arrange(figure: Figure) -> None:
    """Find the places of all panels, once: a figure with a layout to find is drawn twice for every file."""
    engine = figure.get_layout_engine()
    if engine is not None:
        figure.set_dpi(DPI)
        engine.execute(figure)
        figure.set_layout_engine(None)  # "none" would leave a placeholder, and that a second drawing


def panels_of(
    count: int, *, columns: int = 2, size: tuple[float, float] = PANEL, legend: bool = True, **share: Any
) -> Any:
    """A figure with ``count`` panels in rows of ``columns``: (figure, list of axes).

    A panel has the same size in every figure, so that no page blows a single one up.
    """
    from matplotlib.figure import Figure

    columns = max(1, min(columns, count))
    rows = max(1, -(-count // columns))
    width, height = size[0] * columns + (LEGEND if legend else 0.0), size[1] * rows + 0.4
    figure = Figure(figsize=(width, height), layout="constrained")
    grid = figure.subplots(rows, columns, squeeze=False, **share)
    for axes in grid.flat[count:]:
        axes.set_visible(False)
    return figure, list(grid.flat[:count])


def legend_beside(figure: Figure) -> None:
    """One legend for all panels, beside them: it never covers a curve."""
    found: dict[str, Any] = {}
    for axes in figure.axes:
        found |= {label: handle for handle, label in zip(*axes.get_legend_handles_labels()) if label not in found}
    if found:
        labels = [textwrap.fill(label, 26) for label in found]
        figure.legend(handles=list(found.values()), labels=labels, loc="outside right center", fontsize=8)


def tidy(axes: Any) -> None:
    """Axes without a box, with a light grid below the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.6, linewidth=0.6)
    axes.set_axisbelow(True)


def _settings(colours: dict[str, str]) -> Any:
    from cycler import cycler

    text = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colours["text"])
    ground = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), colours["ground"])
    soft = {"axes.edgecolor": colours["soft"], "grid.color": colours["soft"]}
    more = {"font.size": 9.5, "axes.titlesize": 10, "legend.frameon": False, "lines.linewidth": 1.8}
    return text | ground | soft | more | {"svg.hashsalt": "advsvm", "axes.prop_cycle": cycler(color=list(CYCLE))}
