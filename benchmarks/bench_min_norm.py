"""Distortion of MinNorm ÷ the nearest of foolbox's DDN, FMN, DeepFool, adv-lib's DDN, FMN, ALMA and ART's DeepFool.

One JSON line per model and norm. `ratio` (median) and `p90_ratio` compare with the nearest peer at the same number of
gradients (the worst budget); `area` is the area between our curve of accuracy over
distortion and the best one known (per point the nearest of all attacks and budgets), as a share of the area under it.
Peers that fail on a point count as infinitely far there. Without adv-lib (see peers.py) the rest is compared. ALMA's
loss divides by the third logit, so it gets one: a constant below the other two.
    python benchmarks/bench_min_norm.py [dataset] [budget ...] [model ...] [points=60]
"""

import sys
import time
import warnings
from functools import partial

import foolbox
import numpy as np
import torch
from art.attacks.evasion import DeepFool
from art.estimators.classification import PyTorchClassifier
from peers import adv_lib_attacks
from sklearn.svm import SVC, LinearSVC
from timing import report

from attacks import MinNorm, as_target
from models import AdvSVM
from pipeline.data import load_dataset

warnings.filterwarnings("ignore")
THEIRS = adv_lib_attacks()
DATASET = sys.argv[1] if len(sys.argv) > 1 else "digits_1v7"
WORDS = sys.argv[2:]
BUDGETS = [int(word) for word in WORDS if word.isdigit()] or [30, 100]
POINTS = next((int(word.removeprefix("points=")) for word in WORDS if word.startswith("points=")), 60)


class Scores(torch.autograd.Function):
    """A model's own scores and gradients inside autograd: every side asks the same function."""

    @staticmethod
    def forward(context, X, target):
        scores, gradients = target.scores_and_gradients(np.ascontiguousarray(X.detach().numpy()))
        context.save_for_backward(torch.from_numpy(np.array(gradients)).to(X.dtype))
        return torch.from_numpy(np.array(scores)).to(X.dtype)

    @staticmethod
    def backward(context, upstream):
        return upstream[:, None] * context.saved_tensors[0], None


class Logits(torch.nn.Module):
    """The two logits (-f/2, f/2), and a constant third where one is asked for."""

    def __init__(self, model, third=None):
        super().__init__()
        self.target, self.third = as_target(model), third

    def forward(self, X):
        scores = Scores.apply(X, self.target)
        logits = [-0.5 * scores, 0.5 * scores]
        if self.third is not None:
            logits.append(torch.full_like(scores, self.third))
        return torch.stack(logits, dim=1)


def peers(model, images, labels, norm, steps):
    """Each peer's name and what makes its examples, with this many gradients."""
    logits, attacks = Logits(model).eval(), foolbox.attacks
    wrapped = foolbox.PyTorchModel(logits, bounds=(0, 1), device="cpu")
    if norm == "l2":
        own = [attacks.DDNAttack(steps=steps), attacks.L2FMNAttack(steps=steps), attacks.L2DeepFoolAttack(steps=steps)]
    else:
        own = [attacks.LInfFMNAttack(steps=steps), attacks.LinfDeepFoolAttack(steps=steps)]
    for attack in own:
        yield type(attack).__name__, lambda attack=attack: attack(wrapped, images, labels, epsilons=None)[1]
    if norm == "l2":
        yield "ART DeepFool", lambda: art_deep_fool(logits, images, steps)
    if THEIRS is None:
        return
    order = 2 if norm == "l2" else float("inf")
    yield "adv-lib FMN", lambda: THEIRS.fmn(logits, images, labels, norm=order, steps=steps)
    if norm == "l2":
        largest = float(np.abs(as_target(model).scores(images.numpy())).max())
        three = Logits(model, third=-largest).eval()
        yield "adv-lib DDN", lambda: THEIRS.ddn(logits, images, labels, steps=steps)
        yield "adv-lib ALMA", lambda: THEIRS.alma(three, images, labels, num_steps=steps, init_lr_distance=0.1)


