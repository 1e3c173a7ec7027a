"""k-fold cross-validation of a whole grid of `AdvSVM` settings in one pass over the data.

Features, kernel values and batches do not depend on (C, step, ε), so all settings train together as columns, and the
folds too: a batch takes the same number of rows from every fold, and a column ignores the rows of the fold it leaves
out. With batches of B·k/(k-1) rows every column sees B rows per iteration, exactly as if it were trained alone.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from models.batches import RowSource, fold_batches
from models.certificates.of_expansions import Nearby, certificates_of
from models.descent import SAMPLED, lengths, linear_loss, sampled_loss, survivors
from models.distances import to_tensor
from models.expansions import Expansion, KernelSpace, LiveExpansion
from models.expansions.random_features import RandomFeatures
from models.grid import Axes, CrossValidation, FoldScores, chosen_axes, combinations
from models.kernels import Kernel
from models.training import Columns, TrainingRecord, train_columns

# A constant step never settles, and all folds share their batches, so the last iterate can look good in every fold by
# luck. Accuracy is the mean over this many last iterates, unless the iterates themselves are averaged.
LATE_ITERATES = 5


@dataclass(frozen=True)
class Plan:
    """What all settings of a grid share, and the values of those that are no axis."""

    kernel: Kernel
    expansion: Expansion
    C: float
    step: float
    epsilon: float
    diminishing: bool
    proximal: bool
    averaging: bool
    batch_size: int
    passes: int
    dtype: torch.dtype


def cross_validate_columns(plan: Plan, X: Any, signs: np.ndarray, axes: Axes, how: CrossValidation) -> FoldScores:
    """Train and score every setting on every fold; `signs` are the labels as ±1.0."""
    expansion = plan.expansion
    sizes = axes.get("n_features")
    if sizes is None or not isinstance(expansion, RandomFeatures):
        return _one_pass(plan, X, signs, axes, how)
    # Features of another number are other features: nothing is shared between sizes.
    wider = [replace(plan, expansion=replace(expansion, n_features=int(m))) for m in sizes]
    parts = [_one_pass(one, X, signs, axes, how) for one in wider]
    settings = [s | {"n_features": size} for size, part in zip(sizes, parts) for s in part.settings]
    n_settings = len(parts[0].settings)

    def attack(place: int) -> np.ndarray:
        asked = parts[place // n_settings].attack
        assert asked is not None
        return asked(place % n_settings)

    return FoldScores(
        settings,
        np.concatenate([part.accuracy for part in parts]),
        None if how.metric == "accuracy" else np.concatenate([np.asarray(part.robust) for part in parts]),
        np.concatenate([part.diverged for part in parts if part.diverged is not None]),
        attack,
        parts[0].messages,
    )


def _one_pass(plan: Plan, X: Any, signs: np.ndarray, axes: Axes, how: CrossValidation) -> FoldScores:
    numbers = how.assign(signs)
    space = _space(plan, X, axes.get("width_scale"), how.random_state)
    inner = {"C": [plan.C], "step": [plan.step]} | chosen_axes(axes, ("C", "step", "epsilon"))
    per_width = combinations(inner)
    # Columns by width, fold, setting.
    tiles = (len(space.gammas), how.folds, len(per_width))
    width_of, fold_of, place_of = (part.ravel() for part in np.indices(tiles))

    def values(name: str, default: float) -> np.ndarray:
        return np.array([setting.get(name, default) for setting in per_width])[place_of]

    epsilons = values("epsilon", plan.epsilon)
    penalties = [space.kernel.penalty(e, space.gammas[w]) for e, w in zip(epsilons, width_of)]
    columns = Columns(
        C=values("C", 0.0),
        step=values("step", 0.0),
        penalty=np.array(penalties),
        diminishing=plan.diminishing,
        proximal=plan.proximal,
        left_out=fold_of,
    )
    live = plan.expansion.begin(space, len(columns))
    batch_size = plan.batch_size
    trained = len(signs) * (how.folds - 1) // how.folds
    if batch_size > trained:
        warnings.warn(
            f"batch_size={batch_size} is larger than the {trained} rows of a fold's training part: using {trained}",
            stacklevel=5,
        )
    batches = fold_batches(numbers, min(batch_size, trained), plan.passes, how.random_state)
    record = train_columns(
        live,
        RowSource(X, space.dtype),
        signs,
        batches,
        columns,
        folds=numbers,
        keep_scores=min(LATE_ITERATES, max(1, len(batches) // 4)),
        averaging=plan.averaging,
        observer=lambda event, done, total, **_: how.report(done, total),
        event="tune",
    )

    def by_setting(found: np.ndarray) -> np.ndarray:
        return np.moveaxis(found.reshape(tiles), 1, -1).reshape(-1, how.folds)

    robust, messages = None, []
    held_out = _HeldOut(live, record, X, signs, numbers, how)
    if how.metric != "accuracy":
        robust = by_setting(held_out.robust(width_of, fold_of))
    if how.metric == "certified_accuracy":
        note = f"Certified accuracy was measured on at most {how.max_rows} held-out rows"
        messages.append(f"{note}{certificates_of(live).tuning_note}.")
    column_of = np.arange(len(columns)).reshape(tiles)

    def attack(place: int) -> np.ndarray:
        width, setting = divmod(place, len(per_width))
        return np.array([held_out.attacked(int(column_of[width, f, setting]), f) for f in range(how.folds)])

    widths: list[dict[str, float]] = [{"width_scale": width} for width in axes.get("width_scale", [])] or [{}]
    return FoldScores(
        [setting | width for width in widths for setting in per_width],
        by_setting(_accuracy(record, signs, numbers, fold_of)),
        robust,
        np.asarray(by_setting(record.diverged).any(1)),
        attack,
        messages,
    )


def _space(plan: Plan, X: Any, widths: list[float] | None, seed: int) -> KernelSpace:
    kernel = plan.kernel
    if widths is None:
        gammas = [kernel.resolve_gamma(X, seed)]
    else:
        unit = type(kernel)(width_scale=1.0).resolve_gamma(X, seed)
        gammas = [float(width) * unit for width in widths]
    return KernelSpace(kernel, tuple(gammas), X.shape[1], plan.dtype, seed)


def _accuracy(record: TrainingRecord, signs: np.ndarray, numbers: np.ndarray, fold_of: np.ndarray) -> np.ndarray:
    """Held-out accuracy of each column, mean over its last iterates; a diverged one has 0."""
    accuracy = np.zeros(len(fold_of))
    for fold in np.unique(fold_of):
        columns = np.flatnonzero(fold_of == fold)
        rows = np.flatnonzero(numbers == fold)
        for scores in record.late_scores:
            right = (scores[rows][:, columns].numpy() > 0) == (signs[rows] > 0)[:, None]
            accuracy[columns] += right.mean(0) / len(record.late_scores)
    return np.where(record.diverged, 0.0, accuracy)


@dataclass
class _HeldOut:
    """Held-out rows under the threat, for some of the columns at a time."""

    live: LiveExpansion
    record: TrainingRecord
    X: Any
    signs: np.ndarray
    numbers: np.ndarray
    how: CrossValidation

    def __post_init__(self) -> None:
        live, record = self.live, self.record
        # ‖mean of iterates‖ is at most the mean of their norms.
        self.norms = record.norms[live.tail :].mean(0) if live.tail is not None else record.norms[-1]

    def _rows(self, fold: int) -> tuple[np.ndarray, np.ndarray]:
        rows = self.how.sample(self.numbers, fold)
        return to_tensor(self.X[rows], self.live.space.dtype).numpy(), self.signs[rows]

    def _slopes(
        self, points: np.ndarray, signs: np.ndarray, columns: np.ndarray, coords: torch.Tensor | None
    ) -> tuple[np.ndarray, torch.Tensor]:
        """y·f, shape (n, c), float64, and y·∇f, shape (n, c, d)."""
        chosen = torch.from_numpy(columns)
        scores, gradients = self.live.scores_and_gradients(torch.from_numpy(points), chosen, coords=coords)
        y = torch.from_numpy(signs)[:, None]
        return (y * scores.double()).numpy(), gradients * y[:, :, None].to(gradients.dtype)

    def robust(self, width_of: np.ndarray, fold_of: np.ndarray) -> np.ndarray:
        """Share of rows certified, or to first order robust, for each column; 0 for a diverged one."""
        share, threat, coords = np.zeros(len(fold_of)), self.how.threat, self._coords()
        for width, fold in np.unique(np.stack([width_of, fold_of]), axis=1).T:
            columns = np.flatnonzero((width_of == width) & (fold_of == fold) & ~self.record.diverged)
            if len(columns) == 0:
                continue
            points, signs = self._rows(int(fold))
            margins, slopes = self._slopes(points, signs, columns, coords)
            if coords is None:
                loss = linear_loss(threat, torch.from_numpy(points), slopes).double().numpy()
            else:
                loss = sampled_loss(threat, torch.from_numpy(points), slopes, coords).double().numpy()
            if self.how.metric == "certified_accuracy":
                steepness = slopes.norm(dim=2).double().numpy()
                farthest = lengths(threat, torch.from_numpy(points))[:, None]
                near = Nearby(margins, loss, steepness, farthest, self.norms[columns])
                lowest = certificates_of(self.live).tuning_bound(near, torch.from_numpy(columns))
            else:
                lowest = margins - loss
            share[columns] = (lowest > 0).mean(0)
        return share

    def _coords(self) -> torch.Tensor | None:
        """Some pixels, where slopes of them all would cost more than the training; a certificate needs them all."""
        dimension = self.X.shape[1]
        if self.how.metric == "certified_accuracy" or dimension < 2 * SAMPLED:
            return None
        rng = np.random.default_rng([self.how.random_state, 3])
        return torch.from_numpy(np.sort(rng.choice(dimension, SAMPLED, replace=False)))

    def attacked(self, column: int, fold: int) -> float:
        """Share of rows that descent leaves right."""
        if self.record.diverged[column]:
            return 0.0
        points, signs = self._rows(fold)
        scores_and_gradients = self.live.column(column)

        def ask(moved: np.ndarray, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            scores, gradients = (part[:, 0].double().numpy() for part in scores_and_gradients(torch.from_numpy(moved)))
            return signs[rows] * scores, signs[rows, None] * gradients

        return float(np.mean(survivors(self.how.threat, points, ask)))
