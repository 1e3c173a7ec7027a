"""Does a model of somebody's own keep to the protocol? All that is wrong is said at once, before anything is tuned."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pipeline.errors import UserError

if TYPE_CHECKING:
    from pipeline.data import Dataset

# What every stage relies on, and what for.
_NEEDED = {
    "fit": "to be trained",
    "predict": "for clean accuracy",
    "scores": "to be attacked",
    "get_state": "to be stored",
    "from_state": "to be loaded",
    "get_params": "to be cloned; derive from sklearn.base.BaseEstimator",
}
# Who ships a model tests its protocol.
_TESTED = ("models.", "sklearn.", "pipeline.")
_OPTIONAL = ("eval_set", "observer")
_ROWS, _COLUMNS = 24, 3


def fit_options(model: Any, **offered: Any) -> dict[str, Any]:
    """Those of ``eval_set`` and ``observer`` that the model's ``fit`` takes; it may do without either."""
    parameters = inspect.signature(model.fit).parameters
    anything = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return {name: value for name, value in offered.items() if anything or name in parameters}


def check_protocol(model: Any, data: Dataset, name: str) -> None:
    """Raise one :class:`UserError` with everything that a model of one's own lacks or answers wrongly.

    What can be seen is looked at; if nothing is missing, a clone is fitted to a few training rows and asked.
    """
    if f"{type(model).__module__}.".startswith(_TESTED):
        return
    wrong = [f"{part} is missing ({why})" for part, why in _NEEDED.items() if not callable(getattr(model, part, None))]
    if callable(getattr(model, "fit", None)):
        wrong += _arguments(model.fit)
    wrong = wrong or _tried(model, data)
    if wrong:
        raise UserError(f"model={name}: {type(model).__name__} does not keep to the protocol: {'; '.join(wrong)}")


def _arguments(fit: Callable[..., Any]) -> list[str]:
    signature = inspect.signature(fit)
    parameters = signature.parameters.values()
    more = [p.name for p in parameters if p.default is p.empty and p.kind in (p.POSITIONAL_OR_KEYWORD, p.KEYWORD_ONLY)]
    unknown = [name for name in more[2:] if name not in _OPTIONAL]
    wrong = [f"fit asks for {', '.join(unknown)}, which nobody gives it"] if unknown else []
    try:
        signature.bind_partial("X", "y")  # *arguments will do
    except TypeError:
        wrong.append("fit must take X and y")
    return wrong


def _tried(model: Any, data: Dataset) -> list[str]:
    """What a clone fitted to a few training rows answers wrongly."""
    from sklearn.base import clone

    each = max(2, _ROWS // data.n_classes)
    rows = np.sort(np.concatenate([np.flatnonzero(data.y_train == c)[:each] for c in np.unique(data.y_train)]))
    X, y = np.ascontiguousarray(data.X_train[rows], dtype=np.float32), data.y_train[rows]
    try:
        fitted = clone(model)
        fitted.fit(X, y, **fit_options(fitted, eval_set=(X, y), observer=None))
    except Exception as error:
        return [f"fit on {len(X)} rows raised {_said(error)}"]
    coords = np.arange(min(_COLUMNS, X.shape[1]))
    wrong: list[str] = []

    def ask(what: str, answer: Callable[[], Any], right: Callable[[Any], Any]) -> Any:
        try:
            found = answer()
            if right(found):
                return found
            wrong.append(what)
        except Exception as error:
            wrong.append(f"{what}, but raised {_said(error)}")
        return None

    n, d, classes = len(X), X.shape[1], np.unique(y)
    ask("fit must set classes_, the sorted labels", lambda: fitted.classes_, lambda c: np.array_equal(c, classes))
    ask(
        f"predict must give {n} of the labels",
        lambda: fitted.predict(X),
        lambda p: len(p) == n and bool(np.isin(p, y).all()),
    )
    shape = (n,) if len(classes) == 2 else (n, len(classes))
    named = "(n,)" if len(classes) == 2 else "(n, classes)"
    scores = ask(
        f"scores must give an array of shape {named}", lambda: fitted.scores(X), lambda s: np.shape(s) == shape
    )
    if len(classes) == 2 and callable(getattr(fitted, "scores_and_gradients", None)):
        ask(
            "scores_and_gradients must give the scores and an array of shape (n, d)",
            lambda: fitted.scores_and_gradients(X),
            lambda pair: _close(pair[0], scores) and np.shape(pair[1]) == (n, d),
        )
    if len(classes) == 2 and callable(getattr(fitted, "probe", None)):
        ask(
            "probe must give two arrays of shape (n, len(coords)), the scores at x ± h e_j",
            lambda: fitted.probe(X, coords, 0.01),
            lambda pair: all(_close(side, moved) for side, moved in zip(pair, _moved(fitted, X, coords))),
        )
    ask(
        "from_state(*get_state()) must give the same scores",
        lambda: type(fitted).from_state(*fitted.get_state()).scores(X),
        lambda again: _close(again, scores),
    )
    return wrong


def _moved(fitted: Any, X: np.ndarray, coords: np.ndarray) -> list[np.ndarray]:
    steps = [0.01 * np.eye(X.shape[1])[coords], -0.01 * np.eye(X.shape[1])[coords]]
    return [np.stack([fitted.scores((X + step).astype(X.dtype)) for step in side], axis=1) for side in steps]


def _close(found: Any, expected: Any) -> bool:
    if expected is None:  # said already
        return True
    size = max(1e-6, float(np.abs(expected).max(initial=0.0)))
    return np.shape(found) == np.shape(expected) and bool(np.allclose(found, expected, rtol=0, atol=1e-3 * size))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
