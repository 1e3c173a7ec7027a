"""``model=fitted``: a model that somebody else trained, from a file or an MLflow store. Nothing is fitted.

Safe by default: a skops file builds scikit-learn's own types only, and our own format holds no code. A pickle runs
whatever its writer put into it, so it is opened with ``model.trust=true`` alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import warnings
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig

from pipeline.errors import UserError
from pipeline.paths import at_home

if TYPE_CHECKING:
    from pipeline.data import Dataset

_URI = re.compile(r"(models|runs|mlflow-artifacts):/")
_OUR_LOADERS = ("models.deployment", "pipeline.tracking.flavor")  # the second of earlier versions


class FittedFile:
    """Where a fitted model is kept.

    Parameters
    ----------
    path : str
        A skops file, a folder written by ``models.save`` or by MLflow, a pickle or joblib file, or an MLflow address:
        ``models:/NAME/1``, ``models:/NAME@alias``, ``runs:/RUN/model`` in the run's own tracking store.
    trust : bool
        Open pickles and types that are not scikit-learn's: they can run any code.
    """

    def __init__(self, path: str, trust: bool = False):
        self.path, self.trust = path, trust


def is_fitted(cfg: DictConfig) -> bool:
    """Whether the model comes from a file instead of from training."""
    return "path" in cfg.model


def check(cfg: DictConfig) -> None:
    """Refuse what cannot be opened, before anything is written."""
    if not is_fitted(cfg):
        return
    kept, is_pickle = _kept(locate(cfg))
    if is_pickle and not cfg.model.trust:
        raise UserError(
            f"model.path: {cfg.model.path} is a pickle ({kept.name}), which can run any code when it is opened; "
            "save the model with skops.io.dump, or set model.trust=true if you trust who wrote it"
        )


def digest(cfg: DictConfig) -> str:
    """sha256 of the model's content: its part of the stages' keys, whatever the file is called."""
    place = locate(cfg)
    files = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    found = hashlib.sha256()
    for path in files:
        # MLflow writes its own ids and dates beside the model; they decide nothing.
        if path.name not in ("MLmodel", "registered_model_meta"):
            found.update(f"{path.relative_to(place)}\0".encode() + path.read_bytes())
    return found.hexdigest()


def adopt(cfg: DictConfig, data: Dataset) -> Any:
    """The model in the units and the labels of the data."""
    import numpy as np

    from models import FittedClassifier

    # Rows are arrays here: a model that was fitted on a data frame need not say so each time.
    warnings.filterwarnings("ignore", message="X does not have valid feature names")
    estimator, written = _load(locate(cfg), bool(cfg.model.trust), str(cfg.model.path))
    if not callable(getattr(estimator, "predict", None)) or getattr(estimator, "classes_", None) is None:
        raise UserError(f"model.path: {cfg.model.path} holds a {type(estimator).__name__}, not a fitted classifier")
    _check_features(estimator, data, written)
    labels = _labels(estimator, data, written)
    if callable(getattr(estimator, "scores", None)):  # one of ours: it was trained on rows in scaled units
        here = None if data.scaler is None else data.scaler.to_dict()
        if written is not None and written.get("scaler") != here:
            raise UserError("dataset.scale: the model was trained on rows in other units; use those of its run")
        if labels != estimator.classes_.tolist():
            estimator.classes_ = np.asarray(labels)
        return estimator
    units = {} if data.scaler is None else {"scale": data.scaler.scale, "shift": data.scaler.shift}
    return FittedClassifier(estimator, labels, **units)


def locate(cfg: DictConfig) -> Path:
    """The model on the disk, fetched from the tracking store where the path is an address of MLflow's."""
    path = str(cfg.model.path)
    if _URI.match(path):
        return _fetched(path, str(cfg.tracking.uri or ""), str(cfg.tracking.folder))
    place = at_home(path)
    if not place.exists():
        raise UserError(f"model.path: {path} does not exist")
    return place.resolve()


