"""MLflow's loader module of a deployed model; nothing here needs MLflow. Logged models name it, so it stays."""

from typing import Any

import numpy as np

from models.fitted import DeployedClassifier
from models.rounding import NoCertificate

OUTPUTS = ("label", "scores", "radius")


class PyFunc:
    """What ``mlflow.pyfunc.load_model`` gives back inside its own wrapper."""

    def __init__(self, estimator: DeployedClassifier):
        self.estimator = estimator

    def get_raw_model(self) -> DeployedClassifier:
        """``mlflow.pyfunc.load_model(URI).get_raw_model()``: the estimator of raw rows, around the fitted ``model``."""
        return self.estimator

    def predict(self, data: Any, params: dict[str, Any] | None = None) -> np.ndarray:
        """Labels; or as ``params={"output": …}`` says, ``scores`` or the certified ``radius`` (scaled units)."""
        output = (params or {}).get("output", OUTPUTS[0])
        if output not in OUTPUTS:
            raise ValueError(f"params.output must be one of {', '.join(OUTPUTS)}; got {output!r}")
        if output == "scores":
            if not hasattr(self.estimator, "decision_function"):
                raise ValueError("output=scores: this model gives labels only")
            return self.estimator.decision_function(data)
        if output == "radius":
            try:
                return self.estimator.certified_radius(data)
            except NoCertificate as reason:
                raise ValueError(f"output=radius: {reason}") from reason
        return self.estimator.predict(data)


def _load_pyfunc(path: str) -> PyFunc:
    """Entry point that MLflow looks for in a loader module."""
    return PyFunc(DeployedClassifier.load(path))
