"""k-fold cross-validation of a whole grid of `AdvSVM` settings in one pass over the data.

Features, kernel values and batches do not depend on (C, step), so all settings train together as columns, and the
folds too: a batch takes the same number of rows from every fold, and a column ignores the rows of the fold it leaves
out. With batches of B·k/(k-1) rows every column sees B rows per iteration, exactly as if it were trained alone.
"""

import warnings
from dataclasses import dataclass
from itertools import product
from typing import cast

import numpy as np
import torch
from sklearn.base import clone
from sklearn.model_selection import StratifiedKFold

from models import certificates
from models.adv_svm import AdvSVM
from models.expansions import KernelSpace, LiveExpansion, as_expansion
from models.expansions.random_features import RandomFeatureSum
from models.kernels import as_kernel
from models.rows import RowSource, to_tensor
from models.training import Columns, Observer, TrainingRecord, train

# A constant step never settles, and all folds share their batches, so the last iterate can look good in every fold by
# luck. Accuracy is the mean over this many last iterates.
LATE_ITERATES = 5
# Held-out rows whose certificates decide a tuning by certified accuracy: one gradient per row and column.
CERTIFIED_ROWS = 500


@dataclass(frozen=True)
class FoldScores:
    """Results by setting and fold.

    Attributes
    ----------
    settings : list of dict
    accuracy : array of shape (n_settings, folds)
    certified : array of shape (n_settings, folds) or None
    diverged : bool array of shape (n_settings,)
        In any fold.
    """

    settings: list[dict[str, float]]
    accuracy: np.ndarray
    certified: np.ndarray | None
    diverged: np.ndarray


def assign_folds(signs: np.ndarray, folds: int, seed: int) -> np.ndarray:
    """Fold number of each row, shape (n,): stratified, seeded."""
    numbers = np.empty(len(signs), dtype=np.int64)
    splitter = StratifiedKFold(folds, shuffle=True, random_state=seed)
    for number, (_, held_out) in enumerate(splitter.split(signs, signs)):
        numbers[held_out] = number
    return numbers


def fold_batches(numbers: np.ndarray, batch_size: int, passes: int, seed: int) -> list[np.ndarray]:
    """Batches with the same number of rows, batch_size / (folds - 1), from each fold."""
    folds = int(numbers.max()) + 1
    share = max(1, round(batch_size / (folds - 1)))
    batches = []
    for turn in range(passes):
        rng = np.random.default_rng([seed, turn, 2])
        orders = [rng.permutation(np.flatnonzero(numbers == fold)) for fold in range(folds)]
        for start in range(0, max(map(len, orders)), share):
            batches.append(np.concatenate([order[start : start + share] for order in orders]))
    return batches


