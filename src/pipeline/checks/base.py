"""What a check sees and what it says."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.stages.attack import Attacked
    from pipeline.stages.train import Trained
    from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class Check:
    """The outcome of one check: ``pass``, ``warn``, ``fail``, or ``skipped`` with the reason in ``message``."""

    id: str
    status: str
    message: str
    evidence: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class CheckContext:
    """Everything a check may look at: the configuration and the results of all stages."""

    cfg: DictConfig
    data: Dataset
    tuned: Tuned
    trained: Trained
    attacked: Attacked
    radii: np.ndarray
