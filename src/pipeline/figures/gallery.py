"""What attacks changed: images side by side, or, for rows that are no images, features by name and size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.figures.style import BROKEN, GREY, PROVED, panels_of, tidy

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_FEATURES, _LETTERS = 8, 26


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


@dataclass(frozen=True)
class FeatureChanges:
    """What an attack did to some rows that are no images: of each the features it changed most, largest first.

    All but the ``titles`` (m,) are (m, k): names of the features, their values as the model sees them, and the same in
    the units of the file.
    """

    titles: np.ndarray
    names: np.ndarray
    before: np.ndarray
    after: np.ndarray
    raw_before: np.ndarray
    raw_after: np.ndarray

    @classmethod
    def of(
        cls, clean: np.ndarray, adversarial: np.ndarray, names: Sequence[str], titles: Sequence[str], scaler: Any = None
    ) -> FeatureChanges:
        """The largest changes of (m, d) rows; `scaler`, if any, knows the units of the file."""
        order = np.argsort(-np.abs(adversarial - clean), axis=1, kind="stable")[:, :_FEATURES]
        raw = [rows if scaler is None else scaler.inverse_transform(rows) for rows in (clean, adversarial)]
        values = (
            np.take_along_axis(np.asarray(rows, dtype=float), order, axis=1) for rows in (clean, adversarial, *raw)
        )
        return cls(np.array(titles, dtype=str), np.array([str(name) for name in names])[order], *values)

    def some(self, count: int) -> FeatureChanges:
        """The first rows."""
        return FeatureChanges(**{name: values[:count] for name, values in vars(self).items()})


def feature_changes(changes: FeatureChanges) -> Figure:
    """One panel per row of data: features by name, from the old value to the new one, and both in the file's units."""
    figure, grid = panels_of(len(changes.titles), size=(4.6, 2.5), legend=False)
    for number, axes in enumerate(grid):
        moved = np.flatnonzero(changes.before[number] != changes.after[number])
        chosen = (moved if len(moved) else np.arange(1))[::-1]
        before, after = changes.before[number][chosen], changes.after[number][chosen]
        y = np.arange(len(chosen))
        axes.hlines(y, before, after, color=BROKEN, linewidth=2)
        axes.plot(before, y, "o", color=GREY, markersize=5)
        for marker, which in ((">", after >= before), ("<", after < before)):
            axes.plot(after[which], y[which], marker, color=BROKEN, markersize=5)
        for place, (old, new) in enumerate(zip(changes.raw_before[number][chosen], changes.raw_after[number][chosen])):
            at = (1.02, place)
            axes.annotate(f"{old:.4g} → {new:.4g}", at, xycoords=("axes fraction", "data"), fontsize=7, va="center")
        axes.set_yticks(y, [_short(name) for name in changes.names[number][chosen]], fontsize=8)
        axes.set_ylim(-0.6, len(chosen) - 0.4)
        axes.set_title(str(changes.titles[number]), fontsize=8)
        axes.set_xlabel("value, scaled; beside it in the units of the file", fontsize=8)
        tidy(axes)
    return figure


def _short(name: str) -> str:
    return name if len(name) <= _LETTERS else name[: _LETTERS - 1] + "…"
