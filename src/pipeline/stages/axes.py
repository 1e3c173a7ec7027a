"""What a grid may vary, and where a model keeps it."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

# By the names of tune's settings.
AXES = ("C", "step", "width_scale", "epsilon", "C_f", "n_features", "learning_rate", "epochs")
HOMES = ("model", "model.kernel", "model.expansion")


def axis_path(cfg: DictConfig, axis: str) -> str | None:
    """Where the model keeps what an axis of the grid varies, ``model.kernel.width_scale``; None if it has no such."""
    paths = (f"{home}.{axis}" for home in HOMES)
    return next((path for path in paths if OmegaConf.select(cfg, path) is not None), None)


def tuned_axes(cfg: DictConfig) -> dict[str, str]:
    """The axes that this run's grid decides, each with its place in the model's settings."""
    wanted = [axis for axis in AXES if cfg.tune.enabled and cfg.tune[axis] is not None]
    return {axis: path for axis in wanted if (path := axis_path(cfg, axis)) is not None}
