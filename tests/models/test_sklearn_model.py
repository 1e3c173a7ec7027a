"""Classifiers of scikit-learn as models of the pipeline: any number of classes, attacked, certified, kept."""

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.linear_model import LogisticRegression
from sklearn.svm import SVC

from attacks import PGD
from models import KernelSVC, SklearnModel, VotingSVC, certify, grid_search, load, save

X, y = load_iris(return_X_y=True)
X = (X - X.min(0)) / (X.max(0) - X.min(0))


@pytest.mark.parametrize(
    "model", [KernelSVC(C=4.0).for_classes(3), SklearnModel(SVC(C=4.0)), SklearnModel(LogisticRegression(C=9.0))]
)
def test_three_classes_are_attacked_certified_and_kept(model, tmp_path):
    model.fit(X[::2], y[::2], eval_set=(X[1::2], y[1::2]))
    rows, labels = X[1::2].astype(np.float32), y[1::2]
    assert model.curve_["test_error"][0] == pytest.approx(np.mean(model.predict(rows) != labels))
    result = PGD(epsilon=0.1)(model, rows, labels)
    certified = certify(model, rows, labels, 0.1, "linf")
    assert np.array_equal(result.success, model.predict(result.examples) != labels)
    assert certified.any()
    assert result.success.any()
    assert not (certified & result.success).any()
    save(model, tmp_path)
    assert np.array_equal(load(tmp_path).predict(rows), model.predict(rows))


def test_the_grid_reaches_the_settings_of_the_base():
    model = SklearnModel(SVC())
    found = grid_search(model, X, y, C=[0.01, 10.0], folds=3)
    assert found.best == {"C": 10.0}
    assert clone(model).set_params(C=3.0).base.C == 3.0
    assert model.base.C == 1.0


def test_svc_stays_one_machine_for_two_classes():
    assert isinstance(KernelSVC().for_classes(2), KernelSVC)
    assert isinstance(KernelSVC(C=2.0).for_classes(3), VotingSVC)
    assert KernelSVC(C=2.0).for_classes(3).C == 2.0
