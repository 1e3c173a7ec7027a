"""Is the model what its settings say: repeatable, natural at ε = 0, and different beyond?"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from sklearn.base import clone

from pipeline.checks.context import ModelContext, evenly
from pipeline.checks.registry import Check, failed, of_model, passed, skipped
from pipeline.data.windows import training_rows

_ROWS = 64
_COLUMNS = 64


@of_model("18_refit", "full")
def refit_gives_identical_weights(context: ModelContext) -> Check:
    """Trained again with the same seed: every stored array is equal bit for bit."""
    again = _fit(context.fresh_model(), training_rows(context.data), context.data.y_train)
    stored, fresh = (_weights(model) for model in (context.model, again))
    differing = sorted(
        name
        for name in stored.keys() | fresh.keys()
        if name not in stored or name not in fresh or not np.array_equal(stored[name], fresh[name])
    )
    evidence = {"arrays": len(stored), "differing": differing}
    if differing:
        return failed(f"a refit with the same seed differs in {', '.join(differing)}", **evidence)
    return passed("a refit with the same seed gives identical weights", **evidence)


def _weights(model: Any) -> dict[str, np.ndarray]:
    # The error curve depends on the rows it was evaluated on, not on the weights.
    return {name: array for name, array in model.get_state()[1].items() if not name.startswith("curve.")}


@of_model("21_epsilon_term")
def epsilon_reaches_the_scores(context: ModelContext) -> Check:
    """On a small set: ε = 0 is Natural bit for bit, ε > 0 changes the scores, and scores are those of the last iterate.

    The published code of the method sums test scores without the decay, so that its adversarial term cannot reach the
    number it prints.
    """
    fresh = context.fresh_model()
    settings = fresh.get_params(deep=False)
    if "image_shape" in settings:
        epsilon = float(settings["epsilon"])
        if epsilon == 0:
            return skipped("trained on clean data: epsilon is 0")
        return _other_machine(context, fresh, "epsilon", epsilon)
    if "epsilon" in settings:
        return _kernel_machine(context, fresh, settings)
    if "C_f" in settings:  # a linear machine has no epsilon
        return _other_machine(context, fresh, "C_f", float(settings["C_f"]) or 0.1)
    return skipped("the model has no epsilon")


def _kernel_machine(context: ModelContext, fresh: Any, settings: dict[str, Any]) -> Check:
    from models import AdvSVM

    X, y = _small(context)
    # Several iterations: in the first one f = 0 and ε plays no part.
    small = {"batch_size": max(8, len(X) // 4), "passes": 1}
    epsilon = float(settings["epsilon"]) or 0.25
    zero = _fit(fresh.set_params(epsilon=0.0, **small), X, y)
    positive = _fit(clone(fresh).set_params(epsilon=epsilon), X, y)
    known = AdvSVM().get_params(deep=False)
    shared = {name: value for name, value in settings.items() if name in known}
    natural = _fit(AdvSVM(**(shared | small | {"epsilon": 0.0})), X, y)
    at_zero, at_positive = np.asarray(zero.scores(X)), np.asarray(positive.scores(X))
    moved = float(np.abs(at_positive - at_zero).max())
    stray = _stray(context)
    evidence = {
        "rows": len(X),
        "epsilon": epsilon,
        "natural_bit_for_bit": bool(np.array_equal(at_zero, natural.scores(X))),
        "largest_change": moved,
        "scores_off_the_last_iterate": stray,
    }
    problems = []
    if not evidence["natural_bit_for_bit"]:
        problems.append("epsilon=0 does not give the natural model")
    if moved == 0.0:
        problems.append(f"epsilon={epsilon:.3g} changes no score: the adversarial term does not reach them")
    if stray is not None and not stray <= 1e-3:
        problems.append("the scores are not those of the last iterate: a decay is missing")
    if problems:
        return failed("; ".join(problems), **evidence)
    return passed("epsilon=0 is Natural bit for bit, and epsilon>0 changes the scores", **evidence)


def _stray(context: ModelContext) -> float | None:
    """Relative distance between the model's scores and the last of its staged scores."""
    if not hasattr(context.model, "staged_scores"):
        return None
    scores = context.sample_scores
    last = np.asarray(context.model.staged_scores(context.sample))[-1]
    scale = float(np.abs(last).max(initial=0.0))
    return float(np.abs(last - scores).max(initial=0.0)) / scale if scale > 0 else 0.0


def _other_machine(context: ModelContext, fresh: Any, term: str, size: float) -> Check:
    """A network trained on examples of size ε, or a linear machine whose attacker reaches C_f, against none of it."""
    X, y = _small(context)
    if "image_shape" in fresh.get_params(deep=False):
        fresh.set_params(image_shape=None, epochs=1, batch_size=max(8, len(X) // 4))
    zero, positive = (np.asarray(_fit(clone(fresh).set_params(**{term: k}), X, y).scores(X)) for k in (0.0, size))
    moved = float(np.abs(positive - zero).max())
    evidence = {"rows": len(X), term: size, "largest_change": moved}
    # A linear machine is solved: another solution, not another rounding of the same one.
    if moved <= (1e-3 * float(np.abs(zero).max()) if term == "C_f" else 0.0):
        return failed(f"{term}={size:.3g} changes no score: the adversarial term does not reach them", **evidence)
    remark = " (a linear machine has no epsilon)" if term == "C_f" else ""
    return passed(f"{term}>0 changes the scores{remark}", **evidence)


def _small(context: ModelContext) -> tuple[np.ndarray, np.ndarray]:
    """A few training rows of both classes, and of their pixels those that vary most: the solvers cost up to d³."""
    y = context.data.y_train
    chosen = [evenly(np.flatnonzero(y == label), _ROWS // 2) for label in np.unique(y)]
    rows = np.sort(np.concatenate(chosen))
    X = np.asarray(context.data.X_train[rows])
    columns = np.sort(np.argsort(-X.var(axis=0), kind="stable")[:_COLUMNS])
    return np.ascontiguousarray(X[:, columns]), y[rows]


def _fit(model: Any, X: np.ndarray, y: np.ndarray) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)
