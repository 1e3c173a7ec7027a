"""How far a direction can be followed inside a ball cut by a cell: against the definition, point by point."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from models.certificates.places import Directions, Place


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 5), st.floats(0.0, 2.0))
def test_no_point_of_the_place_goes_farther_than_the_reaches_say(seed, d, radius):
    rng = np.random.default_rng(seed)
    lower, upper = -rng.random(d) * rng.integers(0, 2, d), rng.random(d) * rng.integers(0, 2, d)
    if seed % 3 == 0:
        lower = -upper
    directions = rng.standard_normal((7, d))
    place = Place(np.zeros(d), lower, upper, radius)
    below, above = place.reaches(Directions.of(directions))
    for asked_once, kept in zip(place.reaches_of(directions, at_once=3), (below, above)):
        np.testing.assert_allclose(asked_once, kept, rtol=1e-12, atol=1e-300)
    points = lower + rng.random((400, d)) * (upper - lower)
    points[:200] = np.where(rng.random((200, d)) < 0.5, lower, upper)
    points *= np.minimum(1.0, radius / np.maximum(np.linalg.norm(points, axis=1), 1e-300))[:, None]
    along = points @ directions.T
    assert (along <= above * (1 + 1e-12) + 1e-15).all()
    assert (-along <= below * (1 + 1e-12) + 1e-15).all()
    # Nothing is given away either: the cell alone and the ball alone are met exactly.
    for row, e in enumerate(directions):
        cell = np.maximum(e * lower, e * upper).sum()
        free = np.where(e > 0, upper > 0, lower < 0)
        assert above[row] <= min(cell, np.linalg.norm(e * free) * radius) * (1 + 1e-9) + 1e-15
