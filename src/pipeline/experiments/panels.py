"""Panels of lines with a band over seeds, side by side."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from pipeline.figures import _pyplot, _save

_MARKERS = "osD^vP"


@dataclass(frozen=True)
class Line:
    """Mean and standard deviation over seeds, at every x."""

    name: str
    x: np.ndarray
    mean: np.ndarray
    spread: np.ndarray

    @classmethod
    def of_series(cls, name: str, x: Iterable[float], series: Sequence[np.ndarray], scale: float = 1.0) -> Line:
        """From one array per seed; arrays of unequal length are cut to the shortest."""
        length = min(len(values) for values in series)
        table = scale * np.array([values[:length] for values in series])
        return cls(name, np.array(list(x), dtype=float)[:length], table.mean(axis=0), table.std(axis=0))

    @classmethod
    def of_groups(cls, name: str, groups: Mapping[float, Sequence[float]], scale: float = 1.0) -> Line:
        """From the values at each x."""
        x = sorted(groups)
        mean, spread = ([scale * float(f(groups[key])) for key in x] for f in (np.mean, np.std))
        return cls(name, np.array(x), np.array(mean), np.array(spread))


@dataclass(frozen=True)
class Panel:
    """One pair of axes."""

    title: str
    xlabel: str
    ylabel: str
    lines: Sequence[Line]


def draw_panels(panels: Sequence[Panel], path: Path, *, title: str, same_scale: bool = True) -> Path:
    """Draw the panels in a row that share the legend, and the y axis unless told otherwise."""
    plt = _pyplot()
    count = max(1, len(panels))
    figure, row = plt.subplots(1, count, figsize=(1.0 + 3.7 * count, 4.1), squeeze=False, sharey=same_scale)
    for axes, panel in zip(row[0], panels):
        for number, line in enumerate(panel.lines):
            marker = _MARKERS[number % len(_MARKERS)]
            every = max(1, len(line.x) // 12)
            axes.plot(line.x, line.mean, marker=marker, markevery=every, markersize=4, linewidth=1.5, label=line.name)
            axes.fill_between(line.x, line.mean - line.spread, line.mean + line.spread, alpha=0.15, linewidth=0)
        axes.set(title=panel.title, xlabel=panel.xlabel)
    row[0][0].set_ylabel(panels[0].ylabel if panels else "")
    handles = {label: handle for axes in row[0] for handle, label in zip(*axes.get_legend_handles_labels())}
    row[0][-1].legend(handles.values(), handles.keys(), fontsize=9)
    figure.suptitle(title)
    return _save(figure, path)
