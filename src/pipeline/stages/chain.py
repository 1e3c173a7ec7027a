"""The stages one after the other, each loaded when it was computed before."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hydra.utils import get_class
from omegaconf import DictConfig

from pipeline.cache import StageStore
from pipeline.data import Dataset
from pipeline.progress import watch
from pipeline.stages.attack import Attacked, attack
from pipeline.stages.certify import Certified, certify
from pipeline.stages.evaluate import Evaluated, evaluate
from pipeline.stages.plan import Plan, surrogate_config
from pipeline.stages.train import Trained, train
from pipeline.stages.tune import Tuned, tune

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Results:
    """The results of all stages of one experiment and which of them were reused."""

    data: Dataset
    tuned: Tuned
    trained: Trained
    attacked: Attacked
    evaluated: Evaluated
    reused: list[str]


class Chain:
    """tune → train → certify → attack → evaluate on loaded data, with progress and a line per stage."""

    def __init__(self, cfg: DictConfig, data: Dataset, stages: StageStore):
        self.cfg, self.data, self.stages = cfg, data, stages
        self.reused: list[str] = []

    def run(self, keys: Plan) -> Results:
        """Run what is not in the store yet."""
        cfg, data = self.cfg, self.data
        tuned, trained = self._model(cfg, keys)
        for message in [*data.notes, *tuned.messages, *trained.messages]:
            log.info("  note    %s", message)
        certified = self._stage(
            "certify",
            keys.certify,
            lambda observer: certify(cfg, data, tuned, trained),
            Certified.from_entry,
        )
        self._say("certify", certified.seconds)
        surrogate = None
        if keys.surrogate is not None:
            log.info("  surrogate %s", cfg.surrogate.name)
            _, surrogate = self._model(surrogate_config(cfg), keys.surrogate)
        attacked = self._stage(
            "attack",
            keys.attack,
            lambda observer: attack(cfg, data, trained, observer, surrogate),
            Attacked.from_entry,
        )
        self._say("attack", attacked.seconds, f"{len(attacked.rows)} test points")
        evaluated = self._stage(
            "evaluate",
            keys.evaluate,
            lambda observer: evaluate(cfg, data, tuned, trained, certified, attacked),
            Evaluated.from_entry,
        )
        return Results(data, tuned, trained, attacked, evaluated, self.reused)

    def _model(self, cfg: DictConfig, keys: Plan) -> tuple[Tuned, Trained]:
        """Tune and train the model of a configuration."""
        tuned = Tuned()
        if cfg.tune.enabled:
            tuned = self._stage("tune", keys.tune, lambda observer: tune(cfg, self.data, observer), Tuned.from_entry)
            self._say("tune", tuned.seconds, ", ".join(f"{k} = {v:g}" for k, v in tuned.best.items()))
        model_class = get_class(cfg.model._target_)
        trained = self._stage(
            "train",
            keys.train,
            lambda observer: train(cfg, self.data, tuned, observer),
            lambda entry: Trained.from_entry(entry, model_class),
        )
        self._say("train", trained.seconds)
        return tuned, trained

    def _stage(self, name: str, key: str, compute: Callable[[Any], Any], restore: Callable[[Any], Any]) -> Any:
        """Load the stage or compute it under a progress display; what was computed is used as it is."""
        fresh: list[Any] = []

        def build() -> Any:
            with watch(name) as observer:
                fresh.append(compute(observer))
            return fresh[0].to_entry()

        entry, was_reused = self.stages.get_or_compute(name, key, build)
        if was_reused:
            self.reused.append(name)
        return fresh[0] if fresh else restore(entry)

    def _say(self, stage: str, seconds: float, more: str = "") -> None:
        how = "reused" if stage in self.reused else f"{seconds:.1f} s"
        log.info("  %-7s %-8s %s", stage, how, more)
