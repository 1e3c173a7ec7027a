"""Certified accuracy is a lower bound, attacked accuracy an upper one, on the same points."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.stages.bracket import Distances, known_distances


def test_bounds_and_gap_by_hand():
    around = Distances(np.arange(4), np.array([0.0, 1.0, 2.0, np.inf]), np.array([0.0, 0.5, 1.5, 2.0]))
    assert around.upper(0.5) == 0.75
    assert around.lower(0.5) == 0.75
    assert around.upper(1.0) == 0.5
    assert around.lower(2.5) == 0.0
    assert around.upper(2.5) == 0.25


@pytest.mark.parametrize("overrides", [("attack=none",), ("attack=fgsm",), ("attack=cw", "attack.steps=5")])
def test_every_run_has_an_upper_curve_above_the_certificates(make, overrides):
    context = make(*overrides)
    around = known_distances(context.data, context.trained, context.attacked, context.radii)
    assert np.isfinite(around.nearest).all()
    assert (around.nearest >= around.certified).all()
    assert len(around.rows) == (91 if "attack=cw" in overrides else 64)
