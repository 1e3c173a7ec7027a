"""Arrange the MLflow UI: which columns the runs table shows without a click.

MLflow keeps a shared view of the runs table in an experiment tag. The format is undocumented (hence the version pin in
pyproject.toml), so the tests look at it in a real browser.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.tracking.credentials import masked

if TYPE_CHECKING:
    from mlflow import MlflowClient

VIEW = "results"

# Short names, so that a column's header can be read, and few enough to be seen without scrolling. Clean accuracy is
# over all test rows; certified and attacked are in the attack's own norm and radius, over the attacked rows.
ALIASES = {"clean": "clean_accuracy", "certified": "certified_accuracy", "attacked": "attacked_accuracy"}
_TAGS = ("model", "attack", "seed")
_METRICS = (*ALIASES, "undecided", "checks_failed")
_EXPERIMENT_NOTE = """**advsvm**: adversarially robust kernel SVMs.

One run is one experiment (dataset × model × attack × seed); runs tagged `role=summary` hold the table of a sweep.
True robust accuracy lies between `certified` (a proof, from below) and `attacked` (an attack, from above), both in the
norm and radius `threat.norm`, `threat.epsilon` of the run.
"""


def arrange(client: MlflowClient, experiment_id: str) -> None:
    """Set the experiment's description and the shared view of all runs (idempotent)."""
    tags = client.get_experiment(experiment_id).tags
    wanted = {
        _tag(VIEW): json.dumps(_state()),
        "mlflow.note.content": _EXPERIMENT_NOTE,
        # Without it MLflow guesses, and may open the experiment on an empty page for traces.
        "mlflow.experimentKind": "custom_model_development",
    }
    for key, value in wanted.items():
        if tags.get(key) != value:
            client.set_experiment_tag(experiment_id, key, value)


def member_tag(sweep: str) -> str:
    """The tag of all runs of a sweep; a run may belong to many."""
    return f"sweep.{sweep}"


def members(sweep: str) -> str:
    """The filter that finds all runs of a sweep, also those that another one has reused since."""
    return f"tags.`{member_tag(sweep)}` = '1'"


def arrange_sweep(client: MlflowClient, experiment_id: str, sweep: str, settings: Iterable[str] = ()) -> None:
    """Share views of one sweep's runs, as a table and as charts; a filter in the address would drop the columns.

    ``settings`` are the parameters that tell its runs apart: they get columns of their own.
    """
    for view, mode in ((sweep, None), (f"{sweep}-charts", "CHART")):
        state = _state(members(sweep), settings) | {"compareRunsMode": mode}
        client.set_experiment_tag(experiment_id, _tag(view), json.dumps(state))


def table_link(base: str, experiment_id: str, view: str = VIEW) -> str:
    """Address of the runs table with the useful columns; ``view`` may be a sweep's."""
    return f"{base}/#/experiments/{experiment_id}/runs?workflowType=machine_learning&viewStateShareKey={view}"


def chart_link(base: str, experiment_id: str, sweep: str) -> str:
    """Address of the charts of a sweep's runs."""
    return f"{table_link(base, experiment_id, f'{sweep}-charts')}&compareRunsMode=CHART"


def _tag(view: str) -> str:
    return f"mlflow.sharedViewState.{view}"


def _state(search: str = "", settings: Iterable[str] = ()) -> dict[str, Any]:
    columns = [f"tags.`{name}`" for name in _TAGS] + [f"params.`{name}`" for name in settings]
    columns += [f"metrics.`{name}`" for name in _METRICS]
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
        return f"results: {masked(tracking.uri)}"
    from pipeline.paths import DATABASE, sqlite_address

    folder = Path(tracking.folder)
    address = shlex.quote(sqlite_address(folder / DATABASE))
    return f"results: {folder}/  open them with: make ui   (or: mlflow ui --backend-store-uri {address})"
