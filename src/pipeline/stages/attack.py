"""Attack: make adversarial examples for (a fixed choice of) the test rows."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from omegaconf import DictConfig

from pipeline.cache import Entry
from pipeline.cache.entry import pack, unpack
from pipeline.data.rows import PART, choose_rows
from pipeline.errors import UserError
from pipeline.stages.base import Stage, plain
from pipeline.stages.build import build, build_attack

if TYPE_CHECKING:
    from pipeline.data import Dataset
    from pipeline.progress import Observer
    from pipeline.stages.train import Trained


@dataclass(frozen=True)
class Attacked:
    """The attack's result on ``rows`` of the test set; ``clean_wrong`` marks those misclassified beforehand."""

    result: Any
    rows: np.ndarray
    clean_wrong: np.ndarray
    seconds: float

    def to_entry(self, X_test: np.ndarray) -> Entry:
        """As a cache entry, with perturbations in the place of the examples."""
        arrays: dict[str, np.ndarray] = {}
        values, clean = pack(vars(self), arrays), X_test[self.rows]
        moved = {
            path: delta
            for path, array in arrays.items()
            if path.endswith("/examples") and (delta := perturbations(array, clean)) is not None
        }
        return Entry(values | {"perturbations": sorted(moved)}, arrays | moved)

    @classmethod
    def from_entry(cls, entry: Entry, X_test: np.ndarray) -> Attacked:
        """From a cache entry."""
        values = {name: value for name, value in entry.values.items() if name != "perturbations"}
        arrays = dict(entry.arrays)
        for path in entry.values["perturbations"]:
            arrays[path] = perturbed(X_test[arrays["/rows"]], arrays[path])
        return cls(**unpack(values, arrays, _result_classes()))


# Places after the binary point that are tried.
_ROUNDNESS = (20, 22, 23, 24, 25, 26, 28, 30, 33, 36)


def perturbations(examples: np.ndarray, clean: np.ndarray) -> np.ndarray | None:
    """What was added to the clean rows, float64, if adding it again gives the examples bit for bit; else None.

    An attack adds few different numbers (a step of a sign, nothing at all), but what is left of them after rounding
    differs from pixel to pixel. Of all numbers that give the same example the roundest is taken: few again.
    """
    if examples.shape != clean.shape or examples.dtype != clean.dtype:
        return None
    exact = examples.astype(np.float64) - clean
    delta, open_ = np.zeros_like(exact), exact != 0
    for bits in _ROUNDNESS:
        delta[open_] = np.rint(np.ldexp(exact[open_], bits)) * 2.0**-bits
        open_[open_] = perturbed(clean[open_], delta[open_]) != examples[open_]
    delta[open_] = exact[open_]
    return delta if perturbed(clean, delta).tobytes() == examples.tobytes() else None


def perturbed(clean: np.ndarray, delta: np.ndarray) -> np.ndarray:
    """The examples: the sum, rounded once."""
    return (clean.astype(np.float64) + delta).astype(clean.dtype)


def _result_classes() -> dict[str, type]:
    import attacks

    return {name: kind for name in dir(attacks) if isinstance(kind := getattr(attacks, name), type)}


class Attack(Stage):
    """Attack the trained model on at most ``evaluation.max_attacked`` (``max_attacked_costly``) test rows.

    With a trained surrogate among its needs, the examples are made against that.
    """

    name = "attack"
    result = Attacked

    def keep(self, result: Attacked, *inputs: Any) -> Entry:
        return result.to_entry(inputs[0].X_test)

    def restore(self, entry: Entry, *inputs: Any) -> Attacked:
        return Attacked.from_entry(entry, inputs[0].X_test)

    def settings(self) -> dict[str, Any]:
        return {"attack": plain(self.cfg.attack), "max_attacked": attack_limit(self.cfg), "seed": self.cfg.seed}

    def line(self, attacked: Attacked) -> str:
        chosen = attack_limit(self.cfg) is None and len(attacked.rows) == PART
        part = ", a stratified part: evaluation.max_attacked=… takes more" if chosen else ""
        return f"{len(attacked.rows)} test points{part}"

    def run(
        self, data: Dataset, trained: Trained, surrogate: Trained | None = None, observer: Observer | None = None
    ) -> Attacked:
        """Attack, and note which rows were wrong beforehand."""
        from attacks import Suite, Transfer, Unattackable

        rows = choose_rows(data.y_test, attack_limit(self.cfg))
        X, y = np.ascontiguousarray(data.X_test[rows]), data.y_test[rows]
        started = time.perf_counter()
        method = build_attack(self.cfg, data)
        if surrogate is not None and isinstance(method, Suite):
            raise UserError("model@surrogate: a suite cannot be transferred; choose one attack")
        if surrogate is not None:
            method = Transfer(method, surrogate.model)
        try:
            result = method(trained.model, X, y, observer=observer)
        except Unattackable as reason:
            raise UserError(f"attack={self.cfg.attack.name}: {reason}") from reason
        seconds = time.perf_counter() - started
        return Attacked(result, rows, trained.model.predict(X) != y, seconds)


def check_access(cfg: DictConfig, data: Dataset, model: Any) -> None:
    """Refuse, while there is no run yet, an attack that asks a fitted model for more than it answers."""
    from attacks import Unattackable, as_target

    ask = getattr(build_attack(cfg, data), "check_access", None)
    if ask is None or cfg.surrogate is not None:
        return
    try:
        ask(as_target(model), model)
    except Unattackable as reason:
        raise UserError(f"attack={cfg.attack.name}: {reason}") from reason


def attack_limit(cfg: DictConfig) -> int | None:
    """How many test rows this attack gets: the lower of the two limits of ``evaluation`` that apply to it."""
    most, costly = cfg.evaluation.max_attacked, cfg.evaluation.max_attacked_costly
    if costly is None or not getattr(build(cfg.attack), "costly", False):
        return most
    return costly if most is None else min(most, costly)
