"""Two jobs that log the same new dataset at once: the one whose insert is refused tries again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from mlflow.exceptions import MlflowException

from pipeline.tracking import bundle

DATASET = {"name": "d", "digest": "0" * 32, "source": "here", "profile": {}}


class Client:
    """Refuses the first calls with a message."""

    def __init__(self, refusals: int, message: str):
        self.refusals, self.message, self.calls = refusals, message, 0

    def log_inputs(self, run_id, inputs):
        self.calls += 1
        if self.calls <= self.refusals:
            raise MlflowException(self.message)


def test_a_lost_race_is_tried_again():
    client = Client(2, "(sqlite3.IntegrityError) UNIQUE constraint failed: datasets.name")
    bundle._log_dataset(SimpleNamespace(client=client), "run", DATASET)
    assert client.calls == 3


def test_other_errors_are_not_swallowed():
    client = Client(1, "no such run")
    with pytest.raises(MlflowException, match="no such run"):
        bundle._log_dataset(SimpleNamespace(client=client), "run", DATASET)
    assert client.calls == 1


def test_it_gives_up_in_the_end():
    client = Client(99, "IntegrityError")
    with pytest.raises(MlflowException):
        bundle._log_dataset(SimpleNamespace(client=client), "run", DATASET)
