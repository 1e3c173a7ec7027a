"""Which rows were trained, tuned and tested on."""

from __future__ import annotations

import re

import numpy as np

from pipeline.checks.base import Verdict, failed, passed, skipped, warned
from pipeline.checks.context import ModelContext
from pipeline.checks.registry import model_check

_FEW = 0.01


@model_check("19_data")
def train_and_test_are_disjoint(context: ModelContext) -> Verdict:
    """Checksum and split ids are recorded, and no test row is a training row: neither by id nor by content."""
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
    if copies.mean() > _FEW:
        return failed(f"{int(copies.sum())} test rows are copies of training rows", **evidence)
    if copies.any():
        return warned(f"{int(copies.sum())} test rows are copies of training rows, as published", **evidence)
    return passed("checksum and split ids recorded, train and test disjoint", **evidence)


@model_check("20_tuning")
def tuning_never_touched_test_rows(context: ModelContext) -> Verdict:
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
