"""Choosing settings by cross-validation: one kind of result, whatever the fastest way to get at it is.

A model that can score many settings faster than by one fit each has a method ``cv_scores(X, y, axes, how)``, see
`CrossValidation` and `FoldScores`; any other estimator is fitted once per setting and fold.
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold, StratifiedShuffleSplit

from models.certificates.certify import certify
from models.descent import MarginsAndSlopes, linear_loss, survivors
from models.distances import dense
from models.expansions import Expansion
from models.kernels import Kernel
from models.threat import Threat
from models.training import DivergenceWarning, Observer

Axes = dict[str, list[float]]
METRICS = ("accuracy", "certified_accuracy", "robust_accuracy")
# How many of the best settings, and of those on the front, a tuning by robust accuracy attacks.
SHORTLIST = 6
# Of more rows than the first a grid uses the second: all columns of 10⁵ rows would take gigabytes and hours, and which
# setting is best is known from far fewer. A model may have others, `tuning_rows`.
MOST_ROWS, SAMPLE = 25_000, 20_000


@dataclass(frozen=True)
class GridResult:
    """What tuning found.

    Attributes
    ----------
    best : dict
        The chosen settings, e.g. {"C": 8.0, "step": 0.125}, with a value for every axis the model has.
    best_score : float
        Mean of the metric over the folds at `best`.
    table : dict of equally long lists
        One row per setting: the settings, "mean_accuracy" (held-out; for `AdvSVM` without averaging over its last five
        iterates), "std_accuracy", the same of the metric if it is another one, "attacked" (with "robust_accuracy": the
        value is that under descent, not the first-order estimate), "diverged". Never NaN.
    front : list of int
        Rows of the table that no other row beats in both accuracy and the metric, most accurate first; the chosen one
        is among them. With "robust_accuracy" they are some of the attacked rows.
    best_row : int
        That of the chosen settings.
    on_edge : list of str
        Settings whose best value is the smallest or largest on offer.
    messages : list of str
        What a user should know about this tuning, in full sentences.
    """

    best: dict[str, float]
    best_score: float
    table: dict[str, list[Any]]
    front: list[int] = field(default_factory=list)
    best_row: int = 0
    on_edge: list[str] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class CrossValidation:
    """How settings are scored; see `grid_search`."""

    folds: int = 5
    metric: str = "accuracy"
    threat: Threat = field(default_factory=lambda: Threat("l2", 0.5, None))  # of the other two metrics
    max_rows: int = 500  # held-out rows, over all folds, that are certified or attacked: a gradient each per setting
    random_state: int = 0
    observer: Observer | None = None

    def __post_init__(self) -> None:
        if self.metric not in METRICS:
            raise ValueError(f"metric={self.metric!r} is not one of {', '.join(METRICS)}")
        if self.folds < 2:
            raise ValueError(f"folds={self.folds} must be at least 2")
        if self.max_rows < self.folds:
            raise ValueError(f"max_rows={self.max_rows} must be at least the number of folds")

    def assign(self, signs: np.ndarray) -> np.ndarray:
        """Fold number of each row, shape (n,): stratified, seeded."""
        numbers = np.empty(len(signs), dtype=np.int64)
        splitter = StratifiedKFold(self.folds, shuffle=True, random_state=self.random_state)
        for number, (_, held_out) in enumerate(splitter.split(signs, signs)):
            numbers[held_out] = number
        return numbers

    def sample(self, numbers: np.ndarray, fold: int, used: int | None = None) -> np.ndarray:
        """The rows of a fold that are certified or attacked, if so many folds are used; all of them by default."""
        held_out = np.flatnonzero(numbers == fold)
        # Evenly spread: the first rows of data sorted by class would be of one class only.
        return held_out[:: -(-len(held_out) // max(1, self.max_rows // (used or self.folds)))]

    def begin(self, n_settings: int) -> tuple[np.ndarray, np.ndarray | None]:
        """Room for accuracy and, if there is another metric, for that."""
        shape = (n_settings, self.folds)
        return np.zeros(shape), None if self.metric == "accuracy" else np.zeros(shape)

    def robust_share(self, fitted: Any, X: np.ndarray, y: np.ndarray) -> float:
        """Share of rows on which a fitted model is certified (by the cheapest bound), or to first order robust."""
        threat = self.threat
        if self.metric == "certified_accuracy":
            if threat.norm == "l2" and threat.box is None:
                return float(np.mean(fitted.certified_radius(X, y) >= threat.epsilon))
            # No seconds for dearer proofs: they would make the choice depend on the machine.
            return float(np.mean(certify(fitted, X, y, threat, seconds=0.0)))
        margins, slopes = margins_and_slopes(fitted, y)(X, np.arange(len(X)))
        points = torch.from_numpy(np.asarray(X, dtype=np.float64))
        loss = linear_loss(threat, points, torch.from_numpy(slopes)[:, None])
        return float(np.mean(margins - loss[:, 0].numpy() > 0))

    def attacked_share(self, fitted: Any, X: np.ndarray, y: np.ndarray) -> float:
        """Share of rows that descent inside the ball leaves right."""
        return float(np.mean(survivors(self.threat, X, margins_and_slopes(fitted, y))))

    def attack_on(
        self, fitted: Callable[[int, int], Any], X: Any, y: np.ndarray, numbers: np.ndarray, used: int | None = None
    ) -> Callable[[int], np.ndarray]:
        """What `FoldScores.attack` is, for models that ``fitted(setting, fold)`` gives."""
        samples = [self.sample(numbers, fold, used) for fold in range(used or self.folds)]
        return lambda place: np.array(
            [self.attacked_share(fitted(place, f), dense(X[rows]), y[rows]) for f, rows in enumerate(samples)]
        )

    def report(self, done: int, total: int) -> None:
        """Tell the observer."""
        if self.observer is not None:
            self.observer("tune", done, total)


def margins_and_slopes(fitted: Any, y: np.ndarray) -> MarginsAndSlopes:
    """y·f and y·∇f of a fitted model with ``scores_and_gradients``, float64."""
    if not hasattr(fitted, "scores_and_gradients"):
        raise ValueError(f"metric='robust_accuracy' needs gradients, and a {type(fitted).__name__} has none")
    signs = np.where(y == fitted.classes_[1], 1.0, -1.0)

    def ask(points: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        scores, gradients = fitted.scores_and_gradients(points)
        return signs[rows] * scores, signs[rows, None] * np.asarray(gradients, dtype=np.float64)

    return ask


@dataclass(frozen=True)
class FoldScores:
    """Results by setting and fold."""

    settings: list[dict[str, float]]
    accuracy: np.ndarray  # (n_settings, folds)
    robust: np.ndarray | None = None  # (n_settings, folds), the metric if it is another one; attacks: to first order
    diverged: np.ndarray | None = None  # (n_settings,), bool, in any fold
    attack: Callable[[int], np.ndarray] | None = None  # from a setting's number to its accuracy under descent (folds,)
    messages: list[str] = field(default_factory=list)  # how it was measured, as far as a user should know


def grid_search(
    model: Any,
    X: Any,
    y: Any,
    *,
    C: Sequence[float] | None = None,
    step: Sequence[float] | None = None,
    width: Sequence[float] | None = None,
    epsilon: Sequence[float] | None = None,
    C_f: Sequence[float] | None = None,
    n_features: Sequence[int] | None = None,
    learning_rate: Sequence[float] | None = None,
    epochs: Sequence[int] | None = None,
    folds: int = 5,
    metric: str = "accuracy",
    norm: str = "l2",
    radius: float = 0.5,
    box: tuple[float, float] | None = None,
    select: str = "robust",
    within: float = 0.01,
    max_rows: int = 500,
    random_state: int = 0,
    observer: Observer | None = None,
) -> GridResult:
    """Choose settings by k-fold cross-validation.

    Parameters
    ----------
    model : estimator
        `AdvSVM` trains the whole grid in one pass, `AdvLinearSVM` solves all columns together, `KernelSVC` shares one
        kernel matrix per width, a network is scored on one fold; any other is fitted once per setting and fold. Its
        other settings stay as they are. It is not changed.
    X : array or CSR matrix of shape (n, d)
        Of more than 25,000 rows (16,384 of a `KernelSVC`) a stratified part is used, and a message says so.
    y : array of shape (n,)
    C : list of float, optional
    step : list of float
        Step sizes; None keeps the model's, as for the axes below. Axes that are no setting of the model are left out.
    width : list of float
        Values of the kernel's width_scale.
    epsilon : list of float
        L2 radii trained against; 0 is allowed.
    C_f : list of float
        What `AdvLinearSVM` trains against, in [0, 1].
    n_features : list of int
        Sizes of a random-feature expansion. Each size is a pass of its own.
    learning_rate, epochs : list of float, list of int
        Of a network.
    folds : int
    metric : {"accuracy", "certified_accuracy", "robust_accuracy"}
        What to maximise. Of equals the more accurate, the wider kernel, the smaller C, the smaller step.
        "robust_accuracy" is margin - loss > 0 for the largest first-order loss in the threat, on all settings, and
        descent (11 steps) on the six best and on up to six of the front; one of these is chosen.
    norm, radius, box : {"l2", "linf"}, float, (low, high) or None
        The threat of the last two metrics.
    select : {"robust", "within", "one_se"}
        The largest metric; the largest among settings at most `within` below the best accuracy; or the most accurate
        setting whose metric is at most one standard error (over folds) below the largest.
    within : float
        0.01 is one point of accuracy.
    max_rows : int
        Held-out rows, over all folds, that are certified or attacked.
    random_state : int
        Seed of folds, batches and random features.
    observer : callable, optional
        ``observer("tune", done, total)``.
    """
    if select not in ("robust", "within", "one_se"):
        raise ValueError(f"select={select!r} is not one of robust, within, one_se")
    how = CrossValidation(folds, metric, Threat(norm, radius, box), max_rows, random_state, observer)
    offered = {"C": C, "step": step, "width_scale": width, "epsilon": epsilon, "C_f": C_f, "n_features": n_features}
    offered |= {"learning_rate": learning_rate, "epochs": epochs}
    axes = {name: _axis(name, values) for name, values in offered.items() if values is not None}
    most, sample = getattr(model, "tuning_rows", (MOST_ROWS, SAMPLE))
    X, y, note = _some_rows(X, y, most, sample, random_state)
    fast = getattr(model, "cv_scores", None)
    scores = cross_validate_fits(model, X, y, axes, how) if fast is None else fast(X, y, axes, how)
    scores.messages.extend(note)
    return choose(scores, axes, how, within if select == "within" else None, select == "one_se")


def _some_rows(X: Any, y: Any, most: int, sample: int, seed: int) -> tuple[Any, Any, list[str]]:
    """All rows, or of more than `most` a stratified part, and what to say about it."""
    if len(y) <= most:
        return X, y, []
    chosen = np.sort(next(StratifiedShuffleSplit(1, train_size=sample, random_state=seed).split(y, y))[0])
    words = f"Settings were chosen on {sample:,} of the {len(y):,} training rows: a grid over all of them takes hours."
    return X[chosen], np.asarray(y)[chosen], [words]


def _axis(name: str, values: Sequence[float]) -> list[float]:
    axis = sorted({float(value) for value in values})
    # No perturbation at all is a way to train; nothing else may be 0.
    low_enough = axis and (axis[0] > 0 or (name in ("epsilon", "C_f") and axis[0] == 0))
    if not low_enough or not np.isfinite(axis[-1]):
        raise ValueError(f"{name} must be one or more positive numbers, got {list(values)!r}")
    return axis


def chosen_axes(axes: Axes, known: tuple[str, ...]) -> Axes:
    """The axes a model has: a linear machine has no step and no width."""
    return {name: values for name, values in axes.items() if name in known}


def combinations(axes: Axes) -> list[dict[str, float]]:
    """All settings of a grid, the last axis running fastest."""
    return [dict(zip(axes, values)) for values in product(*axes.values())]


def cross_validate_fits(
    model: Any,
    X: Any,
    y: Any,
    axes: Axes,
    how: CrossValidation,
    only: int | None = None,
    known: tuple[str, ...] | None = None,
) -> FoldScores:
    """One fit per setting and fold, or on the first `only` folds; `known` axes are those of the model by default."""
    settings = combinations(chosen_axes(axes, known or tuple(model.get_params())))
    X, y = X if sparse.issparse(X) else np.asarray(X), np.asarray(y)
    numbers = how.assign(np.unique(y, return_inverse=True)[1])
    folds = range(only or how.folds)
    accuracy, robust = (None if part is None else part[:, : len(folds)] for part in how.begin(len(settings)))
    assert accuracy is not None
    diverged = np.zeros(len(settings), dtype=bool)
    fits: dict[tuple[int, int], Any] = {}
    for fold in folds:
        held_out, rows = numbers == fold, how.sample(numbers, fold, len(folds))
        for place, setting in enumerate(settings):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)
                fitted = with_settings(model, setting).fit(X[~held_out], y[~held_out])
            diverged[place] |= getattr(fitted, "diverged_", False)
            accuracy[place, fold] = np.mean(fitted.predict(X[held_out]) == y[held_out])
            if robust is not None:
                robust[place, fold] = how.robust_share(fitted, dense(X[rows]), y[rows])
                fits[place, fold] = fitted
            how.report(fold * len(settings) + place + 1, accuracy.size)

    accuracy[diverged] = 0.0
    if robust is not None:
        robust[diverged] = 0.0

    attack = how.attack_on(lambda place, fold: fits[place, fold], X, y, numbers, len(folds))
    return FoldScores(settings, accuracy, robust, diverged, lambda place: attack(place) * (not diverged[place]))


def choose(
    scores: FoldScores, offered: Axes, how: CrossValidation, within: float | None = None, one_se: bool = False
) -> GridResult:
    """The best setting of a cross-validation, by the rules of `grid_search`."""
    messages = list(scores.messages)
    accuracy = scores.accuracy.mean(1)
    robust = None if scores.robust is None else scores.robust.copy()

    def merit(row: int) -> tuple[float, float]:
        goal = accuracy[row] if robust is None else robust[row].mean()
        # Sums over folds differ in the last place; a tie should be one.
        return -round(goal, 12), -round(accuracy[row], 12)

    def preference(row: int) -> tuple[float, ...]:
        # Of equals the smoothest: the widest kernel, then the most regularisation.
        return (*merit(row), *(scores.settings[row].get(name, 0.0) for name in ("width_scale", "C", "step")))

    least = -1.0 if within is None else accuracy.max() - within - 1e-12
    ranked = sorted(np.flatnonzero(accuracy >= least).tolist(), key=preference)
    known = np.full(len(accuracy), True)
    if robust is not None and how.metric == "robust_accuracy" and scores.attack is not None:
        front = pareto_front(accuracy, robust.mean(1))
        spread = np.unique(np.linspace(0, len(front) - 1, SHORTLIST).round().astype(int))
        known[:] = False
        for row in {*ranked[:SHORTLIST], *(front[place] for place in spread)}:
            robust[row], known[row] = scores.attack(row), True
        messages.append(
            f"Robust accuracy was measured on at most {how.max_rows} held-out rows: by descent for {known.sum()} "
            "settings, the best and those on the front, to first order for the others."
        )
    best_row = min((row for row in ranked if known[row]), key=preference)
    if one_se and robust is not None:
        error = standard_error(robust[best_row], how.max_rows)
        near = [row for row in ranked if known[row] and robust[row].mean() >= robust[best_row].mean() - error - 1e-12]
        # Of equally accurate ones the most robust: `near` is in that order.
        best_row = max(near, key=lambda row: round(accuracy[row], 12))
    best = scores.settings[best_row]
    if robust is not None and not robust.any():
        verb = "certifies" if how.metric == "certified_accuracy" else "keeps"
        messages.append(f"No setting {verb} any row at radius {how.threat.epsilon:g}: chosen by accuracy instead.")
    edges = {name: (values[0], values[-1]) for name, values in offered.items() if len(values) > 1}
    equals = [scores.settings[row] for row in ranked if known[row] and merit(row) == merit(best_row)]
    # Where a value inside the grid does as well, more of the grid would bring nothing.
    on_edge = [name for name, ends in edges.items() if name in best and all(equal[name] in ends for equal in equals)]
    for name in on_edge:
        end = "smallest" if best[name] == offered[name][0] else "largest"
        messages.append(f"The best {name}, {best[name]:g}, is the {end} on offer: a wider grid may find a better one.")
    if scores.diverged is not None and scores.diverged.any():
        messages.append(f"{int(scores.diverged.sum())} of {len(accuracy)} settings diverged and count as accuracy 0.")

    table: dict[str, list[Any]] = {name: [s[name] for s in scores.settings] for name in scores.settings[0]}
    for name, values in (("accuracy", scores.accuracy), (how.metric, robust)):
        if values is not None:
            table[f"mean_{name}"], table[f"std_{name}"] = values.mean(1).tolist(), values.std(1).tolist()
    if how.metric == "robust_accuracy":
        table["attacked"] = known.tolist()
    table["diverged"] = [False] * len(accuracy) if scores.diverged is None else scores.diverged.tolist()
    goal = accuracy if robust is None else robust.mean(1)
    rows = np.flatnonzero(known)
    front = rows[pareto_front(accuracy[rows], goal[rows])].tolist()
    return GridResult(dict(best), float(goal[best_row]), table, front, best_row, on_edge, messages)


def with_settings(model: Any, settings: dict[str, float]) -> Any:
    """A clone of `model` with the settings of a grid: its own, its kernel's (width_scale) or its expansion's."""
    model = clone(model)
    for name, value in settings.items():
        own = model.get_params(deep=False)
        if name in own:
            model.set_params(**{name: int(value) if isinstance(own[name], int) else value})
            continue
        parts: dict[str, Any] = {"kernel": Kernel.of(own["kernel"]), "expansion": Expansion.of(own["expansion"])}
        (home,) = [part for part, held in parts.items() if hasattr(held, name)]
        kind = type(getattr(parts[home], name))
        model.set_params(**{home: replace(parts[home], **{name: kind(value)})})
    return model


def standard_error(shares: np.ndarray, n_rows: int) -> float:
    """Of the mean of shares by fold; of one fold's share, that of so many rows."""
    if len(shares) > 1:
        return float(shares.std(ddof=1) / np.sqrt(len(shares)))
    return float(np.sqrt(shares[0] * (1 - shares[0]) / n_rows))


def pareto_front(accuracy: np.ndarray, robust: np.ndarray) -> list[int]:
    """Rows that no other row beats in one and equals in the other, by falling accuracy; of equal rows the first."""
    front: list[int] = []
    for row in sorted(range(len(accuracy)), key=lambda r: (-accuracy[r], -robust[r], r)):
        if not front or robust[row] > robust[front[-1]]:
            front.append(row)
    return front
