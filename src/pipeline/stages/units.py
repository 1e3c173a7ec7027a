"""``attack.units``: radii in the units that the model sees (``scaled``), or in those of the file (``raw``).

With one scale for all features a raw radius is that radius divided by it. With a scale for each feature an L∞ ball of
the file is a cell whose sides differ: the smallest L∞ ball around it, and the cell itself as a limit of every feature,
which attacks and certificates both heed. An L2 ball of the file would be an ellipsoid, and is refused.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf

from pipeline.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    from pipeline.data import Dataset

UNITS = ("scaled", "raw")
RAW = "in raw units"  # how a threat in the units of the file is written


def is_raw(cfg: DictConfig) -> bool:
    """Whether the attack's radius is in the units of the file."""
    return str(cfg.attack.get("units") or "scaled") == "raw"


def check_units(cfg: DictConfig) -> None:
    """Refuse, before any work, what has no meaning in raw units."""
    units = cfg.attack.get("units")
    if units is not None and units not in UNITS:
        raise UserError(f"attack.units must be one of {', '.join(UNITS)}; got {units}")
    for name, member in (cfg.attack.get("attacks") or {}).items():
        if member.get("units") not in (None, "scaled"):
            raise UserError(f"attack.attacks.{name}.units: one threat for all attacks of a suite; set attack.units")
    if not is_raw(cfg):
        return
    if not cfg.attack.get("epsilon"):
        raise UserError(f"attack.units=raw: {cfg.attack.name} has no radius of its own; evaluation.l2_cap is scaled")
    if cfg.tune.enabled and cfg.tune.metric != "accuracy" and cfg.tune.radius is None:
        raise UserError("tune.radius: with attack.units=raw give tune.norm and tune.radius, in scaled units")
    for group in ("model", "surrogate"):
        settings = OmegaConf.to_container(cfg[group], resolve=False) if cfg[group] is not None else {}
        if isinstance(settings, dict) and "attack_ball" in str(settings.get("epsilon")):
            raise UserError(f"{group}.epsilon: with attack.units=raw give the radius to train against, in scaled units")


def scaled_radii(cfg: DictConfig, data: Dataset) -> np.ndarray | None:
    """The attack's radius for each feature, (d,), in scaled units; None where they are all the same."""
    if not is_raw(cfg) or data.scaler is None:
        return None
    import numpy as np

    radii = float(cfg.attack.epsilon) / np.asarray(data.scaler.scale, dtype=np.float64)
    return None if np.ptp(radii) == 0 else radii


def in_scaled_units(method: Any, cfg: DictConfig, data: Dataset) -> Any:
    """The attack with its radius as the model sees it."""
    if not is_raw(cfg) or data.scaler is None:
        return method
    radii = scaled_radii(cfg, data)
    if radii is not None and cfg.attack.get("norm", "linf") != "linf":
        raise UserError(
            "attack.units=raw: dataset.scale gives every feature its own scale, so that an L2 ball of the file is no "
            "ball here; use attack.norm=linf, dataset.scale=minmax_all or a number, or attack.units=scaled"
        )
    if radii is not None and getattr(method, "step_size", None) is not None:
        raise UserError("attack.step_size: with attack.units=raw the features have different steps; leave it out")
    epsilon = float(cfg.attack.epsilon) / float(data.scaler.scale[0]) if radii is None else float(radii.max())
    return _with_radius(method, epsilon, epsilon / float(cfg.attack.epsilon))


def _with_radius(method: Any, epsilon: float, factor: float) -> Any:
    changes: dict[str, Any] = {"epsilon": epsilon}
    if getattr(method, "step_size", None) is not None:
        changes["step_size"] = factor * method.step_size
    if getattr(method, "attacks", None) is not None:
        changes["attacks"] = [_with_radius(one, epsilon, factor) if one.bounded else one for one in method.attacks]
    return dataclasses.replace(method, **changes)
