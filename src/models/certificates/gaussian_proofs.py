"""What is asked about a sum of Gaussians where the first-order bound about x leaves a point open."""

import numpy as np

from models.certificates.gaussian import GaussianSum
from models.certificates.minorant import Minorant, minorant
from models.certificates.places import Place, about_midpoint, is_cell, positive_on
from models.certificates.region import Region, lowest_linear


def proves_about_midpoint(form: GaussianSum, where: Region, signs: np.ndarray) -> np.ndarray:
    """The first-order bound about the midpoints of cells; a midpoint of its own is nothing new."""
    asked = is_cell(where) & (where.lower != -where.upper).any(1)
    proved = np.zeros(len(where), dtype=bool)
    if asked.any():
        moved = about_midpoint(where.take(asked))
        proved[asked] = form.first_order(form.at(moved.X, signs[asked]), moved, signs[asked]) > 0
    return proved


def proves_by_parabolas(form: GaussianSum, where: Region, signs: np.ndarray) -> np.ndarray:
    """The quadratic minorant of ``models.certificates.minorant``: crudely first, then by its matrix."""
    demands = form.demands(where)
    cells = is_cell(where)
    seen = about_midpoint(where)
    proved = np.zeros(len(where), dtype=bool)
    for row in range(len(where)):
        place = Place.of(seen if cells[row] else where, row)
        below = minorant(form, signs[row], place, float(demands[row]))
        proved[row] = below is not None and _positive(below, place, bool(cells[row]))
    return proved


def _positive(below: Minorant, place: Place, cell: bool) -> bool:
    linear = float(lowest_linear(below.gradient[None], place.region())[0])
    if below.crude(linear) > 0:
        return True
    constant = below.constant - below.slack
    if not constant + linear > 0 or not np.isfinite(below.curvatures).all():
        return False
    matrix, left_out = below.matrix(1e-3 * constant)
    constant -= left_out
    return positive_on(place, cell, constant, below.gradient, matrix)
