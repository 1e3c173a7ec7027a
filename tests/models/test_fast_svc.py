"""``model=svc`` with scikit-learn-intelex: the same machine to 1e-3, attacked and certified like scikit-learn's."""

import sys

import numpy as np
import pytest
from sklearn.datasets import load_digits
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from attacks import PGD
from models import KernelSVC, certify, load, save
from models.fitted import FittedClassifier
from models.svc import VotingSVC, fastest_svc


def digits(classes=(1, 7)):
    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, classes)
    return (X[kept] / 16).astype(np.float32), y[kept]


def test_without_it_scikit_learns_own_is_taken(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearnex.svm", None)
    assert fastest_svc() is SVC


class TestWithIt:
    @pytest.fixture(autouse=True)
    def _installed(self):
        pytest.importorskip("sklearnex")

    def test_it_is_taken(self):
        assert fastest_svc().__module__.startswith("sklearnex")

    def test_scores_are_those_of_scikit_learns_svc_to_a_thousandth(self):
        X, y = digits()
        model = KernelSVC(C=8.0).fit(X, y)
        peer = SVC(C=8.0, gamma=model.gamma_).fit(X, y)
        np.testing.assert_allclose(model.scores(X), peer.decision_function(X), atol=1e-3)
        np.testing.assert_array_equal(model.predict(X), peer.predict(X))

    def test_more_than_two_classes_vote_as_scikit_learns_do(self):
        X, y = digits((1, 4, 7))
        model = VotingSVC(C=8.0).fit(X[::2], y[::2])
        peer = SVC(C=8.0, gamma=model.gamma_).fit(X[::2], y[::2])
        assert np.mean(model.predict(X) == peer.predict(X)) >= 0.999

    def test_a_voting_machine_is_stored(self, tmp_path):
        """The object of the fast library is not: in a file of its own it would end the process."""
        X, y = digits((1, 4, 7))
        model = VotingSVC(C=8.0).fit(X, y)
        assert type(model.estimator) is SVC
        save(model, tmp_path / "model")
        np.testing.assert_array_equal(load(tmp_path / "model").predict(X), model.predict(X))

    @pytest.mark.parametrize("wrapped", [False, True])
    def test_somebodys_own_is_not_stored_and_says_so(self, tmp_path, wrapped):
        X, y = digits()
        machine = fastest_svc()(C=8.0)
        fitted = (make_pipeline(StandardScaler(), machine) if wrapped else machine).fit(X, y)
        with pytest.raises(ValueError, match="a SVC of scikit-learn-intelex cannot be stored"):
            save(FittedClassifier(fitted), tmp_path / "model")

    def test_attacks_and_certificates_say_the_same_of_both(self):
        X, y = digits()
        train, test = slice(0, 240), slice(240, None)
        both = [kind(C=8.0, gamma=0.5).fit(X[train], y[train]) for kind in (fastest_svc(), SVC)]
        proved = [certify(model, X[test], y[test], 0.1, "linf") for model in both]
        results = [PGD(epsilon=0.2)(model, X[test], y[test]) for model in both]
        assert np.mean(proved[0] != proved[1]) <= 0.01
        assert np.mean(results[0].success != results[1].success) <= 0.01
        np.testing.assert_array_equal(both[0].predict(results[0].examples) != y[test], results[0].success)