@functools.lru_cache(maxsize=8)
def _fetched(path: str, uri: str, folder: str) -> Path:
    import mlflow
    from mlflow.exceptions import MlflowException

    from pipeline.paths import DATABASE, sqlite_address

    # A login was taken out of the address before anything else was done (pipeline.tracking.credentials).
    database = Path(folder).resolve() / DATABASE
    if not uri and not database.exists():
        raise UserError(f"model.path: {path} is in no store: {folder} holds none; set tracking.folder or tracking.uri")
    store = uri or sqlite_address(database)
    mlflow.set_tracking_uri(store)
    mlflow.set_registry_uri(store)
    try:
        return Path(mlflow.artifacts.download_artifacts(path)).resolve()
    except (MlflowException, OSError) as error:
        raise UserError(f"model.path: {path} cannot be fetched: {str(error).splitlines()[0]}") from error


def _kept(place: Path) -> tuple[Path, bool]:
    """What to open, a skops file or a folder of ours; and whether it is a pickle, which can run code, instead."""
    if place.is_file():
        return place, not zipfile.is_zipfile(place)
    if (place / "model.json").is_file():
        return place, False
    description = place / "MLmodel"
    if not description.is_file():
        raise UserError(f"model.path: {place} is not a model: it has neither model.json nor MLmodel")
    import yaml

    flavors = (yaml.safe_load(description.read_text()) or {}).get("flavors") or {}
    ours = flavors.get("python_function") or {}
    if ours.get("loader_module") in _OUR_LOADERS:
        return place / str(ours.get("data", "data")), False
    if "sklearn" not in flavors:
        raise UserError(f"model.path: {place} has the flavours {', '.join(flavors)}; a sklearn one is needed")
    file = place / str(flavors["sklearn"].get("pickled_model"))
    return file, flavors["sklearn"].get("serialization_format") != "skops"


def _load(place: Path, trust: bool, shown: str) -> tuple[Any, dict[str, Any] | None]:
    """The estimator, and for a logged model of ours what was written beside it."""
    kept, is_pickle = _kept(place)
    try:
        if is_pickle:
            if not trust:
                raise UserError(f"model.path: {shown} is a pickle; set model.trust=true if you trust who wrote it")
            import joblib

            return joblib.load(kept), None
        if kept.is_dir():
            from models import load

            beside = kept / "deployment.json"
            return load(kept), json.loads(beside.read_text()) if beside.is_file() else None
        import skops.io

        from models.fitted import HARMLESS

        asked = skops.io.get_untrusted_types(file=kept)
        strangers = [name for name in asked if name not in HARMLESS]
        if strangers and not trust:
            raise UserError(
                f"model.path: {shown} holds types that skops does not trust by itself ({', '.join(strangers[:5])}); "
                "set model.trust=true if you trust who wrote it"
            )
        return skops.io.load(kept, trusted=asked), None
    except UserError:
        raise
    except Exception as error:
        from pipeline.data.settings import first_line

        raise UserError(f"model.path: {shown} cannot be read: {first_line(error)}") from error


def _check_features(estimator: Any, data: Dataset, written: dict[str, Any] | None) -> None:
    from pipeline.data.rows import plain_name

    wanted = getattr(estimator, "n_features_in_", None)
    if wanted is not None and wanted != data.n_features:
        raise UserError(f"model.path: the model takes {wanted} features, rows of {data.name} have {data.n_features}")
    names = getattr(estimator, "feature_names_in_", None)
    names = (written or {}).get("feature_names") or [] if names is None else names
    pairs = list(zip(map(plain_name, names), data.feature_names))
    wrong = next(((mine, theirs) for mine, theirs in pairs if mine != theirs), None)
    if wrong:
        raise UserError(
            f"model.path: the model was fitted with a column {wrong[0]} where the data has {wrong[1]}; "
            "give the file the model's columns in their order"
        )


def _labels(estimator: Any, data: Dataset, written: dict[str, Any] | None) -> list[int]:
    """What the pipeline calls the estimator's classes, in their order."""
    from pipeline.data.rows import plain_name

    numbers = [-1, 1] if data.n_classes == 2 else list(range(data.n_classes))
    known = dict(zip(data.class_names, numbers))
    names = (written or {}).get("class_names") or [plain_name(label) for label in estimator.classes_.tolist()]
    if set(names) == set(known):
        return [known[name] for name in names]
    if written is None and sorted(estimator.classes_.tolist()) == numbers:
        return list(estimator.classes_.tolist())
    raise UserError(
        f"model.path: the model knows the classes {', '.join(names[:12])}, the data of {data.name} "
        f"{', '.join(data.class_names[:12])}; choose the same with dataset.classes"
    )