def cross_validate_columns(
    model: AdvSVM,
    X: np.ndarray,
    y: np.ndarray,
    *,
    C: list[float],
    step: list[float],
    widths: list[float] | None,
    folds: int,
    radius: float | None,
    seed: int,
    observer: Observer | None,
) -> FoldScores:
    """Train and score every setting of `model` on every fold; certify at `radius` if it is given."""
    model = clone(model)
    model._validate_params()
    X, signs = model._validate_training_data(X, y)
    numbers = assign_folds(signs, folds, seed)
    space = _space(model, X, widths, seed)
    plan = [
        (width, fold, c, s)
        for width, fold, c, s in product(range(len(space.gammas)), range(folds), map(float, C), map(float, step))
    ]
    width_of, fold_of, c_of, step_of = (np.array(values) for values in zip(*plan))
    penalties = np.array([space.kernel.penalty(model.epsilon, gamma) for gamma in space.gammas])
    columns = Columns(
        C=c_of,
        step=step_of,
        penalty=penalties[width_of],
        diminishing=model.schedule == "diminishing",
        proximal=model.decay == "proximal",
        left_out=fold_of,
    )
    expansion = as_expansion(model.expansion).begin(space, len(columns))
    batches = fold_batches(numbers, _batch_size(model, len(X), folds), model.passes, seed)
    record = train(
        expansion,
        RowSource(X, space.dtype),
        signs,
        batches,
        columns,
        folds=numbers,
        keep_scores=min(LATE_ITERATES, max(1, len(batches) // 4)),
        observer=observer and (lambda event, done, total, **_: observer("tune", done, total)),
        event="tune",
    )
    shape = (len(space.gammas), folds, len(C), len(step))

    def by_setting(values: np.ndarray) -> np.ndarray:
        return np.moveaxis(values.reshape(shape), 1, -1).reshape(-1, folds)

    certified = None
    if radius is not None:
        certified = by_setting(_certified(expansion, record, X, signs, numbers, width_of, fold_of, radius))
    settings = [{"C": float(c), "step": float(s)} for _, c, s in product(space.gammas, C, step)]
    if widths is not None:
        settings = [
            {**setting, "width_scale": float(width)}
            for setting, width in zip(settings, np.repeat(widths, len(C) * len(step)))
        ]
    return FoldScores(
        settings,
        by_setting(_accuracy(record, signs, numbers, fold_of)),
        certified,
        np.asarray(by_setting(record.diverged).any(1)),
    )


def _space(model: AdvSVM, X: np.ndarray, widths: list[float] | None, seed: int) -> KernelSpace:
    kernel = as_kernel(model.kernel)
    if widths is None:
        gammas = [kernel.resolve_gamma(X, seed)]
    else:
        unit = type(kernel)(width_scale=1.0).resolve_gamma(X, seed)
        gammas = [float(width) * unit for width in widths]
    return KernelSpace(kernel, tuple(gammas), X.shape[1], model._torch_dtype(X), seed)


def _batch_size(model: AdvSVM, n_rows: int, folds: int) -> int:
    trained = n_rows * (folds - 1) // folds
    if model.batch_size > trained:
        warnings.warn(
            f"batch_size={model.batch_size} is larger than the {trained} rows of a fold's training part: "
            f"using {trained}",
            stacklevel=4,
        )
    return min(model.batch_size, trained)


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


def _certified(
    expansion: LiveExpansion,
    record: TrainingRecord,
    X: np.ndarray,
    signs: np.ndarray,
    numbers: np.ndarray,
    width_of: np.ndarray,
    fold_of: np.ndarray,
    radius: float,
) -> np.ndarray:
    """Share of held-out rows certified at `radius`, for each column, on at most CERTIFIED_ROWS rows over all folds."""
    certified = np.zeros(len(fold_of))
    per_fold = max(1, CERTIFIED_ROWS // (int(fold_of.max()) + 1))
    for width, fold in product(np.unique(width_of), np.unique(fold_of)):
        columns = np.flatnonzero((width_of == width) & (fold_of == fold) & ~record.diverged)
        held_out = np.flatnonzero(numbers == fold)
        # Evenly spread: the first rows of data sorted by class would certify one class only.
        rows = held_out[:: -(-len(held_out) // per_fold)]
        if len(columns) == 0:
            continue
        points = to_tensor(X[rows], expansion.space.dtype)
        scores, gradients = expansion.scores_and_gradients(points, torch.from_numpy(columns))
        margins = signs[rows][:, None] * scores.double().numpy()
        slopes = gradients.norm(dim=2).double().numpy()
        radii = _radii(expansion, margins, slopes, columns, record.norms[-1, columns], int(width))
        certified[columns] = (radii >= radius).mean(0)
    return certified


def _radii(
    expansion: LiveExpansion,
    margins: np.ndarray,
    slopes: np.ndarray,
    columns: np.ndarray,
    norms: np.ndarray,
    width: int,
) -> np.ndarray:
    """Radii, shape (n_rows, n_columns); each column has its own norm or curvature."""
    space = expansion.space
    gamma = space.gammas[width]
    shape = margins.shape

    def spread(values: np.ndarray) -> float:
        # One value per point where a single model has one for all: the bounds are elementwise.
        return cast(float, np.broadcast_to(values, shape).ravel())

    if isinstance(expansion, RandomFeatureSum):
        curvature = spread(expansion.curvature_estimates(torch.from_numpy(columns)).numpy())
        return certificates.second_order_radius(margins.ravel(), slopes.ravel(), curvature).reshape(shape)
    if space.kernel.name == "rbf":
        return certificates.sharp_radius(margins.ravel(), slopes.ravel(), spread(norms), gamma).reshape(shape)
    inverse = space.kernel.inverse_profile
    return certificates.paper_radius(margins.ravel(), spread(norms), lambda value: inverse(value, gamma)).reshape(shape)
