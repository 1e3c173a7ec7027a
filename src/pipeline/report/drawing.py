"""How figures look and where they go: PNG for light and dark pages, SVG for papers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

# Okabe and Ito's colours: told apart by colour-blind readers, on white and on dark grey.
COLOURS = {
    "natural": "#8a8f98",
    "adv_linear_svm": "#d55e00",
    "adv_svm_d": "#0a84c6",
    "adv_svm_c": "#009e73",
    "svc": "#cc79a7",
}
CYCLE = ("#0a84c6", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8a8f98")
_LIGHT = {"text": "#1f2328", "soft": "#d0d7de", "ground": "#ffffff"}
_DARK = {"text": "#e6e8eb", "soft": "#3a4048", "ground": "#16191d"}
_DPI = 130


@dataclass(frozen=True)
class Figure:
    """A drawn figure: title, caption, and its files (``png``, ``dark`` for dark pages, ``svg``)."""

    id: str
    title: str
    caption: str
    png: Path
    dark: Path
    svg: Path


def draw(
    folder: Path, id: str, title: str, caption: str, paint: Callable[[Any], Any], *, suptitle: bool = True
) -> Figure:
    """Call ``paint(pyplot) -> figure`` in both styles and save the files."""
    folder.mkdir(parents=True, exist_ok=True)
    light, dark, svg = folder / f"{id}.png", folder / f"{id}-dark.png", folder / f"{id}.svg"
    for colours, targets in ((_LIGHT, (light, svg)), (_DARK, (dark,))):
        with _style(colours) as plt:
            figure = paint(plt)
            if suptitle:
                figure.suptitle(title, fontsize=11, fontweight="bold")
            figure.tight_layout()
            for target in targets:
                # No date inside the file: the same runs give the same bytes.
                meta = {"Date": None} if target.suffix == ".svg" else {"Software": None}
                figure.savefig(target, dpi=_DPI, metadata=meta)
            plt.close(figure)
    return Figure(id, title, caption, light, dark, svg)


def tidy(axes: Any) -> None:
    """Axes without a box, with a light grid below the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(True, alpha=0.6, linewidth=0.6)
    axes.set_axisbelow(True)


@contextmanager
def _style(colours: dict[str, str]) -> Iterator[Any]:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    text = dict.fromkeys(("text.color", "axes.labelcolor", "xtick.color", "ytick.color"), colours["text"])
    ground = dict.fromkeys(("figure.facecolor", "axes.facecolor", "savefig.facecolor"), colours["ground"])
    soft = {"axes.edgecolor": colours["soft"], "grid.color": colours["soft"]}
    more: dict[str, Any] = {
        "font.size": 9.5,
        "axes.titlesize": 10,
        "legend.frameon": False,
        "lines.linewidth": 1.8,
        "svg.hashsalt": "advsvm",
        "axes.prop_cycle": plt.cycler(color=list(CYCLE)),
    }
    settings: Any = text | ground | soft | more
    with plt.rc_context(settings):
        yield plt
