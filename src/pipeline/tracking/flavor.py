"""The models as an MLflow pyfunc: ``mlflow.pyfunc.load_model("runs:/RUN/model")``. Safetensors, no pickle."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np


class ScoredModel:
    """What ``load_model`` gives back: ``predict`` returns labels, or scores with ``params={"output": "scores"}``."""

    def __init__(self, model: Any):
        self.model = model

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> np.ndarray:
        """Labels (or scores) for rows of pixels in [0, 1]; takes arrays and data frames."""
        X = np.asarray(data, dtype=np.float32)
        return self.model.decision_function(X) if (params or {}).get("output") == "scores" else self.model.predict(X)


def _load_pyfunc(path: str) -> ScoredModel:
    """Entry point that MLflow looks for in the loader module."""
    from models import load

    return ScoredModel(load(path))


def save_pyfunc(model_folder: Path, target: Path, run_id: str) -> None:
    """Write ``target`` as an MLflow model around a folder made by :func:`models.save`."""
    from mlflow.models import Model
    from mlflow.pyfunc import add_to_model

    shutil.copytree(model_folder, target / "data")
    description = Model(artifact_path="model", run_id=run_id)
    add_to_model(description, loader_module=__name__, data="data")
    description.save(str(target / "MLmodel"))
