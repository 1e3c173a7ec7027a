"""Batch size and passes follow the number of rows; the paper's datasets keep the paper's protocol."""

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

from models import AdvSVM, FewIterationsWarning, KernelSVC, grid_search


@pytest.mark.parametrize("n_rows", [13_007, 11_800, 10_000, 60_000, 8_000_000])
def test_the_papers_datasets_keep_one_pass_of_500(n_rows):
    assert AdvSVM().batching(n_rows) == (500, 1)
    assert AdvSVM(batch_size=500).batching(n_rows) == (500, 1)


@given(n_rows=st.integers(1, 9_500))
def test_small_data_gets_a_hundred_iterations(n_rows):
    batch_size, passes = AdvSVM().batching(n_rows)
    assert passes * -(-n_rows // batch_size) >= 100
    assert batch_size <= 500
    assert passes <= 100


@given(n_rows=st.integers(1, 20_000), batch_size=st.integers(1, 1000), passes=st.integers(1, 9))
def test_what_is_set_stays_set(n_rows, batch_size, passes):
    assert AdvSVM(batch_size=batch_size, passes=passes).batching(n_rows) == (batch_size, passes)
    assert AdvSVM(batch_size=batch_size).batching(n_rows)[0] == batch_size
    assert AdvSVM(passes=passes).batching(n_rows)[1] == passes


def digits(low, high):
    data = load_digits()
    chosen = np.isin(data.target, [low, high])
    return (data.data[chosen] / 16).astype(np.float32), data.target[chosen]


@pytest.mark.parametrize("pair", [(1, 7), (3, 8), (8, 9)])
def test_digits_reach_what_svc_reaches(pair):
    X, y = digits(*pair)
    ours, theirs = [], []
    for seed in range(3):
        A, B, a, b = train_test_split(X, y, test_size=0.25, random_state=seed, stratify=y)
        model = AdvSVM(schedule="diminishing", expansion="support_vectors")
        best = grid_search(model, A, a, C=[2.0**k for k in range(-3, 4)], step=[2.0**k for k in range(-3, 4)]).best
        ours.append(model.set_params(**best).fit(A, a).score(B, b))
        theirs.append(KernelSVC(C=8.0).fit(A, a).score(B, b))
    assert np.mean(ours) >= 0.97
    assert np.mean(ours) >= np.mean(theirs) - 0.015


def test_a_handful_of_iterations_is_pointed_out():
    X, y = digits(1, 7)
    with pytest.warns(FewIterationsWarning, match=r"after 4 iterations.*batch_size \(100\) or raise passes \(1\)"):
        AdvSVM(batch_size=100, passes=1, expansion="support_vectors").fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("error", FewIterationsWarning)
        AdvSVM(expansion="support_vectors").fit(X, y)
