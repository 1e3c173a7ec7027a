"""Read finished experiments from the tracking store: what they are, their numbers, their files."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import numpy as np

from pipeline.errors import UserError
from pipeline.tracking.examples import CLEAN, read_examples
from pipeline.tracking.runs import metric_histories
from pipeline.tracking.store import TrackingStore
from pipeline.tracking.view import members

_PAGE = 500


@dataclass(frozen=True, eq=False)
class TrackedRun:
    """One finished experiment as MLflow knows it; accuracies in ``metrics`` are fractions in [0, 1]."""

    id: str
    dataset: str
    model: str
    attack: str
    seed: int
    sweep: str
    params: dict[str, str]
    metrics: dict[str, float]
    failed_checks: tuple[str, ...]
    started: int
    digest: str
    profile: dict[str, Any] = field(default_factory=dict)
    notes: str = ""
    artifacts: str = ""
    commit: str = ""


class Reader:
    """Runs of one store, with their curves and files fetched when they are asked for."""

    def __init__(self, store: TrackingStore):
        self.store = store
        self._listed: list[TrackedRun] = []
        self._curves: dict[tuple[str, str], list[tuple[int, float]]] = {}
        # Holds what is downloaded from a server; removed with the reader.
        self._downloads = tempfile.TemporaryDirectory(prefix="advsvm-report-")

    def runs(self, sweep: str | None = None, datasets: Iterable[str] = ()) -> list[TrackedRun]:
        """All finished experiments, newest first, optionally of one sweep or of some datasets."""
        # Runs from before a run could belong to several sweeps carry the name of one only.
        of_sweep = [f" and {members(sweep)}", f" and tags.sweep = '{sweep}'"] if sweep else [""]
        found = next((found for condition in of_sweep if (found := self._search(condition))), [])
        wanted = set(datasets)
        self._listed = [run for run in found if not wanted or run.dataset in wanted]
        return self._listed

    def _search(self, condition: str) -> list[TrackedRun]:
        found, token = [], None
        while True:
            page = self.store.client.search_runs(
                [self.store.experiment_id],
                filter_string=f"tags.role = 'experiment' and attributes.status = 'FINISHED'{condition}",
                max_results=_PAGE,
                order_by=["attributes.start_time DESC"],
                page_token=token,
            )
            # What is left of a diverged training is no measurement.
            found += [_tracked(self.store.trusted(run)) for run in page if not run.data.metrics.get("diverged")]
            token = page.token
            if not token:
                return found

    def curve(self, run: TrackedRun, name: str) -> list[tuple[int, float]]:
        """Points (step, value) of a stepped metric; empty when the run has none."""
        if name not in run.metrics:
            return []
        if (run.id, name) not in self._curves:
            # The next question will be about the same metric of another run.
            asked = [run.id, *(other.id for other in self._listed if name in other.metrics and other is not run)]
            self._curves |= {(id, name): points for id, points in metric_histories(self.store, asked, name).items()}
        return self._curves.get((run.id, name), [])

    def file(self, run: TrackedRun, path: str) -> Path | None:
        """An artifact as a local file, or None when the run has no such artifact."""
        address = urlsplit(run.artifacts)
        if address.scheme in ("", "file"):
            local = Path(unquote(address.path)) / path
            return local if local.is_file() else None
        target = Path(self._downloads.name) / run.id
        if (target / path).is_file():
            return target / path
        target.mkdir(exist_ok=True)
        try:
            return Path(self.store.client.download_artifacts(run.id, path, str(target)))
        except Exception:  # each kind of store has its own way to say "not there"
            return None

    def arrays(self, run: TrackedRun, path: str, names: Collection[str]) -> dict[str, np.ndarray] | None:
        """Some arrays of an ``.npz`` artifact, or None when it is missing or unreadable."""
        file = self.file(run, path)
        if file is None:
            return None
        try:
            with np.load(file, allow_pickle=False) as stored:
                if "examples" in names and "perturbations" in stored:  # large: the pixels are in another file
                    self.file(run, str(Path(path).with_name(CLEAN)))
                return {name: read_examples(file) if name == "examples" else stored[name] for name in names}
        except (OSError, ValueError, KeyError, EOFError):
            return None

    def check_messages(self, run: TrackedRun) -> dict[str, str]:
        """What the failed checks of a run said."""
        file = self.file(run, "checks.json") if run.failed_checks else None
        try:
            checks = json.loads(file.read_text()) if file else []
            said = {check["id"]: str(check["message"]) for check in checks if check["status"] == "fail"}
        except (OSError, ValueError, TypeError, KeyError, RecursionError):
            said = dict.fromkeys(run.failed_checks, "its checks.json cannot be read")
        return {name: said.get(name, "") for name in run.failed_checks}


def _tracked(run: Any) -> TrackedRun:
    tags, params = run.data.tags, run.data.params
    inputs = run.inputs.dataset_inputs if run.inputs else []
    dataset = inputs[0].dataset if inputs else None
    return TrackedRun(
        id=run.info.run_id,
        dataset=tags.get("dataset", "?"),
        model=tags.get("model", "?"),
        attack=tags.get("attack", "?"),
        seed=_number(tags.get("seed", "0"), run.info.run_id),
        sweep=tags.get("sweep", ""),
        params=dict(params),
        metrics=dict(run.data.metrics),
        failed_checks=tuple(sorted(k.removeprefix("check.") for k, v in tags.items() if _failed(k, v))),
        started=run.info.start_time,
        digest=dataset.digest if dataset else "",
        profile=_profile(dataset.profile) if dataset else {},
        notes=tags.get("data_notes", ""),
        artifacts=run.info.artifact_uri,
        commit=tags.get("git_commit", ""),
    )


def _profile(text: str | None) -> dict[str, Any]:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _number(seed: str, run: str) -> int:
    try:
        return int(seed)
    except ValueError:
        raise UserError(f"run {run}: its tag seed is {seed!r}, not a number; put it right or delete the run") from None


def _failed(tag: str, value: str) -> bool:
    return tag.startswith("check.") and value == "fail"
