"""Same seed, same examples, whatever the chunks; memory and observers stay bounded."""

import numpy as np
import pytest

from attacks import FGSM, PGD, ZOO, Auto, CarliniWagner, MinNorm, Suite

ATTACKS = {
    "fgsm": FGSM(epsilon=0.2),
    "pgd": PGD(epsilon=0.2, random_start=True, restarts=2),
    "pgd_l2": PGD(epsilon=1.0, norm="l2", random_start=True),
    "cw": CarliniWagner(steps=30),
    "min_norm": MinNorm(gradients=60),
    "auto": Auto(epsilon=0.15),
    "auto_l2": Auto(epsilon=1.0, norm="l2"),
    "zoo": ZOO(steps=40, coordinates=16, binary_search_steps=1),
}


def with_settings(attack, **settings):
    return type(attack)(**{**vars(attack), **settings})


@pytest.mark.parametrize("name", ATTACKS)
def test_a_seed_fixes_the_examples_bit_for_bit(name, fitted, digits):
    X, y = digits[2][:40], digits[3][:40]
    first, second = (ATTACKS[name](fitted("svc_rbf"), X, y) for _ in range(2))
    np.testing.assert_array_equal(first.examples, second.examples)
    np.testing.assert_array_equal(first.queries, second.queries)


@pytest.mark.parametrize("name", ["pgd", "zoo"])
def test_another_seed_gives_other_examples(name, fitted, digits):
    X, y = digits[2][:40], digits[3][:40]
    other = with_settings(ATTACKS[name], random_state=1)(fitted("svc_rbf"), X, y)
    assert not np.array_equal(ATTACKS[name](fitted("svc_rbf"), X, y).examples, other.examples)


@pytest.mark.parametrize("name", ATTACKS)
def test_results_do_not_depend_on_the_chunks(name, fitted, digits):
    X, y = digits[2][:40], digits[3][:40]
    whole = ATTACKS[name](fitted("svc_rbf"), X, y)
    for chunk_size in (1, 7):
        chunked = with_settings(ATTACKS[name], chunk_size=chunk_size)(fitted("svc_rbf"), X, y)
        np.testing.assert_array_equal(chunked.success, whole.success)
        np.testing.assert_allclose(chunked.distortion_l2, whole.distortion_l2, rtol=2e-2, atol=1e-4)


def test_a_chunk_is_the_most_a_model_is_asked_at_once_while_it_is_attacked(fitted, digits):
    class Watched:
        classes_ = np.array([-1, 1])
        largest = 0

        def scores(self, X):
            return fitted("svc_rbf").decision_function(X)

        def scores_and_gradients(self, X):
            self.largest = max(self.largest, len(X))
            return self.scores(X), np.zeros_like(X)

    model = Watched()
    PGD(chunk_size=7)(model, *digits[2:])
    assert model.largest == 7


@pytest.mark.parametrize("name", ATTACKS)
def test_float64_on_request(name, fitted, digits):
    X, y = digits[2][:20].astype(np.float64), digits[3][:20]
    double = with_settings(ATTACKS[name], dtype="float64")(fitted("svc_rbf"), X, y)
    single = ATTACKS[name](fitted("svc_rbf"), X, y)
    assert double.examples.dtype == np.float64
    assert single.examples.dtype == np.float32
    for result in (double, single):
        scores = fitted("svc_rbf").decision_function(result.examples)
        np.testing.assert_allclose(result.scores, scores, atol=1e-5)
        l2 = np.linalg.norm(result.examples.astype(np.float64) - X, axis=1)
        np.testing.assert_allclose(result.distortion_l2, l2, atol=1e-6)
    assert double.robust_accuracy == pytest.approx(single.robust_accuracy, abs=0.051)


@pytest.mark.parametrize("attack", [*ATTACKS.values(), Suite([FGSM(), CarliniWagner(steps=10)])])
def test_observers_hear_of_progress_and_never_too_often(attack, fitted, digits):
    heard = []
    attack(fitted("svc_rbf"), digits[2], digits[3], observer=lambda *where, **values: heard.append((where, values)))
    assert 1 <= len(heard) <= 300
    assert all(where[0] == "attack" and 0 <= where[1] <= where[2] for where, _ in heard)
    assert all(0 <= values["robust_accuracy"] <= 1 for _, values in heard)
    assert heard[-1][0][1] == heard[-1][0][2]


@pytest.mark.filterwarnings("error")
def test_rows_that_must_not_be_written_to_are_welcome(fitted, digits):
    X = digits[2][:10].astype(np.float32)
    X.flags.writeable = False
    for attack in ATTACKS.values():
        attack(fitted("support_vectors"), X, digits[3][:10])


def test_attacks_leave_their_input_alone(fitted, digits):
    X, y = digits[2][:20].copy(), digits[3][:20].copy()
    for attack in ATTACKS.values():
        attack(fitted("svc_rbf"), X, y)
    np.testing.assert_array_equal(X, digits[2][:20])
    np.testing.assert_array_equal(y, digits[3][:20])
