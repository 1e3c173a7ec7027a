"""Which test rows an attack gets when it does not get all."""

from __future__ import annotations

import numpy as np
import pytest

from pipeline.stages.attack import choose_rows

LABELS = {
    "two classes": np.arange(12) % 2,
    "ten classes": np.arange(40) % 10,
    "a lonely row": np.array([0] * 9 + [1]),
}


@pytest.mark.parametrize("name", LABELS)
def test_any_number_of_rows_can_be_asked_for(name):
    y = LABELS[name]
    for limit in range(1, len(y) + 3):
        rows = choose_rows(y, limit)
        assert len(set(rows)) == len(rows) == min(limit, len(y))
        assert (np.diff(rows) > 0).all()
        for label in np.unique(y):
            share = len(rows) * np.mean(y == label)
            assert abs(np.count_nonzero(y[rows] == label) - share) <= 1


def test_without_a_limit_all_rows_are_attacked():
    assert choose_rows(np.arange(5) % 2, None).tolist() == [0, 1, 2, 3, 4]
