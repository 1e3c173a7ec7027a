"""What attacks changed: images side by side, or, for rows that are no images, features by name and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from pipeline.figures.style import BROKEN, GREY, PROVED, panels_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEATURES = 8


@dataclass(frozen=True)
class Tile:
    """One image: its pixels in [0, 1], what stands below it, and whether its label changed (None: not attacked)."""

    pixels: np.ndarray
    below: str = ""
    broken: bool | None = None
    signed: bool = False


def picture_shape(shape: Sequence[int]) -> tuple[int, ...] | None:
    """The shape as (h, w), (3, h, w) or (h, w, 3) without axes of length 1; None when it is no picture."""
    kept = tuple(int(n) for n in shape if n != 1)
    if len(kept) == 2 or (len(kept) == 3 and 3 in (kept[0], kept[2])):
        return kept
    return None


def as_image(row: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A row of pixels as something ``imshow`` takes; channel-first colour images are turned around."""
    image = np.clip(np.asarray(row, dtype=float), 0, 1).reshape(shape)
    return np.moveaxis(image, 0, -1) if image.ndim == 3 and shape[0] == 3 else image


def gallery(rows: Mapping[str, Sequence[Tile]], shape: tuple[int, ...], above: Sequence[str] = ()) -> Figure:
    """Rows of images with a name each; ``above`` are the captions of the columns."""
    from matplotlib.figure import Figure
    from matplotlib.patches import Rectangle

    count = max(len(tiles) for tiles in rows.values())
    # All tiles on one pair of axes, at places that are known: many small axes take a second to arrange.
    left, top, width, height = 0.45, 0.75, 1.1, 1.25
    wide, tall = left + width * count, top + height * len(rows)
    figure = Figure(figsize=(wide, tall))
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set_axis_off()
    for number, (name, tiles) in enumerate(rows.items()):
        bottom = tall - top - height * (number + 1) + 0.2
        axes.text(left - 0.12, bottom + 0.5, name, rotation=90, ha="center", va="center")
        for column, tile in enumerate(tiles):
            x = left + width * column
            axes.imshow(
                as_image(tile.pixels, shape), cmap="RdBu" if tile.signed else "gray", vmin=0, vmax=1,
                extent=(x, x + 1.0, bottom, bottom + 1.0),
            )  # fmt: skip
            edge = GREY if tile.broken is None else BROKEN if tile.broken else PROVED
            line = 0.6 if tile.broken is None else 1.8
            axes.add_patch(Rectangle((x, bottom), 1.0, 1.0, fill=False, edgecolor=edge, linewidth=line))
            axes.text(x + 0.5, bottom - 0.04, tile.below, fontsize=7, ha="center", va="top")
            if number == 0 and above:
                axes.text(x + 0.5, bottom + 1.04, above[column], fontsize=8, ha="center", va="bottom")
    axes.set(xlim=(0, wide), ylim=(0, tall))
    return figure


def feature_changes(clean: np.ndarray, adversarial: np.ndarray, names: Sequence[str], titles: Sequence[str]) -> Figure:
    """One panel per row of data: the features that the attack changed most, from the old value to the new one."""
    figure, grid = panels_of(len(clean), size=(3.8, 2.4), legend=False)
    for axes, before, after, title in zip(grid, clean, adversarial, titles):
        order = np.argsort(-np.abs(after - before), kind="stable")[:_FEATURES][::-1]
        y = np.arange(len(order))
        axes.hlines(y, before[order], after[order], color=BROKEN, linewidth=2)
        axes.plot(before[order], y, "o", color=GREY, markersize=5)
        grown = after[order] >= before[order]
        for marker, which in ((">", grown), ("<", ~grown)):
            axes.plot(after[order][which], y[which], marker, color=BROKEN, markersize=5)
        for place, feature in zip(y, order):
            change = after[feature] - before[feature]
            axes.annotate(f"{change:+.3f}", (1.0, place), xycoords=("axes fraction", "data"), fontsize=7, va="center")
        axes.set_yticks(y, [str(names[feature])[:24] for feature in order], fontsize=8)
        axes.set_title(title, fontsize=8)
        axes.set_xlabel("value, as the model sees it", fontsize=8)
        tidy(axes)
    return figure
