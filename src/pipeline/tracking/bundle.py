"""A finished run as a folder, and its upload.

A run is first written to disk whole, then sent. When the store cannot be reached, the folder stays and
``python -m pipeline.sync`` (or the next run) sends it: nothing that was computed is lost.
"""

from __future__ import annotations

import json
import logging
import shutil
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from filelock import Timeout

from pipeline.cache.locks import PassingLock
from pipeline.cache.shared import SharedFiles
from pipeline.errors import UserError
from pipeline.paths import write_whole
from pipeline.tracking.store import TrackingStore, path_of

log = logging.getLogger(__name__)

_DOCUMENT = "run.json"
STAGES = "stages"  # where finished stages are unless cache.folder says otherwise
_TRIES = 5
_LOST_RACE = ("IntegrityError", "UNIQUE constraint", "UniqueViolation", "duplicate key")
# Limits of one call to MLflow, 1000 in all.
_PER_CALL = {"params": 100, "metrics": 800, "tags": 100}
# What the list of models shows of one.
_MODEL_METRICS = ("clean_accuracy", "certified_accuracy", "robust_accuracy", "undecided")


class DamagedBundle(UserError):
    """The document of a waiting run is not what was written."""


@dataclass
class RunBundle:
    """What a run logs; files to upload lie in ``folder/artifacts`` and the model in ``folder/model``."""

    folder: Path
    run_id: str
    name: str
    uri: str  # of the store the run was started in, without credentials
    experiment: str = "advsvm"  # its experiment there
    logged_at: int = field(default_factory=lambda: int(time.time() * 1000))  # ms; the same however often it is sent
    status: str = "FINISHED"
    params: dict[str, str] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    metrics: list[tuple[str, float, int]] = field(default_factory=list)
    dataset: dict[str, Any] | None = None
    deployment: dict[str, Any] | None = None  # a flavor.Description: what MLflow shows of the model
    register: str | None = None  # name in the model registry

    def is_for(self, store: TrackingStore) -> bool:
        """Whether it was meant for this store; a folder that was moved takes its waiting runs with it."""
        at_home = self.uri == store.uri if self.uri.startswith("http") else not store.is_server
        return at_home and self.experiment == store.experiment

    @property
    def artifacts(self) -> Path:
        """Folder of the artifacts, as they will appear in the run."""
        return self.folder / "artifacts"

    @property
    def model(self) -> Path:
        """Folder of the saved model."""
        return self.folder / "model"

    def start_afresh(self) -> None:
        """Empty the folder: what a killed process may have left there was never complete."""
        with self.lock():
            shutil.rmtree(self.folder, ignore_errors=True)
            self.folder.mkdir(parents=True)

    def lock(self) -> PassingLock:
        """Held while the bundle is sent: by its job, or by another one that found it waiting."""
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        return PassingLock(self.folder.with_name(f"{self.folder.name}.lock"))

    def write(self) -> None:
        """Write the document that makes the folder a bundle (last, so that a half-written one is not taken for one)."""
        document = asdict(self)
        del document["folder"]
        write_whole(self.folder / _DOCUMENT, json.dumps(document))

    @classmethod
    def read(cls, folder: Path) -> RunBundle:
        """Read a bundle that was written before."""
        try:
            document = json.loads((folder / _DOCUMENT).read_text())
            document["metrics"] = [(str(name), float(value), int(step)) for name, value, step in document["metrics"]]
            bundle = cls(folder=folder, **document)
            if not all(isinstance(text, str) for text in (bundle.run_id, bundle.name, bundle.uri, bundle.experiment)):
                raise TypeError("its names are not text")
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise DamagedBundle(f"{folder / _DOCUMENT} is damaged ({error}): remove {folder.name}") from error
        return bundle


def pending(folder: Path) -> list[Path]:
    """Bundles under a tracking folder that were not uploaded."""
    return sorted(path.parent for path in (folder / "pending").glob(f"*/{_DOCUMENT}"))


def upload(bundle: RunBundle, store: TrackingStore) -> None:
    """Send the bundle and end its run; safe to repeat after a failure half-way, and when somebody else was quicker."""
    with bundle.lock():
        _send(bundle, store)


def send_pending(store: TrackingStore) -> list[str]:
    """Send the bundles in the store's folder that were meant for it; returns the names of the runs that arrived.

    Bundles that another process is sending are left to it, and a failure is not ours to report: the bundle stays.
    """
    sent = []
    for folder in pending(store.folder):
        try:
            bundle = RunBundle.read(folder)
            if not bundle.is_for(store):
                continue
            with bundle.lock().acquire(timeout=0):
                if _send(bundle, store):
                    sent.append(bundle.name)
                    log.info("uploaded a run that was waiting: %s", bundle.name)
        except Timeout:
            continue
        except DamagedBundle as error:
            log.warning("%s", error)
        except Exception as error:
            log.warning("a waiting run could not be uploaded (%s): %s stays", type(error).__name__, folder)
    return sent


