"""Small networks: trained as the papers say, attacked through the same protocol, certified, saved exactly."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits
from sklearn.utils.estimator_checks import check_estimator

from attacks import PGD
from models import certify, load, save
from models.networks import FGSMRS, MART, VAT, AdvNetwork, Free, Natural, Standard
from models.networks.architecture import FirstConvolution, Standardise, build_network, interval_margins
from models.networks.classifier import OneCycleDescent
from models.networks.losses import Neighbourhood
from models.threat import Threat
from models.training import DivergenceWarning

WAYS = [Natural(), Standard(steps=3), MART(steps=3), VAT(), Free(replays=4), FGSMRS()]
every_way = pytest.mark.parametrize("training", WAYS, ids=lambda way: way.name)


@pytest.fixture(scope="module")
def digits():
    X, y = load_digits(return_X_y=True)
    kept = np.isin(y, (1, 7))
    X, y = (X[kept] / 16).astype(np.float32), y[kept]
    return X[:260], y[:260], X[260:], y[260:]


@pytest.fixture(scope="module")
def pictures():
    """Rows of 20 × 20 pixels: a bright upper or lower half under noise."""
    rng = np.random.default_rng(0)
    y = np.arange(96) % 2
    X = rng.random((96, 20, 20)) * 0.5
    X[y == 0, :10] += 0.3
    X[y == 1, 10:] += 0.3
    return X.reshape(96, -1).astype(np.float32), y


@every_way
def test_every_way_of_training_learns_the_digits(training, digits):
    X, y, X_test, y_test = digits
    seen = []
    model = AdvNetwork(training, epsilon=0.05, epochs=24, batch_size=32)
    model.fit(X, y, eval_set=(X_test, y_test), observer=lambda *args, **values: seen.append((args, values)))
    assert model.score(X_test, y_test) > 0.95
    assert model.curve_["test_error"][-1] == pytest.approx(1 - model.score(X_test, y_test))
    assert seen[-1][0] == ("train", model.n_iter_, model.n_iter_)
    # Replayed batches count: every way takes the same number of steps of the weights.
    assert model.n_iter_ == 24 * (260 // 32)


def test_adversarial_training_helps_against_the_attack_it_was_made_for(digits):
    X, y, X_test, y_test = digits
    attack = PGD(epsilon=0.2, steps=20)
    robust = {}
    for training in ("natural", "standard"):
        model = AdvNetwork(training, epsilon=0.2, epochs=30, batch_size=32).fit(X, y)
        robust[training] = attack(model, X_test, y_test).robust_accuracy
    assert robust["standard"] > robust["natural"] + 0.1


@pytest.mark.parametrize("ramp", [0.0, 0.5])
def test_perturbations_grow_to_their_full_size_and_stay_there(ramp, digits, monkeypatch):
    seen = []
    losses = Natural.losses

    def record(self, network, X, y, ball):
        seen.append(ball.epsilon)
        return losses(self, network, X, y, ball)

    monkeypatch.setattr(Natural, "losses", record)
    model = AdvNetwork("natural", epsilon=0.2, epochs=4, batch_size=32, ramp=ramp).fit(*digits[:2])
    assert len(seen) == model.n_iter_
    expected = [0.2 * min(1.0, step / (ramp * len(seen))) if ramp else 0.2 for step in range(len(seen))]
    np.testing.assert_allclose(seen, expected)
    assert seen[-1] == 0.2


def test_the_same_seed_gives_the_same_weights_and_leaves_the_global_generator_alone(digits):
    X, y, X_test, _ = digits
    torch.manual_seed(3)
    expected = torch.rand(1)
    torch.manual_seed(3)
    one = AdvNetwork("standard", epochs=2).fit(X, y).scores(X_test)
    assert torch.rand(1) == expected
    two = AdvNetwork("standard", epochs=2).fit(X, y).scores(X_test)
    np.testing.assert_array_equal(one, two)
    assert (AdvNetwork("standard", epochs=2, random_state=1).fit(X, y).scores(X_test) != one).any()


@pytest.mark.parametrize("shape", [(28, 28), (32, 32, 3), (3, 32, 32), None])
def test_sizes_are_those_of_small_networks(shape):
    network = build_network(784 if shape is None else int(np.prod(shape)), shape, 0, 1)
    count = sum(weights.numel() for weights in network.parameters())

    assert 1e5 <= count <= 4e5


def test_channels_may_come_first_or_last_in_a_row():
    pictures = torch.arange(32 * 32 * 3.0).reshape(1, 3, 32, 32)
    for shape, rows in (((3, 32, 32), pictures), ((32, 32, 3), pictures.permute(0, 2, 3, 1))):
        network = build_network(32 * 32 * 3, shape, 0.0, 1.0)
        torch.testing.assert_close(network[0](rows.reshape(1, -1)), pictures)


def test_gradients_and_probes_agree_with_scores(pictures):
    X, y = pictures
    model = AdvNetwork("natural", epochs=3, batch_size=16, image_shape=(20, 20)).fit(X, y)
    scores, gradients = model.scores_and_gradients(X[:4])
    np.testing.assert_allclose(scores, model.scores(X[:4]), rtol=1e-5)
    network = model.network_.double()
    rows = torch.from_numpy(X[:4].astype(np.float64))
    h = 1e-6
    for j in (0, 137, 399):
        step = torch.zeros(400, dtype=torch.float64)
        step[j] = h
        difference = ((network(rows + step) - network(rows - step)) / (2 * h)).detach().numpy()
        np.testing.assert_allclose(gradients[:, j], difference[:, 1] - difference[:, 0], atol=1e-5)
    network.float()
    plus, minus = model.probe(X[:4], [0, 137], 0.25)
    moved = X[:4].copy()
    moved[:, 137] += np.float32(0.25)
    np.testing.assert_allclose(plus[:, 1], model.scores(moved), rtol=1e-5)
    moved[:, 137] -= np.float32(0.5)
    np.testing.assert_allclose(minus[:, 1], model.scores(moved), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_nothing_certified_can_be_broken(norm, digits, pictures):
    X, y, X_test, y_test = digits
    small = AdvNetwork("standard", epsilon=0.1, epochs=20, batch_size=32).fit(X, y)
    large = AdvNetwork("natural", epochs=6, batch_size=16, image_shape=(20, 20)).fit(*pictures)
    proved = 0
    for model, rows, labels in ((small, X_test, y_test), (large, *pictures)):
        for epsilon in (0.002, 0.01, 0.05):
            radius = epsilon * (3 if norm == "l2" else 1)
            certified = model.certify(rows, labels, radius, norm, (0, 1))
            attacked = PGD(epsilon=radius, norm=norm, steps=30, restarts=2)(model, rows, labels)
            assert not (certified & attacked.success).any()
            rng = np.random.default_rng(0)
            for _ in range(20):
                noise = rng.standard_normal(rows.shape)
                noise = np.sign(noise) if norm == "linf" else noise / np.linalg.norm(noise, axis=1, keepdims=True)
                moved = np.clip(rows + radius * noise, 0, 1)
                assert (model.predict(moved) == labels)[certified].all()
            proved += certified.sum()
            # A box can only help, and a smaller ball too.
            assert (model.certify(rows, labels, radius, norm, None) <= certified).all()
            assert (certified <= model.certify(rows, labels, radius / 2, norm, (0, 1))).all()
    assert proved > 50
    radii = small.certified_radius(X_test, y_test, norm=norm, box=(0, 1))
    assert small.certify(X_test, y_test, float(radii[radii > 0].min()), norm, (0, 1))[radii > 0].all()
    np.testing.assert_array_equal(certify(small, X_test, y_test, 0.05, norm), small.certify(X_test, y_test, 0.05, norm))


def test_interval_arithmetic_that_forgets_a_layers_radius_would_be_caught(digits, monkeypatch):
    """The harness above is not blind: a bound that is a tenth too optimistic is beaten at once."""
    import models.networks.architecture as module

    X, y, X_test, y_test = digits
    model = AdvNetwork("natural", epochs=10, batch_size=32).fit(X, y)
    honest = module.interval_margins

    def careless(net, low, high, own, ball):
        return honest(net, 0.55 * low + 0.45 * high, 0.45 * low + 0.55 * high, own, (ball[0], 0.1 * ball[1]))

    monkeypatch.setattr(module, "interval_margins", careless)
    broken = False
    for epsilon in (0.1, 0.2, 0.3):
        certified = model.certify(X_test, y_test, epsilon, "linf", (0, 1))
        broken |= bool((certified & PGD(epsilon=epsilon, steps=30)(model, X_test, y_test).success).any())
    assert broken


@pytest.mark.parametrize("norm", ["linf", "l2"])
def test_perturbations_stay_in_ball_and_box(norm):
    generator = torch.Generator().manual_seed(0)
    X = torch.rand(50, 7, generator=generator)
    X[0, 0] = 1.5  # outside the box: may stay, may not go further
    near = Neighbourhood(Threat(norm, 0.3, (0.0, 1.0)), X)
    for delta in (near.start(), near.project(torch.randn(50, 7, generator=generator))):
        size = delta.abs().amax(1) if norm == "linf" else delta.norm(dim=1)
        assert (size <= 0.3 + 1e-6).all()
        assert (X + delta <= torch.maximum(X, torch.ones_like(X)) + 1e-6).all()
        assert (X + delta >= -1e-6).all()
    target = torch.ones(7)
    after = near.ascend(lambda Z: Z @ target @ torch.ones(50), torch.zeros_like(X), 0.1)
    assert ((after @ target) > 0).all()
    assert ((after @ target) <= 0.1 * (7 if norm == "linf" else 7**0.5) + 1e-6).all()


@pytest.mark.parametrize("shape", [(2, 1, 8, 8), (3, 3, 6, 10), (2, 2, 7, 9)])
def test_the_first_convolution_is_the_plain_one(shape):
    torch.manual_seed(0)
    fast = FirstConvolution(shape[1], 5, kernel_size=4, stride=2, padding=1).double()
    plain = torch.nn.Conv2d(shape[1], 5, kernel_size=4, stride=2, padding=1).double()
    plain.load_state_dict(fast.state_dict())
    x = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    weights = torch.randn_like(plain(x))
    for one, other in zip(*(_value_and_gradients(layer, x, weights) for layer in (fast, plain)), strict=True):
        torch.testing.assert_close(one, other)


def _value_and_gradients(layer, x, weights):
    value = layer(x)
    return value, *torch.autograd.grad((value * weights).sum(), (x, layer.weight, layer.bias))


def test_a_descent_is_torchs_own():
    total, runs = 12, []
    target = torch.randn(6, 4, generator=torch.Generator().manual_seed(1))
    for own in (True, False):
        torch.manual_seed(0)
        layer = torch.nn.Linear(4, 4)
        if own:
            descent = OneCycleDescent(layer.parameters(), 0.3, 5e-4, total)
        else:
            optimiser = torch.optim.SGD(layer.parameters(), lr=0.3, momentum=0.9, nesterov=True, weight_decay=5e-4)
            schedule = torch.optim.lr_scheduler.OneCycleLR(
                optimiser, max_lr=0.3, total_steps=total + 1, pct_start=0.4, anneal_strategy="linear"
            )
        for _ in range(total):
            loss = (30 * layer(target) - target).pow(2).mean()  # long gradients: they are clipped
            if own:
                descent.step(loss)
                continue
            optimiser.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(layer.parameters(), 5.0)
            optimiser.step()
            schedule.step()
        runs.append(layer.weight.detach().clone())
    torch.testing.assert_close(runs[0], runs[1])


def test_mart_is_the_papers_loss(monkeypatch):
    torch.manual_seed(0)
    weights = torch.randn(5, 2, dtype=torch.float64)
    X, y = torch.rand(6, 5, dtype=torch.float64), torch.tensor([0, 1, 0, 1, 1, 0])
    delta = 0.3 * torch.randn(6, 5, dtype=torch.float64)
    monkeypatch.setattr(Neighbourhood, "pgd", lambda self, loss, steps: delta)
    (loss,) = MART(steps=1, beta=5.0).losses(lambda Z: Z @ weights, X, y, Threat("linf", 0.3, None))
    clean, attacked = (torch.softmax(Z @ weights, 1).numpy() for Z in (X, X + delta))
    expected = []
    for p, q, own in zip(clean, attacked, y, strict=True):
        boosted = -np.log(q[own]) - np.log(1 - q[1 - own])
        expected.append(boosted + 5.0 * sum(p[k] * np.log(p[k] / q[k]) for k in (0, 1)) * (1 - p[own]))
    assert float(loss) == pytest.approx(np.mean(expected), rel=1e-6)


def test_vat_finds_the_direction_that_moves_a_linear_network_most():
    torch.manual_seed(0)
    weights = torch.randn(5, 2, dtype=torch.float64)
    X, y = torch.rand(1, 5, dtype=torch.float64), torch.tensor([1])
    (loss,) = VAT(weight=2.0).losses(lambda Z: Z @ weights, X, y, Threat("linf", 0.1, None))
    p = torch.softmax(X @ weights, 1)[0].numpy()
    expected = []
    for side in (1, -1):  # the divergence is even to second order: either end of the line will do
        q = torch.softmax((X + side * 0.1 * (weights[:, 1] - weights[:, 0]).sign()) @ weights, 1)[0].numpy()
        expected.append(-np.log(p[1]) + 2.0 * sum(p[k] * np.log(p[k] / q[k]) for k in (0, 1)))
    assert min(abs(float(loss) - value) for value in expected) < 1e-9


@pytest.mark.parametrize("training", [Standard(steps=1), FGSMRS()], ids=lambda way: way.name)
def test_the_loss_is_that_of_the_perturbed_rows(training):
    """One long step up a linear network ends in a corner of the cube, wherever it began."""
    weights = torch.randn(5, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    X, y = torch.full((2, 5), 0.5, dtype=torch.float64), torch.tensor([0, 1])
    (loss,) = training.losses(lambda Z: Z @ weights, X, y, Threat("linf", 0.1, (0.0, 1.0)))
    away = torch.where((y == 0)[:, None], 1.0, -1.0) * (weights[:, 1] - weights[:, 0]).sign()
    worst = torch.nn.functional.cross_entropy((X + 0.1 * away) @ weights, y)
    # FGSM-RS steps 1.25·ε from anywhere in the cube: a start at the far end falls short of the corner.
    assert float(loss) <= float(worst) + 1e-12
    assert float(loss) > float(torch.nn.functional.cross_entropy(X @ weights, y))
    if training.name == "standard":
        assert float(loss) == pytest.approx(float(worst))


def test_bounds_hold_for_the_values_that_are_computed():
    """Thousands of large terms that cancel: float32 is off, and the bound counts it."""
    torch.manual_seed(0)
    network = torch.nn.Sequential(Standardise(0.0, 1.0, None), torch.nn.Linear(4096, 2)).eval()
    X = 1e3 * (1 + torch.rand(64, 4096))
    classes = torch.arange(64) % 2
    with torch.no_grad():
        computed, exact = (_margins(network.to(X), X, classes), _margins(network.double(), X.double(), classes))
    assert (exact > computed.double()).any()
    rows = X.double()
    bounds = interval_margins(network.float(), rows, rows, classes, (rows, torch.zeros(64, dtype=torch.float64)))
    assert (bounds <= torch.minimum(computed.double(), exact)).all()
    assert (exact - bounds < 100).all()  # of terms whose magnitudes sum to 50,000


def _margins(network, X, classes):
    logits = network(X)
    rows = torch.arange(len(X))
    return logits[rows, classes] - logits[rows, 1 - classes]


def test_free_training_reuses_the_gradient_of_the_weights():
    calls = []
    weight = torch.randn(4, 2, requires_grad=True)

    def network(Z):
        calls.append(Z.detach().clone())
        return Z @ weight

    X, y = torch.rand(3, 4), torch.tensor([0, 1, 1])
    for loss in Free(replays=3).losses(network, X, y, Threat("linf", 0.1, (0.0, 1.0))):
        loss.backward()
    assert len(calls) == 3  # one evaluation a replay, none for the perturbation
    torch.testing.assert_close(calls[0], X)
    assert not torch.equal(calls[1], X)


@every_way
def test_files_give_the_same_model_back(training, digits, tmp_path):
    X, y, X_test, _ = digits
    model = AdvNetwork(training, epochs=4, image_shape=(8, 8)).fit(X, y)
    save(model, tmp_path)
    again = load(tmp_path)
    np.testing.assert_array_equal(again.scores(X_test), model.scores(X_test))
    assert again.training == training
    assert again.n_iter_ == model.n_iter_


def test_files_give_a_convolutional_network_back(pictures, tmp_path):
    X, y = pictures
    model = AdvNetwork("free", epochs=4, batch_size=16, image_shape=(20, 20)).fit(X, y)
    save(model, tmp_path)
    np.testing.assert_array_equal(load(tmp_path).scores(X), model.scores(X))
    assert {file.suffix for file in tmp_path.iterdir()} == {".json", ".safetensors"}


def test_diverged_training_is_marked_and_keeps_finite_weights(digits):
    X, y, X_test, _ = digits
    with pytest.warns(DivergenceWarning, match="learning_rate"):
        model = AdvNetwork("natural", learning_rate=1e18, epochs=3).fit(X, y)
    assert model.diverged_
    assert np.isfinite(model.scores(X_test)).all()


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"image_shape": (7, 7)}, "image_shape"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"training": "madry"}, "training"),
        ({"norm": "l1"}, "norm"),
        ({"device": "cuda"}, "finds no CUDA here"),
    ],
)
def test_bad_settings_are_named(settings, word, digits, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    X, y, *_ = digits
    with pytest.raises(ValueError, match=word):
        AdvNetwork(**settings).fit(X, y)


@pytest.mark.parametrize(("way", "option"), [(MART, "beta"), (Free, "replays"), (VAT, "xi"), (Standard, "steps")])
def test_bad_options_of_a_way_of_training_are_named(way, option):
    with pytest.raises(ValueError, match=rf"training\.{option}"):
        way(**{option: 0})


def test_scikit_learns_own_checks_pass():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(
            AdvNetwork("fgsm_rs", epochs=20, batch_size=16, learning_rate=0.2), on_skip=None, on_fail=None
        )
    assert [r["check_name"] for r in results if r["status"] not in ("passed", "skipped")] == []
