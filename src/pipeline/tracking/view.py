"""Arrange the MLflow UI: which columns the runs table shows without a click.

MLflow keeps a shared view of the runs table in an experiment tag. The format is undocumented (hence the version pin in
pyproject.toml), so the tests look at it in a real browser.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlflow import MlflowClient

VIEW = "results"

# Few enough to be seen without scrolling.
_TAGS = ("dataset", "model", "attack", "seed")
_METRICS = (
    "clean_accuracy",
    "robust_accuracy",
    "certified_accuracy",
    "accuracy_at_l2_cap",
    "checks_failed",
)
_EXPERIMENT_NOTE = """**advsvm**: adversarially robust kernel SVMs.

One run is one experiment (dataset × model × attack × seed); runs tagged `role=summary` hold the table of a sweep.
The truth lies between `certified_accuracy` (a proof, from below) and `robust_accuracy` (an attack, from above).
"""


def arrange(client: MlflowClient, experiment_id: str) -> None:
    """Set the experiment's description and the shared view of all runs (idempotent)."""
    tags = client.get_experiment(experiment_id).tags
    wanted = {_tag(VIEW): json.dumps(_state()), "mlflow.note.content": _EXPERIMENT_NOTE}
    for key, value in wanted.items():
        if tags.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def arrange_sweep(client: MlflowClient, experiment_id: str, sweep: str) -> None:
    """Share a view of one sweep's runs; a filter in the address itself would drop the columns."""
    state = json.dumps(_state(f"tags.sweep = '{sweep}'"))
    client.set_experiment_tag(experiment_id, _tag(sweep), state)


def table_link(base: str, experiment_id: str, view: str = VIEW) -> str:
    """Address of the runs table with the useful columns; ``view`` may be a sweep's."""
    return f"{base}/#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={view}"


def chart_link(base: str, experiment_id: str) -> str:
    """Address of the charts of all runs."""
    return f"{base}/#/experiments/{experiment_id}/runs?workflowType=machine_learning&compareRunsMode=CHART"


def _tag(view: str) -> str:
    return f"mlflow.sharedViewState.{view}"


def _state(search: str = "") -> dict:
    columns = [f"tags.`{name}`" for name in _TAGS] + [f"metrics.`{name}`" for name in _METRICS]
    return {
        "searchFilter": search,
        "orderByKey": "attributes.start_time",
        "orderByAsc": False,
        "startTime": "ALL",
        "lifecycleFilter": "Active",
        "modelVersionFilter": "All Runs",
        "datasetsFilter": [],
        "runsExpanded": {},
        "runsHidden": [],
        "runsPinned": [],
        "selectedColumns": columns,
        "compareRunsMode": None,
        "viewMaximized": False,
        "runListHidden": False,
        "groupBy": None,
    }


def how_to_open(tracking: Any) -> str:
    """How a person gets from the terminal to the results."""
    if tracking.uri:
        from pipeline.tracking.store import masked

        return f"results: {masked(tracking.uri)}"
    folder = Path(tracking.folder)
    return f"results: {folder}/  open them with: make ui   (or: mlflow ui --backend-store-uri sqlite:///{folder}/mlflow.db)"
