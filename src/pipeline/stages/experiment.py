"""An experiment: its stages, known by their keys before any of them runs, and run one after the other."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, open_dict

from pipeline.cache import StageStore
from pipeline.data import Dataset, load_dataset
from pipeline.progress import Observer, watch
from pipeline.stages.attack import Attack, Attacked
from pipeline.stages.base import Stage
from pipeline.stages.build import staged_data
from pipeline.stages.certify import Certify
from pipeline.stages.evaluate import Evaluate, Evaluated
from pipeline.stages.train import Train, Trained
from pipeline.stages.tune import Tune, Tuned

log = logging.getLogger(__name__)


class Data(Stage):
    """The dataset, whose key is the fingerprint of its content. :mod:`pipeline.data` keeps it, not the stage store."""

    name = "data"
    result = Dataset
    stored = False

    def __init__(self, cfg: DictConfig, fingerprint: str):
        super().__init__(cfg)
        self.key = fingerprint

    def settings(self) -> dict[str, Any]:
        return {}

    def line(self, data: Dataset) -> None:
        return None

    def run(self, observer: Observer | None = None) -> Dataset:
        """Load what the other keys were computed for; other content is refused."""
        return staged_data(self.cfg, load_dataset(self.cfg.dataset, progress=observer, planned=self.key))


@dataclass(frozen=True)
class Results:
    """The results of all stages of one experiment and which of them were reused."""

    data: Dataset
    tuned: Tuned
    trained: Trained
    attacked: Attacked
    evaluated: Evaluated
    reused: list[str]


@dataclass(frozen=True)
class Experiment:
    """data → tune → train → certify, attack → evaluate; a surrogate is tuned and trained like the model itself."""

    data: Data
    tune: Tune
    train: Train
    certify: Certify
    attack: Attack
    evaluate: Evaluate
    surrogate: Train | None = None

    @classmethod
    def of(cls, cfg: DictConfig, fingerprint: str) -> Experiment:
        """The stages of a configuration on data with this fingerprint."""
        data = Data(cfg, fingerprint)
        tune = Tune(cfg, data)
        train = Train(cfg, data, tune)
        certify = Certify(cfg, data, tune, train)
        surrogate = None
        if cfg.surrogate is not None:
            other = surrogate_config(cfg)
            surrogate = Train(other, data, Tune(other, data))
        attack = Attack(cfg, data, train, *([surrogate] if surrogate else []))
        evaluate = Evaluate(cfg, data, tune, train, certify, attack)
        return cls(data, tune, train, certify, attack, evaluate, surrogate)

    @property
    def signature(self) -> str:
        """The identity of the whole run: the last key."""
        return self.evaluate.key

    @property
    def entries(self) -> dict[str, str]:
        """Stage → key of everything the run may load or leave behind."""
        return {stage.name: stage.key for stage in (self.tune, self.train, self.certify, self.attack, self.evaluate)}

    def run(self, store: StageStore, data: Dataset | None = None) -> Results:
        """Run what is not in the store yet, with progress and a line per stage; ``data`` if it is loaded already."""
        chain = _Chain(store)
        if data is not None:
            chain.know(self.data, data)
        evaluated = chain.result(self.evaluate)
        loaded, tuned, trained, attacked = map(chain.result, (self.data, self.tune, self.train, self.attack))
        return Results(loaded, tuned, trained, attacked, evaluated, chain.reused)


def surrogate_config(cfg: DictConfig) -> DictConfig:
    """The experiment that trains the surrogate: the same data, tuning and seed, another model."""
    other = cfg.copy()
    with open_dict(other):
        other.model, other.surrogate = cfg.surrogate, None
    return other


class _Chain:
    """Results of stages, each needed one first; loaded when it was computed before."""

    def __init__(self, store: StageStore):
        self.store, self.reused = store, list[str]()
        self._results: dict[tuple[str, str], Any] = {}

    def result(self, stage: Stage) -> Any:
        at = (stage.name, stage.key)
        if at not in self._results:
            self.know(stage, self._get(stage, [self.result(need) for need in stage.needs]))
        return self._results[at]

    def know(self, stage: Stage, result: Any) -> None:
        self._results[stage.name, stage.key] = result
        for message in getattr(result, "notes", getattr(result, "messages", [])):
            log.info("  note    %s", message)

    def _get(self, stage: Stage, inputs: list[Any]) -> Any:
        fresh: list[Any] = []

        def compute() -> Any:
            with watch(stage.name) as observer:
                fresh.append(stage.run(*inputs, observer=observer))
            return stage.keep(fresh[0], *inputs) if stage.stored else None

        if stage.stored:
            entry, was_reused = self.store.get_or_compute(stage.name, stage.key, compute)
            if was_reused:
                self.reused.append(stage.name)
        else:
            compute()
        result = fresh[0] if fresh else stage.restore(entry, *inputs)
        words = stage.line(result)
        if words is not None:
            how = f"{result.seconds:.1f} s" if fresh else "reused"
            log.info("  %-7s %-8s %s", stage.name, how, words)
        return result
