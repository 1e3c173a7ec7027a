"""Fitted models the attack tests share: each is trained once."""

import pytest

from oracles_attacks import MAKERS, digits_1v7


@pytest.fixture(scope="session")
def digits():
    """X_train, y_train, X_test, y_test."""
    return digits_1v7()


@pytest.fixture(scope="session")
def fitted(digits):
    """Fitted models by name."""
    X, y = digits[:2]
    made = {}

    def get(name):
        if name not in made:
            made[name] = MAKERS[name]().fit(X, y)
        return made[name]

    return get
