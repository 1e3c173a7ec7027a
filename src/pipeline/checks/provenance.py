"""Which rows were trained, tuned, tested and attacked on, and whether their labels are theirs."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from pipeline.checks.context import CheckContext, ModelContext, evenly
from pipeline.checks.registry import Check, failed, of_model, of_run, passed, skipped, warned, worst

# Share of copies that published data may have.
_FEW = 0.01
# Chance below which a count is no accident of a small test set.
_LUCK = 0.01
# A row this near to another, over the typical distance of two, is the same one written twice.
_NEAR = 0.01


@of_model("19_data", general=True)
def train_and_test_are_disjoint(context: ModelContext) -> Check:
    """Checksum and split ids are recorded, and no test row is a training row: by id, by content, or nearly."""
    data = context.data
    if not re.fullmatch(r"[0-9a-f]{64}", data.fingerprint or ""):
        return failed("the data has no checksum", fingerprint=data.fingerprint)
    if len(data.train_ids) != len(data.X_train) or len(data.test_ids) != len(data.X_test):
        return failed("the split ids do not cover the rows", train=len(data.train_ids), test=len(data.test_ids))
    train, test = context.train_digests, context.test_digests
    copies = np.isin(test, train)
    # Official splits number their files separately, so an id in both parts means a shared row only with its content.
    shared = int((copies & np.isin(data.test_ids, data.train_ids)).sum())
    repeated = len(data.train_ids) - len(np.unique(data.train_ids))
    evidence = {
        "fingerprint": data.fingerprint,
        "train": len(train),
        "test": len(test),
        "test_rows_equal_to_a_training_row": int(copies.sum()),
        "of_these_with_the_same_id": shared,
        "repeated_training_ids": repeated,
    }
    if shared:
        return failed(f"{shared} test rows are in the training set", **evidence)
    usual = 1 - len(np.unique(train)) / len(train)
    answers = [_excess("copies of training rows", int(copies.sum()), len(copies), usual, **evidence)]
    if not copies.any():
        near, as_near = _near_copies(context)
        answers.append(_excess("nearly copies of training rows", int(near.sum()), len(near), as_near, **evidence))
        answers[-1].evidence["near_copies"] = int(near.sum())
    # A share of copies grows with the number of rows: as many of the test rows as there are training rows.
    some = evenly(test, len(train))
    answers.append(_excess("copies of other test rows", len(some) - len(np.unique(some)), len(some), usual, **evidence))
    return worst(answers)


def _excess(what: str, count: int, tried: int, usual: float, **evidence: Any) -> Check:
    """More rows than the training rows have among themselves (or published data may have) are a leak."""
    from scipy.stats import binom

    if count > 0 and binom.sf(count - 1, tried, max(_FEW, usual)) < _LUCK:
        return failed(f"{count} of {tried} test rows are {what}", **evidence)
    if count:
        return warned(f"{count} of {tried} test rows are {what}, as published", **evidence)
    return passed("checksum and split ids recorded, train and test disjoint", **evidence)


def _near_copies(context: ModelContext) -> tuple[np.ndarray, float]:
    """Which of (at most 512) test rows lie very near to a training row, and the share of training rows that do.

    Neighbours are looked for in eight random directions: what is near stays near in any direction.
    """
    from scipy.spatial import KDTree

    train, test = context.data.X_train, context.data.X_test
    d = train.shape[1]
    rows, asked = evenly(np.arange(len(train)), 100_000), evenly(np.arange(len(test)), 512)
    directions = np.eye(d) if d <= 8 else np.random.default_rng(0).standard_normal((d, 8)) / np.sqrt(8)
    directions = directions.astype(np.float32)
    windows = [np.asarray(train[rows[i : i + 4096]]) @ directions for i in range(0, len(rows), 4096)]
    tree = KDTree(np.concatenate(windows))

    def nearest(X: np.ndarray, own: int) -> np.ndarray:
        count = min(3 + own, len(rows))
        found = np.atleast_2d(tree.query(X @ directions, k=count)[1].reshape(len(X), count))[:, own:]
        apart = np.asarray(train[rows[found.ravel()]], dtype=np.float64).reshape(*found.shape, d) - X[:, None]
        return np.linalg.norm(apart, axis=2).min(axis=1, initial=np.inf)

    near = nearest(np.asarray(test[asked]), 0) < _NEAR * context.scale
    if not near.any():
        return near, 0.0
    return near, float(np.mean(nearest(np.asarray(train[evenly(rows, 512)]), 1) < _NEAR * context.scale))


@of_model("20_tuning", general=True)
def tuning_never_touched_test_rows(context: ModelContext) -> Check:
    """The rows the grid was given, recorded one by one when it ran, are the training rows and nothing else."""
    if not context.cfg.tune.enabled:
        return skipped("tune=none: nothing was tuned")
    seen = context.tuned.seen
    if seen is None or len(seen) == 0:
        return failed("the tuning stage did not record the rows it was given")
    train, test = context.train_digests, context.test_digests
    foreign = ~np.isin(seen, train)
    of_test = int(np.isin(seen[foreign], test).sum())
    evidence = {"seen": len(seen), "train": len(train), "not_training_rows": int(foreign.sum()), "test_rows": of_test}
    if of_test:
        return failed(f"tuning saw {of_test} test rows", **evidence)
    # A leaked copy of a row that is in both parts shows in the count alone.
    if foreign.any() or len(seen) != len(train):
        return failed(f"tuning saw {len(seen)} rows, the training set has {len(train)}", **evidence)
    return passed("tuning saw the training rows and nothing else", **evidence)


@of_run("27_rows", general=True)
def attacked_rows_are_like_the_others(context: CheckContext) -> Check:
    """The attacked rows are different rows of the test set, no easier than the rest, with the classes in proportion."""
    from scipy.stats import binomtest, mannwhitneyu

    rows, labels = np.asarray(context.attacked.rows), context.data.y_test
    if len(np.unique(rows)) != len(rows) or len(context.attacked.result.success) != len(rows):
        return failed("some test rows are attacked more than once, or not reported", attacked=len(rows))
    rest = np.setdiff1d(np.arange(len(labels)), rows)
    evidence: dict[str, Any] = {"attacked": len(rows), "left_out": len(rest)}
    # A model knows its training rows best: test rows that are clearly deeper in their class were chosen to be.
    seen, theirs = context.training_rows
    deeper = mannwhitneyu(context.margins, context.margins_of(seen, theirs), alternative="greater")
    evidence["deeper_than_training_rows"] = share = float(deeper.statistic / (len(rows) * len(theirs)))
    if share > 0.65 and deeper.pvalue < 1e-5:
        return failed(f"attacked rows lie deeper in their class than {share:.0%} of the training rows", **evidence)
    if len(rest) == 0:
        return passed("every test row was attacked", **evidence)
    # Of two classes one tells; of more the most unlikely one, among so many.
    known = context.model.classes_ if context.many else context.model.classes_[1:]
    chances = [binomtest(int((context.y == k).sum()), len(rows), float(np.mean(labels == k))).pvalue for k in known]
    evidence["chance_of_these_classes"] = float(min(1.0, len(known) * min(chances)))
    others = evenly(rest, 128)
    margins = context.margins_of(context.data.X_test[others], labels[others])
    evidence["chance_of_these_margins"] = float(mannwhitneyu(context.margins, margins).pvalue)
    if min(evidence["chance_of_these_classes"], evidence["chance_of_these_margins"]) < 1e-5:
        return failed("the attacked rows are not a fair choice of the test rows", **evidence)
    if min(evidence["chance_of_these_classes"], evidence["chance_of_these_margins"]) < 1e-3:
        return warned("the attacked rows may not be a fair choice of the test rows", **evidence)
    return passed("the attacked rows are like those left out", **evidence)


@of_model("28_labels", general=True)
def labels_belong_to_their_rows(context: ModelContext) -> Check:
    """Test rows agree with their nearest training rows as well as those do, and clean accuracy with the folds'."""
    data = context.data
    pool = evenly(np.arange(len(data.y_train)), 512)
    asked = evenly(np.arange(len(data.y_test)), 128)
    X, y = np.asarray(data.X_train[pool], dtype=np.float64), data.y_train[pool]
    own = _agreement(X, y, X, y, omit=True)
    agree = _agreement(np.asarray(data.X_test[asked], dtype=np.float64), data.y_test[asked], X, y)
    clean, folds = float(np.mean(context.correct)), context.tuned.cv_accuracy
    evidence = {"neighbours_agree_test": agree, "neighbours_agree_train": own, "clean": clean, "cv_accuracy": folds}
    away = _away(own, len(pool), agree, len(asked))
    if away > 4 and own - agree > 0.1:
        return failed(
            f"neighbours agree with {agree:.0%} of the test labels, {own:.0%} of the training labels", **evidence
        )
    if folds is not None:
        away, gap = _away(folds, len(data.y_train), clean, len(data.y_test)), abs(folds - clean)
        message = f"clean accuracy is {clean:.2%}, the folds of the training rows gave {folds:.2%}"
        if away > 5 and gap > 0.05:
            return failed(f"{message}: other labels, other data, or only easy points?", **evidence)
        if away > 4 and gap > 0.02:
            return warned(message, **evidence)
    usual = float(np.unique(data.y_test, return_counts=True)[1].max() / len(data.y_test))
    if clean <= usual:
        return warned(f"clean accuracy ({clean:.2%}) is no better than always naming one class", **evidence)
    return passed("test labels are those of their neighbours", **evidence)


def _agreement(X: np.ndarray, y: np.ndarray, pool: np.ndarray, labels: np.ndarray, omit: bool = False) -> float:
    """Share of rows whose nearest row of the pool, not counting themselves with ``omit``, has their label."""
    squares = (pool * pool).sum(axis=1) - 2 * X @ pool.T
    if omit:
        np.fill_diagonal(squares, np.inf)
    return float(np.mean(labels[squares.argmin(axis=1)] == y))


def _away(first: float, n_first: int, second: float, n_second: int) -> float:
    """Distance of two shares in standard errors."""
    p = (first * n_first + second * n_second) / (n_first + n_second)
    return abs(first - second) / np.sqrt(max(p * (1 - p), 0.01) * (1 / n_first + 1 / n_second))
