"""A model of one's own is tried before anything is tuned, and all that is wrong with it is said in one line."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.base import BaseEstimator
from sklearn.svm import SVC

from models import KernelSVC
from models.fitted import SklearnModel
from pipeline.data import load_dataset
from pipeline.errors import UserError
from pipeline.stages.protocol import check_protocol, fit_options


class Centroids(BaseEstimator):
    """The least that a model needs: ``fit`` does without eval_set and observer."""

    def fit(self, X, y):
        self.classes_ = np.unique(y)
        low, high = (X[y == c].mean(axis=0).astype(float) for c in self.classes_)
        self.w_, self.b_ = high - low, float(low @ low - high @ high) / 2
        return self

    def scores(self, X):
        return np.asarray(X, dtype=float) @ self.w_ + self.b_

    def predict(self, X):
        return self.classes_[(self.scores(X) > 0).astype(int)]

    def get_state(self):
        return {"b": self.b_, "classes": self.classes_.tolist()}, {"w": self.w_}

    @classmethod
    def from_state(cls, meta, arrays):
        model = cls()
        model.classes_, model.b_, model.w_ = np.array(meta["classes"]), meta["b"], arrays["w"]
        return model


class Whole(Centroids):
    def fit(self, X, y, eval_set=None, observer=None):
        return super().fit(X, y)

    def scores_and_gradients(self, X):
        return self.scores(X), np.tile(self.w_, (len(X), 1))

    def probe(self, X, coords, h):
        odd = h * np.tile(self.w_[coords], (len(X), 1))
        return self.scores(X)[:, None] + odd, self.scores(X)[:, None] - odd


class Nothing:
    def fit(self, X, y, sample_weight):
        return self


class Wrong(Whole):
    def scores(self, X):
        return super().scores(X)[:, None]

    def predict(self, X):
        return np.full(len(X), "yes")

    def scores_and_gradients(self, X):
        return super().scores(X), self.w_

    def probe(self, X, coords, h):
        raise KeyError("no probe\nyet")

    @classmethod
    def from_state(cls, meta, arrays):
        return cls()


class Loses(Whole):
    """Everything has the right shape, and nothing is right."""

    def probe(self, X, coords, h):
        return super().probe(X, coords, -h)

    @classmethod
    def from_state(cls, meta, arrays):
        return super().from_state(meta | {"b": 5.0}, arrays)


class Unfit(Whole):
    def fit(self, X, y, eval_set=None, observer=None):
        raise RuntimeError("cannot")


@pytest.fixture(scope="module")
def digits():
    return load_dataset("digits_1v7")


@pytest.mark.parametrize("model", [Centroids(), Whole(), KernelSVC(), SklearnModel(SVC())])
def test_what_keeps_to_the_protocol_passes(digits, model):
    check_protocol(model, digits, "mine")


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (
            Nothing(),
            ["predict is missing", "scores is missing", "get_state is missing", "from_state is missing",
             "BaseEstimator", "fit asks for sample_weight, which nobody gives it"],
        ),
        (
            Wrong(),
            ["predict must give 24 of the labels", "scores must give an array of shape (n,)",
             "scores_and_gradients must give", "raised KeyError: 'no probe", "from_state(*get_state()) must give"],
        ),
        (Loses(), ["probe must give two arrays", "from_state(*get_state()) must give the same scores"]),
        (Unfit(), ["fit on 24 rows raised RuntimeError: cannot"]),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_all_that_is_wrong_is_said_in_one_line(digits, model, said):
    with pytest.raises(UserError, match=r"^model=mine: ") as refused:
        check_protocol(model, digits, "mine")
    message = str(refused.value)
    assert "\n" not in message
    assert [part for part in said if part not in message] == []
    assert message.count(";") >= len(said) - 1


def test_fit_is_given_what_it_takes():
    offered = {"eval_set": 1, "observer": 2}
    assert fit_options(Centroids(), **offered) == {}
    assert fit_options(Whole(), **offered) == offered