def art_deep_fool(logits, images, steps):
    """ART's DeepFool, which asks for the gradients of both logits in every step."""
    classifier = PyTorchClassifier(logits, torch.nn.CrossEntropyLoss(), images.shape[1:], 2, clip_values=(0.0, 1.0))
    attack = DeepFool(classifier, max_iter=steps, nb_grads=2, batch_size=len(images), verbose=False)
    return torch.from_numpy(attack.generate(images.numpy()))


def distances(model, examples, X, y, norm):
    """Distance of every example that is misclassified and in the box, infinite for the others."""
    examples = np.clip(examples, 0, 1)
    delta = examples.astype(np.float64) - X
    lengths = np.linalg.norm(delta, axis=1) if norm == "l2" else np.abs(delta).max(axis=1)
    return np.where(model.predict(examples) != y, lengths, np.inf)


def compare(name, model, X, y, norm):
    """One line of the report."""
    images, labels = torch.from_numpy(X), torch.from_numpy((y == as_target(model).classes_[1]).astype(np.int64))
    found, seconds, gradients = {}, {}, {}
    for budget in BUDGETS:
        start = time.perf_counter()
        result = MinNorm(norm=norm, gradients=budget)(model, X, y)
        seconds["ours"] = time.perf_counter() - start
        gradients[budget] = float(result.gradient_evaluations.mean())
        found[budget] = {"ours": np.where(result.success, result.distortion(norm), np.inf)}
        for peer, attack in peers(model, images, labels, norm, budget):
            start = time.perf_counter()
            examples = attack().detach().numpy()
            seconds[peer] = time.perf_counter() - start
            found[budget][peer] = distances(model, examples, X, y, norm)
    known = np.min([one for of_budget in found.values() for one in of_budget.values()], axis=0)

    def at(percentile):
        """Worst ratio to the nearest peer over the budgets; the value itself, so that no infinity is interpolated."""
        read = partial(np.percentile, q=percentile, method="higher")
        return max(
            read(one["ours"]) / min(read(theirs) for peer, theirs in one.items() if peer != "ours")
            for one in found.values()
        )

    report(
        "min_norm",
        dataset=DATASET,
        model=name,
        norm=norm,
        points=len(X),
        case=f"{DATASET}, {name}, {norm}",
        section="Attacks",
        what=f"median {norm.replace('linf', 'L∞').replace('l2', 'L2')} distance of MinNorm, "
        f"{len(X)} points of {DATASET}, {name}, worst of {' and '.join(map(str, BUDGETS))} gradients",
        against="the nearest of " + ", ".join(peer for peer in found[BUDGETS[0]] if peer != "ours"),
        ratio=at(50),
        shown=f"90th percentile {at(90):.3g}; area above the best known "
        + " and ".join(f"{one['ours'].mean() / known.mean() - 1.0:.1%}" for one in found.values()),
        p90_ratio=at(90),
        median={b: {peer: float(np.median(lengths)) for peer, lengths in one.items()} for b, one in found.items()},
        area={budget: float(one["ours"].mean() / known.mean() - 1.0) for budget, one in found.items()},
        gradients=gradients,
        seconds=seconds,
    )


data = load_dataset(DATASET)
batch = 10 if DATASET.startswith("digits") else 500
MODELS = {
    "exact": AdvSVM(expansion="support_vectors", C=8.0, step=0.0625, batch_size=batch),
    "random_features": AdvSVM(expansion="doubly_stochastic", C=8.0, step=0.0625, batch_size=batch),
    "linear": LinearSVC(C=0.1, random_state=0),
    "svc": SVC(C=8.0),
}
rows = np.random.default_rng(0).permutation(len(data.y_train))[:2000]
wanted = [name for name in MODELS if name in WORDS] or list(MODELS)
for name, model in ((name, MODELS[name]) for name in wanted):
    model.fit(data.X_train[rows], data.y_train[rows])
    X, y = data.X_test[:POINTS], data.y_test[:POINTS]
    correct = model.predict(X) == y
    for norm in ("l2", "linf"):
        compare(name, model, np.ascontiguousarray(X[correct]), y[correct], norm)
