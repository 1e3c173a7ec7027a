"""The numbers of a run. Accuracies are fractions of test rows; certified and attacked ones share rows, norm and radius.

A metric is a function of a :class:`RunView` that returns one number, or several by name. One of your own needs no
change here: name it by its dotted path, ``evaluation.metrics=[my_metrics.brier_score]``, and it is logged under the
function's name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.stages.attack import Attacked
    from pipeline.stages.bracket import Distances, Verdicts
    from pipeline.stages.certify import Certified
    from pipeline.stages.train import Trained
    from pipeline.stages.tune import Tuned


@dataclass(frozen=True)
class RunView:
    """What a metric sees: the results of all stages and what is known of every attacked row."""

    cfg: DictConfig
    data: Dataset
    tuned: Tuned
    trained: Trained
    certified: Certified
    attacked: Attacked
    verdicts: Verdicts
    bracket: Distances


Metric = Callable[[RunView], float | Mapping[str, float]]


def clean(run: RunView) -> dict[str, float]:
    """Without an attack: over all test rows, and over those that were attacked."""
    return {
        "clean_accuracy": float(np.mean(run.certified.correct)),
        "clean_accuracy_attacked": float(np.mean(~run.attacked.clean_wrong)),
        "n_test": float(len(run.data.y_test)),
        "n_attacked": float(len(run.attacked.rows)),
    }


def known(run: RunView) -> dict[str, float]:
    """The bracket in the attack's own threat, over the attacked rows; L2 radii over a sample where rows are many."""
    radii = run.certified.radii[run.certified.rows]
    return {
        "certified_accuracy": float(np.mean(run.verdicts.certified)),
        "attacked_accuracy": float(np.mean(~run.verdicts.broken)),
        "undecided": float(np.mean(run.verdicts.undecided)),
        "certify_stopped": float(run.verdicts.stopped),
        "certified_radius_median": float(np.median(radii)),
        "certified_accuracy_at_radius": float(np.mean(radii >= run.cfg.evaluation.certified_radius)),
        "n_radii": float(len(radii)),
    }


def attacked(run: RunView) -> dict[str, float]:
    """What the attack left standing; rows that were wrong already count as broken."""
    result, cap = run.attacked.result, run.cfg.evaluation.l2_cap
    correct_before = ~run.attacked.clean_wrong
    broken = result.success & correct_before
    return {
        "robust_accuracy": float(np.mean(~result.success)),
        "attack_success_rate": float(broken.sum() / correct_before.sum()) if correct_before.any() else 0.0,
        "accuracy_at_l2_cap": float(np.mean(~(result.success & (result.distortion_l2 <= cap)))),
    }


def distortion(run: RunView) -> dict[str, float]:
    """How far the examples are, and what they cost."""
    result = run.attacked.result
    # Over the examples the attack changed: zeros of the points that were wrong already would hide the distortion.
    distances = result.distortion_l2[result.success & ~run.attacked.clean_wrong]
    return {
        "distortion_l2_median": float(np.median(distances)) if len(distances) else 0.0,
        "distortion_l2_mean": float(distances.mean()) if len(distances) else 0.0,
        "distortion_linf_max": float(result.distortion_linf.max(initial=0.0)),
        "queries_mean": float(result.queries.mean()),
        "gradient_evaluations_mean": float(result.gradient_evaluations.mean()),
    }


def at_cap(run: RunView) -> dict[str, float]:
    """Both bounds at the L2 cap and the gap between them, on the points for which the nearest example was sought."""
    cap = run.cfg.evaluation.l2_cap
    lower, upper = run.bracket.lower(cap), run.bracket.upper(cap)
    return {
        "certified_accuracy_at_l2_cap": lower,
        "bracket_upper_at_l2_cap": upper,
        "bracket_gap_at_l2_cap": upper - lower,
        "bracket_points": float(len(run.bracket.rows)),
    }


def cost(run: RunView) -> dict[str, float]:
    """Seconds, and what the grid promised."""
    seconds = {
        "tune_seconds": run.tuned.seconds,
        "train_seconds": run.trained.seconds,
        "certify_seconds": run.certified.seconds,
        "attack_seconds": run.attacked.seconds,
    }
    promised = {"cv_accuracy": run.tuned.cv_accuracy, "cv_score": run.tuned.cv_score}
    return seconds | {name: value for name, value in promised.items() if value is not None}


def training(run: RunView) -> dict[str, float]:
    """Whether the training diverged: then tables leave the run out."""
    diverged = getattr(run.trained.model, "diverged_", None)
    return {} if diverged is None else {"diverged": float(diverged)}


METRICS: tuple[Metric, ...] = (clean, known, attacked, distortion, at_cap, cost, training)


def measure(run: RunView) -> dict[str, float]:
    """All metrics of a run, the user's own last."""
    from hydra.utils import get_method

    found: dict[str, float] = {}
    for metric in (*METRICS, *(get_method(path) for path in run.cfg.evaluation.metrics)):
        value: Any = metric(run)
        found |= dict(value) if isinstance(value, Mapping) else {metric.__name__: float(value)}
    return found
