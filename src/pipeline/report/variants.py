"""Which runs belong together: only runs that differ in nothing but the seed may share a mean.

A *setup* is what a whole table has in common (data, expansion, kernel, tuning, …), a *row* is a model with its training
radius ε, a *setting* is an attack with its budget. All three are made of the run's parameters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from pipeline.labels import ATTACKS, MODELS, attack_name, model_name, threat_of
from pipeline.report.tracked import TrackedRun

PAPER_EPSILON = 8 / 255

Items = tuple[tuple[str, str], ...]

# Labels and what changes no number.
_MODEL_LABELS = ("name", "_target_", "schedule", "epsilon", "expansion.cache_mb")
# What a kernel machine makes its own examples with: of the row, so that it stands beside machines that make none.
_EXAMPLES = ("adversary", "norm", "attack_steps")
_ATTACK_LABELS = ("name", "_target_", "chunk_size")
_EXPANSIONS = {
    "DoublyStochastic": "doubly stochastic features",
    "FixedFeatures": "fixed features",
    "SupportVectors": "exact kernel (support vectors)",
}
# Parameter of the model or the data, value that needs no mention, how a departure is worded.
_REMARKS = (
    ("model.expansion.n_features", "1024", "{} features"),
    ("model.kernel.width_scale", "4.0", "width scale {}"),
    ("model.kernel.gamma", "None", "kernel γ = {}"),
    ("model.batch_size", ("500", "auto"), "batch {}"),
    ("model.passes", ("1", "auto"), "{} passes"),
    ("model.decay", "literal", "{} decay"),
    ("model.averaging", "none", "{} averaging"),
    ("model.dtype", "float32", "{}"),
    ("dataset.max_train", "None", "{} training rows"),
    ("dataset.max_test", "None", "{} test rows"),
)
_ROW_REMARKS = (
    ("model.C_f", "0.1", "C_f = {}"),
    ("model.attacked_class", "positive", "attacker moves the {} class"),
    ("model.width_scale", "4.0", "width scale {}"),
)
_EXAMPLE_REMARKS = (("model.attack_steps", "1", "{} attack steps"),)


@dataclass(frozen=True)
class Setup:
    """What the rows of one table share; ``kernel`` is empty for models without an expansion."""

    dataset: str
    digest: str
    tune: Items
    kernel: Items


@dataclass(frozen=True)
class RowKey:
    """A model with its training radius; ``other`` holds what else distinguishes models of one table."""

    model: str
    epsilon: float | None
    other: Items

    @property
    def is_paper(self) -> bool:
        """Whether the paper has this row: Natural, or an adversarial model trained with ε = 8/255."""
        usual = {"natural": 0.0, "adv_svm_c": PAPER_EPSILON, "adv_svm_d": PAPER_EPSILON}
        if self.model in usual:
            return self.epsilon is not None and abs(self.epsilon - usual[self.model]) < 1e-9
        return self.model in MODELS


@dataclass(frozen=True)
class AttackSetting:
    """An attack with its budget and the number of test points it got."""

    attack: str
    items: Items
    n_attacked: int
    l2_cap: float
    threat: str = ""
    bounded: bool = True

    @property
    def metric(self) -> str:
        """The attacked accuracy in the attack's threat: without a bound only examples within the L2 cap count."""
        return "robust_accuracy" if self.bounded else "accuracy_at_l2_cap"

    def get(self, name: str, default: str = "") -> str:
        """A parameter of the attack."""
        return dict(self.items).get(name, default)

    def number(self, name: str) -> float | None:
        """A numeric parameter of the attack, None when it has none."""
        try:
            return float(self.get(name))
        except ValueError:
            return None

    @property
    def is_paper(self) -> bool:
        """Whether FGSM or PGD has the paper's budget (L∞ 8/255, 10 steps of ε/4); other attacks: always."""
        if self.attack not in ("fgsm", "pgd"):
            return self.attack in ATTACKS
        close = abs((self.number("epsilon") or 0.0) - PAPER_EPSILON) < 1e-9
        return close and self.get("steps", "10") == "10" and self.steps_like_the_papers

    @property
    def steps_like_the_papers(self) -> bool:
        """Whether it moves in the L∞ ball by steps of ε/4 from the clean point, of any number and radius."""
        usual = {"norm": "linf", "random_start": "False", "restarts": "1"}
        epsilon, step = self.number("epsilon"), self.number("step_size")
        quarter = step is None or (epsilon is not None and abs(step - epsilon / 4) < 1e-9)
        return quarter and all(self.get(name, value) == value for name, value in usual.items())

    @property
    def label(self) -> str:
        """``PGD L∞ 8/255, 40 steps``: the attack with its budget."""
        words = [" ".join(filter(None, (attack_name(self.attack), "" if self.bounded else "≤", self.threat)))]
        steps = self.number("steps") if self.number("epsilon") is not None else None
        return ", ".join([*words, *([f"{steps:.0f} steps"] if steps is not None else [])])


def setup_of(run: TrackedRun) -> Setup:
    """The table this run belongs to."""
    tuned = _tuned(run)
    tune = _items(run, "tune.") if run.params.get("tune.enabled") == "True" else (("name", "none"),)
    kernel: Items = ()
    if _has_expansion(run):
        kernel = tuple(i for i in _items(run, "model.", (*_MODEL_LABELS, *_EXAMPLES)) if i[0] not in tuned)
    return Setup(run.dataset, run.digest, tune, kernel)


