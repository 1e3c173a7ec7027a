"""Curves of many runs are read at once, and are those that MLflow itself tells of each run."""

from __future__ import annotations

import sqlite3

from pipeline.report.tracked import Reader
from pipeline.tracking import runs as tracking_runs
from pipeline.tracking.store import TrackingStore

NAMES = ("test_error", "robust_accuracy_by_step", "clean_accuracy")


def one_by_one(store: TrackingStore, run: str, name: str) -> list[tuple[int, float]]:
    return sorted((point.step, point.value) for point in store.client.get_metric_history(run, name))


def test_curves_are_those_of_every_single_run(invented: TrackingStore) -> None:
    runs = [run.id for run in Reader(invented).runs()]
    for name in NAMES:
        found = tracking_runs.metric_histories(invented, runs, name)
        assert found == {run: points for run in runs if (points := one_by_one(invented, run, name))}
    assert len(found) == len(runs)


def test_only_the_runs_that_were_asked_for_are_told(invented: TrackingStore) -> None:
    run = Reader(invented).runs()[0].id
    assert set(tracking_runs.metric_histories(invented, [run], "clean_accuracy")) == {run}


def test_a_database_that_is_not_as_expected_is_asked_through_mlflow(invented, monkeypatch) -> None:
    def refuse(_):
        raise sqlite3.OperationalError("no such table: metrics")

    monkeypatch.setattr(tracking_runs, "connect", refuse)
    run = Reader(invented).runs()[0].id
    assert tracking_runs.metric_histories(invented, [run], "clean_accuracy")[run] == one_by_one(
        invented, run, "clean_accuracy"
    )


def test_a_reader_asks_once_for_a_metric(invented, monkeypatch) -> None:
    reader, asked = Reader(invented), []

    def count(store, runs, name):
        asked.append(name)
        return tracking_runs.metric_histories(store, runs, name)

    monkeypatch.setattr("pipeline.report.tracked.metric_histories", count)
    curves = [reader.curve(run, "clean_accuracy") for run in reader.runs()]
    assert len(curves) > 10
    assert all(curves)
    assert asked == ["clean_accuracy"]