def _send(bundle: RunBundle, store: TrackingStore) -> bool:
    """Log everything to the run and end it, unless somebody did. MLflow ignores a metric of the same step and time."""
    from mlflow.entities import Metric, Param, RunTag

    from pipeline.tracking.examples import CLEAN

    if not (bundle.folder / _DOCUMENT).is_file():
        return False
    client = store.client
    run = _find_or_create(bundle, store)
    run_id = bundle.run_id = run.info.run_id
    content: dict[str, list[Any]] = {
        "params": [Param(key, value) for key, value in bundle.params.items()],
        "metrics": [Metric(key, value, bundle.logged_at, step) for key, value, step in bundle.metrics],
        "tags": [RunTag(key, value) for key, value in bundle.tags.items()],
    }
    # In one call, but for long curves.
    while any(content.values()):
        now = {name: items[: _PER_CALL[name]] for name, items in content.items()}
        client.log_batch(run_id, params=now["params"], metrics=now["metrics"], tags=now["tags"])
        content = {name: items[_PER_CALL[name] :] for name, items in content.items()}
    if bundle.dataset is not None:
        _log_dataset(store, run_id, bundle.dataset)
    if bundle.artifacts.is_dir():
        client.log_artifacts(run_id, str(bundle.artifacts))
        if run.info.artifact_uri.startswith("file:"):  # other attacks on these rows have the same pixels
            SharedFiles(store.folder / STAGES).take_in(path_of(run.info.artifact_uri) / "adversarial" / CLEAN)
    if bundle.model.is_dir():
        _log_model(store, bundle, run.info.experiment_id)
    # Last: a run counts as finished only when everything is there.
    client.set_terminated(run_id, bundle.status, end_time=bundle.logged_at)
    shutil.rmtree(bundle.folder)
    return True


def _find_or_create(bundle: RunBundle, store: TrackingStore) -> Any:
    """The bundle's run; a server that lost it (or another server) gets a new one."""
    from mlflow.exceptions import MlflowException

    try:
        return store.trusted(store.client.get_run(bundle.run_id))
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    run = store.client.create_run(
        store.experiment_id, start_time=bundle.logged_at, tags=bundle.tags, run_name=bundle.name
    )
    return store.trusted(run)


def _log_dataset(store: TrackingStore, run_id: str, dataset: dict[str, Any]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.exceptions import MlflowException

    entity = Dataset(
        name=dataset["name"],
        digest=dataset["digest"],
        source_type="local",
        source=json.dumps({"source": dataset["source"]}),
        profile=json.dumps(dataset["profile"]),
    )
    inputs = [DatasetInput(entity, [InputTag("mlflow.data.context", "training")])]
    # Two jobs that are the first to log a dataset at the same moment both insert it, and one is refused
    # (a unique constraint): the next try finds the other's row.
    for _ in range(_TRIES - 1):
        try:
            return store.client.log_inputs(run_id, inputs)
        except MlflowException as error:
            if not any(word in str(error) for word in _LOST_RACE):
                raise
            time.sleep(0.2)
    return store.client.log_inputs(run_id, inputs)


def _log_model(store: TrackingStore, bundle: RunBundle, home: str) -> None:
    """Log the model as MLflow's own: under Models, found by ``runs:/RUN/model``, ready to be registered.

    Its files are kept once, by the logged model; the run's artifacts only say how to get at it.
    """
    from mlflow.entities import LoggedModelOutput, Metric

    from pipeline.tracking import flavor

    client, about = store.client, None if bundle.deployment is None else flavor.Description(**bundle.deployment)
    model = logged_model(store, bundle.run_id, home)
    if model is None:
        params = {key: value for key, value in bundle.params.items() if key.startswith("model.")}
        tags = {key: value for key, value in bundle.tags.items() if key in ("dataset", "model", "attack", "seed")}
        model = client.create_logged_model(home, flavor.NAME, bundle.run_id, tags, params)
    if model.status != "READY":
        target = bundle.folder / "pyfunc"
        shutil.rmtree(target, ignore_errors=True)
        flavor.save_pyfunc(bundle.model, target, bundle.run_id, about, model.model_id)
        # No MLmodel there: MLflow would take the run's folder for the model when it is registered.
        client.log_text(bundle.run_id, flavor.how_to_use(bundle.run_id), f"{flavor.NAME}/README.md")
        client.log_model_artifacts(model.model_id, str(target))
        client.log_outputs(bundle.run_id, [LoggedModelOutput(model.model_id, step=0)])
        once = [point for point in bundle.metrics if point[2] == 0 and point[0] in _MODEL_METRICS]
        data = {} if bundle.dataset is None else bundle.dataset
        digest = {f"dataset_{key}": data[key] for key in ("name", "digest") if key in data}
        points = [Metric(k, v, bundle.logged_at, s, model.model_id, run_id=bundle.run_id, **digest) for k, v, s in once]
        client.log_batch(bundle.run_id, metrics=points)
        client.finalize_logged_model(model.model_id, "READY")
    if model.artifact_location.startswith("file:"):  # the train stage and other attacks on this model have these files
        SharedFiles(store.folder / STAGES).take_in_all(path_of(model.artifact_location))
    if bundle.register:
        register_model(store, bundle.run_id, bundle.register)


def logged_model(store: TrackingStore, run_id: str, experiment: str | None = None) -> Any:
    """The model that a run has logged, finished or not; None if it has none. `experiment` is where it is."""
    found = store.client.search_logged_models(
        [experiment or store.client.get_run(run_id).info.experiment_id],
        filter_string=f"source_run_id = '{run_id}'",
        max_results=1,
    )
    return found[0] if found else None


def register_model(store: TrackingStore, run_id: str, name: str) -> None:
    """Make the model of a run a version of the registered model ``name``; a second time changes nothing."""
    from mlflow.exceptions import MlflowException

    client, model = store.client, logged_model(store, run_id)
    if model is None:
        raise UserError(f"tracking.register: run {run_id[:8]} was logged before models could be registered; rerun it")
    try:
        client.create_registered_model(name)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    if not any(version.run_id == run_id for version in client.search_model_versions(f"name = '{name}'")):
        # Not by models:/ID: MLflow would look for it in the store of the process, not of this client.
        client.create_model_version(name, model.artifact_location, run_id, model_id=model.model_id)
