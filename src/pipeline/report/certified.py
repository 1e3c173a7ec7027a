"""What tuning by certified accuracy adds: the same models tuned both ways, over the training radius ε."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from pipeline.report.content import Cell, Section, Stat, stat
from pipeline.report.paper import MODELS
from pipeline.report.tables import Entry, Table, name, seeds_text
from pipeline.report.tracked import Reader
from pipeline.report.variants import tune_label


@dataclass(frozen=True)
class Point:
    """One model at one training radius ε, tuned one way, bracketed at the L2 radius ``radius``."""

    model: str
    tuning: str
    epsilon: float
    radius: float
    clean: Stat
    certified: Stat | None
    attacked: Stat
    basis: str
    failed: tuple[str, ...]


def certified_points(sections: list[Section], reader: Reader) -> list[Point]:
    """All cells attacked by PGD in an L2 ball, of sections that use the exact kernel."""
    points = []
    for section in sections:
        for row in section.rows:
            for cell in row.cells:
                radius = cell.setting.number("epsilon")
                if cell.setting.get("norm") != "l2" or radius is None or row.key.epsilon is None:
                    continue
                clean, attacked = cell.stat("clean_accuracy"), cell.stat("robust_accuracy")
                if clean is None or attacked is None:
                    continue
                points.append(
                    Point(
                        f"{MODELS.get(row.key.model, row.key.model)}, {section.label.rsplit(' · ', 1)[0]}",
                        tune_label(cell.first.params),
                        row.key.epsilon,
                        radius,
                        clean,
                        _certified_at(cell, radius, reader),
                        attacked,
                        f"{cell.setting.n_attacked} points · {seeds_text(len(cell.runs))}",
                        tuple(f"check {check} failed" for check in cell.failed_checks),
                    )
                )
    return points


def certified_table(points: list[Point]) -> Table | None:
    """Rows: training radius ε; columns: tuning × (clean, attacked, certified)."""
    tunings = sorted({p.tuning for p in points})
    if not points:
        return None
    groups = [("", 3)] + [(tuning, 3) for tuning in tunings]
    columns = ["model", "ε (L2)", "r (L2)"] + ["clean", "PGD-L2 at r", "certified at r"] * len(tunings)
    table = Table("What certified tuning adds: accuracy [%] over the training radius ε", groups, columns)
    rows: dict[tuple[str, float, float], dict[str, Point]] = defaultdict(dict)
    for point in points:
        rows[point.model, point.radius, point.epsilon][point.tuning] = point
    for (model, radius, epsilon), by_tuning in sorted(rows.items()):
        entries = [name(model), name(f"{epsilon:.4g}"), name(f"{radius:.4g}")]
        for tuning in tunings:
            p = by_tuning.get(tuning)
            if p is None:
                entries += [Entry("–")] * 3
                continue
            certified = Entry(p.certified.percent() if p.certified else "–")
            entries += [Entry(p.clean.percent(), p.basis), Entry(p.attacked.percent(), failed=p.failed), certified]
        table.rows.append(entries)
    table.notes.append(
        "True robust accuracy at the L2 radius r lies between the certified accuracy (proved) and the accuracy under "
        "PGD in the L2 ball (an attack that may not be the best one). ε = 0 is the natural model."
    )
    return table


def certified_curve(radii: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Certified accuracy at each of the radii ``at``; a radius of 0 means misclassified (or nothing proved)."""
    ordered = np.sort(radii[radii > 0])
    return (len(ordered) - np.searchsorted(ordered, at, side="left")) / len(radii)


def _certified_at(cell: Cell, radius: float, reader: Reader) -> Stat | None:
    values = []
    for run in cell.runs.values():
        arrays = reader.arrays(run, "certificates/radii.npz", ("radii",))
        if arrays is not None:
            values.append(float(certified_curve(arrays["radii"], np.array([radius]))[0]))
    return stat(values)
