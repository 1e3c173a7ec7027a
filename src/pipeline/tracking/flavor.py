"""The models as an MLflow pyfunc: ``mlflow.pyfunc.load_model("runs:/RUN/model")``. Safetensors, no pickle.

``load_model`` and ``--env-manager local`` run the code that is installed where they run. An environment that MLflow
makes for the model (virtualenv, uv, conda) has none of it, and this package need not be in any registry: the folder
holds a wheel of the package ``models``, which its requirements name beside the pinned libraries. Loading never runs it.
"""

from __future__ import annotations

import base64
import hashlib
import io
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

# Models that were logged by earlier versions name this module as their loader.
from models.deployment import OUTPUTS, _load_pyfunc
from models.fitted import DeployedClassifier
from pipeline.code import version_of

if TYPE_CHECKING:
    from pipeline.data import Dataset

__all__ = ["Description", "_load_pyfunc", "deploy", "save_pyfunc"]

LOADER = "models.deployment"
NAME = "model"
_LIBRARIES = (
    "mlflow",
    "numpy",
    "scipy",
    "scikit-learn",
    "torch",
    "safetensors",
    "lazy-loader",
    "threadpoolctl",
    "skops",
)
_EXAMPLE_ROWS = 2


@dataclass(frozen=True)
class Description:
    """What MLflow shows of a model: the columns, some rows in the units of the file, and the labels' type."""

    columns: list[str]  # names of the features, empty when they have none
    whole: list[bool]  # of each feature, whether all its training values are whole numbers
    example: list[list[float]]  # some test rows
    texts: bool  # whether the labels are texts


def deploy(model: Any, data: Dataset, folder: Path) -> Description:
    """Complete a folder of ``models.save``: from here on it takes rows of the file and gives its labels."""
    numbers = (-1, 1) if data.n_classes == 2 else range(data.n_classes)
    known = dict(zip(numbers, data.labels or data.class_names))
    labels = [known[label] for label in np.asarray(model.classes_).tolist()]
    DeployedClassifier(model, labels, data.scaler, data.feature_names).describe(folder)
    few = np.asarray(data.X_test[:_EXAMPLE_ROWS])
    raw = few.astype(np.float64) if data.scaler is None else _readable(data.scaler, few)
    return Description(list(data.feature_names), _whole(data), raw.tolist(), isinstance(labels[0], str))


def _readable(scaler: Any, rows: np.ndarray) -> np.ndarray:
    """Raw rows without the digits that float32 has made up: those that fewer digits give the same row for."""
    raw = scaler.inverse_transform(rows)
    size = 10.0 ** (6 - np.floor(np.log10(np.maximum(np.abs(raw), 1e-30))))
    shorter = np.round(raw * size) / size
    return np.where(scaler.transform(shorter) == rows, shorter, raw)


def _whole(data: Dataset) -> list[bool]:
    if not data.feature_names:
        return [False] * data.n_features
    rows = np.asarray(data.X_train[:1000], dtype=np.float64)
    raw = rows if data.scaler is None else data.scaler.inverse_transform(rows)
    size = np.maximum(np.abs(raw).max(axis=0), 1.0)
    return [bool(found) for found in (np.abs(raw - np.round(raw)) <= 1e-5 * size).all(axis=0)]


def save_pyfunc(
    model_folder: Path, target: Path, run_id: str, description: Description | None = None, model_id: str | None = None
) -> None:
    """Write ``target`` as an MLflow model around a folder made by :func:`models.save`."""
    import mlflow.pyfunc
    import pandas as pd
    from mlflow.models import Model

    about: dict[str, Any] = {} if model_id is None else {"model_id": model_id, "model_uuid": model_id}
    named = Model(artifact_path=NAME, run_id=run_id, signature=_signature(description), **about)
    example = None
    if description is not None:
        rows = np.array(description.example)
        example = pd.DataFrame(rows, columns=description.columns) if description.columns else rows
    wheel, content = code_wheel()
    mlflow.pyfunc.save_model(
        target,
        loader_module=LOADER,
        data_path=str(model_folder),
        mlflow_model=named,
        input_example=example,
        signature=named.signature,
        pip_requirements=[*_pinned(), f"code/{wheel}"],
    )
    (target / "code").mkdir()
    (target / "code" / wheel).write_bytes(content)


def how_to_use(run_id: str) -> str:
    """What the run's folder ``model`` says in place of the files, which the logged model keeps."""
    uri = f"runs:/{run_id}/{NAME}"
    return f"""The model takes rows in the units of the file and returns its labels; `output` is label, scores or radius
(the distance, in scaled units, within which the label is proved not to change).

    mlflow models predict -m {uri} --env-manager local -i rows.csv -t csv
    mlflow models serve -m {uri} --env-manager local

    model = mlflow.pyfunc.load_model("{uri}")
    model.predict(table, params={{"output": "radius"}})
    model.get_raw_model()          # the scikit-learn estimator; its .model is the one that was fitted, of scaled rows
    mlflow.register_model("{uri}", "my-model")
"""


def _signature(description: Description | None) -> Any:
    """Columns, the type of the labels, and the choice of what ``predict`` returns.

    A column of whole numbers is of any type: MLflow refuses to make decimals of whole numbers, and tables have both.
    """
    if description is None:
        return None
    from mlflow.models import ModelSignature
    from mlflow.types import ColSpec, DataType, ParamSchema, ParamSpec, Schema
    from mlflow.types.schema import AnyType

    names: list[str | None] = [*description.columns] or [None] * len(description.whole)
    columns: Any = [
        ColSpec(AnyType() if whole else DataType.double, name) for name, whole in zip(names, description.whole)
    ]
    return ModelSignature(
        inputs=Schema(columns),
        outputs=Schema([ColSpec(DataType.string if description.texts else DataType.long)]),
        params=ParamSchema([ParamSpec("output", DataType.string, OUTPUTS[0])]),
    )


def _pinned() -> list[str]:
    # What follows a + names a build (2.13.0+cpu) that the registries do not have. An optional one may not be here.
    return [f"{name}=={version.split('+')[0]}" for name in _LIBRARIES if (version := version_of(name))]


@cache
def code_wheel() -> tuple[str, bytes]:
    """Name and content of a wheel of the package ``models``; the same source gives the same bytes.

    A digest of the code is part of the version: MLflow keeps environments by their requirements' text.
    """
    import models

    home = Path(str(models.__file__)).parent
    files = {
        path.relative_to(home.parent).as_posix(): path.read_bytes()
        for path in sorted(home.rglob("*"))
        if path.suffix in (".py", ".pyi", ".typed") or path.name == "py.typed"
    }
    digest = hashlib.sha256(b"".join(name.encode() + b"\0" + body for name, body in files.items())).hexdigest()
    name, version = "advsvm_models", f"{(version_of('advsvm') or '0').split('+')[0]}+{digest[:12]}"
    about = f"{name}-{version}.dist-info"
    files[f"{about}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n".encode()
    files[f"{about}/WHEEL"] = b"Wheel-Version: 1.0\nGenerator: advsvm\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    lines = [f"{path},sha256={_digest(body)},{len(body)}" for path, body in files.items()]
    files[f"{about}/RECORD"] = "\n".join([*lines, f"{about}/RECORD,,", ""]).encode()
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", zipfile.ZIP_DEFLATED, compresslevel=9) as archive:
        for path, body in files.items():
            archive.writestr(zipfile.ZipInfo(path), body, zipfile.ZIP_DEFLATED)
    return f"{name}-{version}-py3-none-any.whl", packed.getvalue()


def _digest(body: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(body).digest()).rstrip(b"=").decode()
