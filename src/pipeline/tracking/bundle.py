"""A finished run as a folder, and its upload.

A run is first written to disk whole, then sent. When the store cannot be reached, the folder stays and
``python -m pipeline.sync`` (or the next run) sends it: nothing that was computed is lost.
"""

from __future__ import annotations

import json
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pipeline.tracking.store import TrackingStore

_DOCUMENT = "run.json"
# Limits of one call to MLflow.
_METRICS_PER_CALL, _PARAMS_PER_CALL = 1000, 100


@dataclass
class RunBundle:
    """What a run logs; files to upload lie in ``folder/artifacts`` and the model in ``folder/model``."""

    folder: Path
    run_id: str
    status: str = "FINISHED"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)
    dataset: dict[str, Any] | None = None

    @property
    def artifacts(self) -> Path:
        """Folder of the artifacts, as they will appear in the run."""
        return self.folder / "artifacts"

    @property
    def model(self) -> Path:
        """Folder of the saved model."""
        return self.folder / "model"

    def write(self) -> None:
        """Write the document that makes the folder a bundle (last, so that a half-written one is not taken for one)."""
        document = asdict(self)
        del document["folder"]
        temporary = self.folder / f".{_DOCUMENT}"
        temporary.write_text(json.dumps(document))
        temporary.rename(self.folder / _DOCUMENT)

    @classmethod
    def read(cls, folder: Path) -> RunBundle:
        """Read a bundle that was written before."""
        document = json.loads((folder / _DOCUMENT).read_text())
        document["metrics"] = [tuple(point) for point in document["metrics"]]
        return cls(folder=folder, **document)


def pending(folder: Path) -> list[Path]:
    """Bundles under a tracking folder that were not uploaded."""
    return sorted(path.parent for path in (folder / "pending").glob(f"*/{_DOCUMENT}"))


def upload(bundle: RunBundle, store: TrackingStore) -> None:
    """Log everything to the run and end it; the folder is removed when all of it has arrived."""
    from mlflow.entities import Metric, Param, RunTag

    client, run_id = store.client, bundle.run_id
    now = int(time.time() * 1000)
    params = [Param(key, value) for key, value in bundle.params.items()]
    for start in range(0, len(params), _PARAMS_PER_CALL):
        client.log_batch(run_id, params=params[start : start + _PARAMS_PER_CALL])
    metrics = [Metric(key, value, now, step) for key, value, step in bundle.metrics]
    for start in range(0, len(metrics), _METRICS_PER_CALL):
        client.log_batch(run_id, metrics=metrics[start : start + _METRICS_PER_CALL])
    client.log_batch(run_id, tags=[RunTag(key, value) for key, value in bundle.tags.items()])
    if bundle.dataset is not None:
        _log_dataset(store, run_id, bundle.dataset)
    if bundle.artifacts.is_dir():
        client.log_artifacts(run_id, str(bundle.artifacts))
    if bundle.model.is_dir():
        _log_model(store, bundle)
    # Last: a run counts as finished only when everything is there.
    client.set_terminated(run_id, bundle.status)
    shutil.rmtree(bundle.folder)


def _log_dataset(store: TrackingStore, run_id: str, dataset: dict[str, Any]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag

    entity = Dataset(
        name=dataset["name"],
        digest=dataset["digest"],
        source_type="local",
        source=json.dumps({"source": dataset["source"]}),
        profile=json.dumps(dataset["profile"]),
    )
    store.client.log_inputs(run_id, [DatasetInput(entity, [InputTag("mlflow.data.context", "training")])])


def _log_model(store: TrackingStore, bundle: RunBundle) -> None:
    """Save as a pyfunc whose loader is our own code: nothing in the model's folder is executable."""
    from pipeline.tracking.flavor import save_pyfunc

    target = bundle.folder / "pyfunc"
    shutil.rmtree(target, ignore_errors=True)
    save_pyfunc(bundle.model, target, bundle.run_id)
    store.client.log_artifacts(bundle.run_id, str(target), artifact_path="model")