def row_of(run: TrackedRun) -> RowKey:
    """The model this run is about."""
    epsilon = run.params.get("model.epsilon")
    tuned = _tuned(run)
    other = tuple(i for i in _items(run, "model.", _MODEL_LABELS) if i[0] not in tuned)
    if _has_expansion(run):
        # Runs from before there were others bound their adversary in feature space, too.
        makes_examples = run.params.get("model.adversary") == "input"
        other = tuple(i for i in other if i[0] in _EXAMPLES) if makes_examples else ()
    return RowKey(run.model, None if epsilon is None else float(epsilon), other)


def setting_of(run: TrackedRun) -> AttackSetting:
    """The attack of this run."""
    cap = float(run.params.get("evaluation.l2_cap", "nan"))
    items, count = _items(run, "attack.", _ATTACK_LABELS), int(run.metrics["n_attacked"])
    # Runs from before there were others have scaled units, too.
    items = tuple(item for item in items if not (item[0].endswith("units") and item[1] == "scaled"))
    threat, bounded = _threat(items, run.params.get("attack._target_", ""), cap)
    return AttackSetting(run.attack, items, count, round(cap, 6), threat, bounded)


@cache
def _threat(items: Items, target: str, cap: float) -> tuple[str, bool]:
    """The threat in words, and whether it is the attack's own ball; asked once per setting of an attack."""
    settings = {f"attack.{key}": value for key, value in items}
    found = threat_of(settings | {"attack._target_": target, "evaluation.l2_cap": str(cap)})
    return (str(found[0]), found[1]) if found else ("", True)


def setup_label(runs: Sequence[TrackedRun]) -> str:
    """``exact kernel (support vectors) · tuned by accuracy``, from the runs of one setup."""
    kernel_runs = [run for run in runs if _has_expansion(run)]
    params = (kernel_runs or list(runs))[0].params
    words = []
    if kernel_runs:
        target = params["model.expansion._target_"].rsplit(".", 1)[-1]
        words.append(_EXPANSIONS.get(target, target))
        kernel = params.get("model.kernel._target_", "RBF").rsplit(".", 1)[-1]
        words += [f"{kernel} kernel"] if kernel != "RBF" else []
    else:
        words.append("models without an expansion")
    words += _remarks(params, _REMARKS, skip=_tuned((kernel_runs or list(runs))[0]))
    return " · ".join([*words, tune_label(params)])


def tune_label(params: dict[str, str]) -> str:
    """How C, the step size and, if it was not the paper's, the width were chosen."""
    if params.get("tune.enabled") != "True":
        given = [f"{name} = {params[f'model.{name}']}" for name in ("C", "step") if f"model.{name}" in params]
        return f"not tuned ({', '.join(given)})" if given else "not tuned"  # a model of a file has neither
    name, metric = params.get("tune.name", ""), params.get("tune.metric", "accuracy")
    widths = params.get("tune.width_scale", "None") != "None"
    if name in ("accuracy", "certified", "robust"):
        grid = ", width too" if widths else ""
    else:
        grid = "" if name == "paper" else f" over the {name} grid"
    if metric == "accuracy":
        return f"tuned by accuracy{grid}"
    radius, norm = params.get("tune.radius", "None"), params.get("tune.norm", "None")
    # Runs from before the threat was the attack's own were certified in L2 at tune.radius.
    if radius == "None":
        norm, radius = params.get("threat.norm", "?"), params.get("threat.epsilon", "?")
    place = f"{'L∞' if norm == 'linf' else 'L2'} {radius}"
    within = params.get("tune.within", "None")
    rule = "" if within == "None" else f" and at most {100 * float(within):g} points below the best accuracy"
    return f"tuned by {metric.replace('_', ' ')}{grid} at {place}{rule}"


def row_label(run: TrackedRun) -> str:
    """The model's name as the paper writes it, with what departs from the paper."""
    key = row_of(run)
    words = [model_name(key.model)]
    if not key.is_paper and key.epsilon is not None:
        words.append(f"ε = {key.epsilon:.4g}")
    table = _EXAMPLE_REMARKS if _has_expansion(run) else _ROW_REMARKS
    return ", ".join(words + _remarks(run.params, table, skip=_tuned(run)))


def _remarks(params: dict[str, str], table: tuple, skip: Sequence[str] = ()) -> list[str]:
    return [
        words.format(params[name])
        for name, usual, words in table
        if params.get(name) not in (None, *([usual] if isinstance(usual, str) else usual))
        and name.removeprefix("model.") not in skip
    ]


def _tuned(run: TrackedRun) -> tuple[str, ...]:
    """Model parameters that the grid or the data chose: results, not settings."""
    if "chosen" in run.params:
        return tuple(name.removeprefix("model.") for name in run.params["chosen"].split(",") if name)
    # Runs from before these were named.
    if run.params.get("tune.enabled") != "True":
        return ()
    widths = run.params.get("tune.width_scale", "None") != "None"
    return ("C", "step", *(("width_scale", "kernel.width_scale") if widths else ()))


def _has_expansion(run: TrackedRun) -> bool:
    return "model.expansion._target_" in run.params


def _items(run: TrackedRun, prefix: str, without: Sequence[str] = ()) -> Items:
    names = sorted(name.removeprefix(prefix) for name in run.params if name.startswith(prefix))
    return tuple((name, run.params[prefix + name]) for name in names if name not in without)
