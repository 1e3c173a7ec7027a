"""Distortion of MinNorm ÷ the nearest of foolbox's DDN, FMN and DeepFool and adv-lib's DDN and FMN.

One JSON line per model and norm. `ratio` (median) and `p90_ratio` compare with the nearest peer at the same number of
gradients (the worst budget); `area` is the area between our curve of accuracy over
distortion and the best one known (per point the nearest of all attacks and budgets), as a share of the area under it.
Peers that fail on a point count as infinitely far there. Without adv-lib (`pip install --no-deps adv-lib==0.2.8
visdom`) the rest is compared; its ALMA needs three classes (its loss divides by the third logit).
"""

import sys
import time
import types
from functools import partial

import foolbox
import numpy as np
import torch
from sklearn.svm import SVC, LinearSVC
from timing import report

from attacks import MinNorm, as_target
from models import AdvSVM
from pipeline.data import load_dataset

try:
    # adv-lib asks for torchvision, for a distance that none of these attacks uses, and for a plotting client.
    for name in ("torchvision", "visdom"):
        try:
            __import__(name)
        except ImportError:
            stand_in = sys.modules[name] = types.ModuleType(name)
            stand_in.models = stand_in.Visdom = None
    from adv_lib.attacks import ddn, fmn
except ImportError:
    ddn = fmn = None

DATASET = sys.argv[1] if len(sys.argv) > 1 else "digits_1v7"
BUDGETS = [int(value) for value in sys.argv[2:]] or [30, 100]
POINTS = 60


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
    """The two logits (-f/2, f/2)."""

    def __init__(self, model):
        super().__init__()
        self.target = as_target(model)

    def forward(self, X):
        scores = Scores.apply(X, self.target)
        return torch.stack([-0.5 * scores, 0.5 * scores], dim=1)


def peers(wrapped, logits, images, labels, norm, steps):
    """Each peer's name and examples, with this many gradients."""
    attacks = foolbox.attacks
    if norm == "l2":
        theirs = [
            attacks.DDNAttack(steps=steps),
            attacks.L2FMNAttack(steps=steps),
            attacks.L2DeepFoolAttack(steps=steps),
        ]
    else:
        theirs = [attacks.LInfFMNAttack(steps=steps), attacks.LinfDeepFoolAttack(steps=steps)]
    for attack in theirs:
        yield type(attack).__name__, lambda attack=attack: attack(wrapped, images, labels, epsilons=None)[1]
    if fmn is not None:
        yield "adv-lib FMN", lambda: fmn(logits, images, labels, norm=2 if norm == "l2" else float("inf"), steps=steps)
        if norm == "l2":
            yield "adv-lib DDN", lambda: ddn(logits, images, labels, steps=steps)


def distances(model, examples, X, y, norm):
    """Distance of every example that is misclassified and in the box, infinite for the others."""
    examples = np.clip(examples, 0, 1)
    delta = examples.astype(np.float64) - X
    lengths = np.linalg.norm(delta, axis=1) if norm == "l2" else np.abs(delta).max(axis=1)
    return np.where(model.predict(examples) != y, lengths, np.inf)


def compare(name, model, X, y, norm):
    """One line of the report."""
    logits = Logits(model).eval()
    wrapped = foolbox.PyTorchModel(logits, bounds=(0, 1), device="cpu")
    images, labels = torch.from_numpy(X), torch.from_numpy((y == as_target(model).classes_[1]).astype(np.int64))
    found, seconds, gradients = {}, {}, {}
    for budget in BUDGETS:
        start = time.perf_counter()
        result = MinNorm(norm=norm, gradients=budget)(model, X, y)
        seconds["ours"] = time.perf_counter() - start
        gradients[budget] = float(result.gradient_evaluations.mean())
        found[budget] = {"ours": np.where(result.success, result.distortion(norm), np.inf)}
        for peer, attack in peers(wrapped, logits, images, labels, norm, budget):
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
        shown=f"90th percentile {at(90):.3g}",
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
for name, model in MODELS.items():
    model.fit(data.X_train[rows], data.y_train[rows])
    X, y = data.X_test[:POINTS], data.y_test[:POINTS]
    correct = model.predict(X) == y
    for norm in ("l2", "linf"):
        compare(name, model, np.ascontiguousarray(X[correct]), y[correct], norm)
