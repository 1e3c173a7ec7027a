"""The named experiments: the optimum is one, the slopes are slopes, and the summary gets its figures."""

from __future__ import annotations

import numpy as np
import pytest
from omegaconf import OmegaConf
from sklearn.datasets import load_digits

from models import RBF
from pipeline.figures import sweep_figure
from pipeline.figures.of_sweeps import fitted_slope
from pipeline.job import Outcome
from pipeline.stages.convergence import kernel_matrix, minimise
from pipeline.summary import write_files
from pipeline.sweep import Sweep


@pytest.fixture(scope="module")
def small():
    X, y = load_digits(n_class=2, return_X_y=True)
    return X[:80] / 16.0, np.where(y[:80] == 1, 1.0, -1.0)


def objective(a, K, signs, penalty, weight):
    norm = np.sqrt(max(a @ K @ a, 0.0))
    return 0.5 * norm**2 + weight * np.maximum(0.0, 1 - signs * (K @ a) + penalty * norm).sum()


@pytest.mark.parametrize("penalty", [0.0, 0.05, 0.3])
def test_no_perturbation_improves_the_optimum(small, penalty):
    X, signs = small
    K = kernel_matrix(RBF(), X, X, 0.1)
    best = minimise(X, signs, RBF(), gamma=0.1, penalty=penalty, weight=0.2)
    at_best = objective(best.coefficients, K, signs, penalty, 0.2)
    assert at_best == pytest.approx(best.objective, rel=1e-6)
    rng = np.random.default_rng(0)
    for size in (1e-1, 1e-2, 1e-3):
        for _ in range(30):
            other = best.coefficients + size * rng.standard_normal(len(X)) * np.abs(best.coefficients).max()
            assert objective(other, K, signs, penalty, 0.2) >= at_best - 1e-6


def test_without_penalty_the_optimum_is_the_support_vector_machine(small):
    from sklearn.svm import SVC

    X, signs = small
    best = minimise(X, signs, RBF(), gamma=0.1, penalty=0.0, weight=0.2)
    # An intercept is the one thing an SVC has more; symmetric data (x, y), (-x, -y) in feature space leave it at 0.
    K = kernel_matrix(RBF(), X, X, 0.1)
    doubled = np.block([[K, -K], [-K, K]])
    machine = SVC(C=0.1, kernel="precomputed", tol=1e-8).fit(doubled, np.concatenate([signs, -signs]))
    dual = np.zeros(2 * len(X))
    dual[machine.support_] = machine.dual_coef_[0]
    scores = K @ (dual[: len(X)] - dual[len(X) :])
    assert machine.intercept_[0] == pytest.approx(0.0, abs=1e-5)
    np.testing.assert_allclose(best.scores(X), scores, atol=1e-4)


def test_the_mean_batch_step_stands_still_at_the_optimum(small):
    """The objective whose weight is C·B/n is the one the batch step is unbiased for."""
    X, signs = small
    n, batch, C, penalty = len(X), 16, 1.0, 0.1
    best = minimise(X, signs, RBF(), gamma=0.1, penalty=penalty, weight=C * batch / n)
    slack = 1 - signs * best.scores(X) + penalty * best.norm
    # Rows on the kink take any share of the step between 0 and 1: theirs follow from the coefficients.
    inside, outside = slack > 1e-4, slack < -1e-4
    growth = 1.0 + (C * batch / n) * penalty / best.norm * share(best, signs, C * batch / n, penalty).sum()
    wanted = growth * signs * best.coefficients / (C * batch / n)
    np.testing.assert_allclose(wanted[inside], 1.0, atol=1e-2)
    np.testing.assert_allclose(wanted[outside], 0.0, atol=1e-2)


def share(best, signs, weight, penalty):
    """v_i with a_i (1 + weight·penalty·Σv/‖f‖) = weight·v_i·y_i, solved for v."""
    raw = signs * best.coefficients / weight
    total = raw.sum() / (1.0 - raw.sum() * weight * penalty / best.norm)
    return raw * (1.0 + weight * penalty * total / best.norm)


def test_a_power_law_gives_its_exponent():
    t = np.geomspace(1, 1000, 50)
    assert fitted_slope(t, 3.0 / t, 10.0)[0] == pytest.approx(-1.0)


def outcome(model, attack="pgd", seed=0, epsilon=8 / 255, **curves):
    labels = {"dataset": "digits_1v7", "model": model, "attack": attack, "seed": seed}
    settings = {"dataset.name": "digits_1v7", "model.name": model, "attack.name": attack, "seed": str(seed)}
    settings["attack.epsilon"] = str(epsilon)
    return Outcome("finished", labels, settings, metrics={"step": 1.0, "robust_accuracy": 0.5}, curves=curves)


def drawn(folder, results):
    write_files(folder, Sweep("sweep-1", folder, [], OmegaConf.create({"figures": "auto"})), {}, results)
    return {path.stem.removesuffix("_digits_1v7") for path in (folder / "figures").glob("*.png")}


def test_every_experiment_gets_its_figure(tmp_path):
    falling = [(step, 1.0 / (1 + step)) for step in range(60)]
    results = []
    for model in ("adv_svm_c", "adv_svm_d"):
        for epsilon in (0.03137254901960784, 0.1):
            for seed in (0, 1):
                results.append(
                    outcome(
                        model,
                        seed=seed,
                        epsilon=epsilon,
                        robust_accuracy_by_step=falling[:41],
                        test_error=falling[1:],
                        adversarial_test_error=falling[1:],
                        squared_error=falling[1:],
                        **({"squared_error_step_0.25": falling[1:]} if model == "adv_svm_c" else {}),
                    )
                )
    results.append(Outcome("failed", results[0].labels, reason="killed"))
    names = drawn(tmp_path, results)
    assert names >= {"test_error", "adversarial_test_error", "attack_strength", "convergence"}
    assert "constant,lower envelope,4," in (tmp_path / "slopes_digits_1v7.csv").read_text()
    assert "killed" in (tmp_path / "failures.txt").read_text()


def test_other_sweeps_get_no_figure_of_an_experiment(tmp_path):
    names = drawn(tmp_path, [outcome("svc")])
    assert not names & {"test_error", "adversarial_test_error", "attack_strength", "convergence"}


def test_a_figure_that_fails_costs_only_itself(tmp_path, caplog, monkeypatch):
    def broken(dataset, jobs):
        raise IndexError("no such axis")

    monkeypatch.setitem(sweep_figure.functions, "broken", broken)
    names = drawn(tmp_path, [outcome("svc", test_error=[(1, 0.5), (2, 0.25)])])
    assert "test_error" in names
    assert "broken could not be drawn (IndexError: no such axis)" in caplog.text
