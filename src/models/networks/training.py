"""Ways of training: an object turns a batch into losses, and the weights take a step after each of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from torch import Tensor

from models.networks.perturb import Ball

Network = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Training(ABC):
    """Settings of a way of training. A subclass with a `name` is known by it from then on."""

    name: ClassVar[str]
    known: ClassVar[dict[str, type["Training"]]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        Training.known[cls.name] = cls

    @abstractmethod
    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        """Losses of a batch, one after the other.

        Parameters
        ----------
        network : callable
            Rows (n, d) to logits (n, 2), with the weights of the moment.
        X : tensor of shape (n, d)
        y : int tensor of shape (n,)
            0 or 1.
        ball : Ball
            The perturbations to train against.
        """

    @property
    def replays(self) -> int:
        """How many losses `losses` gives for one batch."""
        return 1

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON; `training_from_dict` restores it."""
        return {"name": self.name, **asdict(self)}


def as_training(training: str | Training) -> Training:
    """A training object from its name, or the object itself."""
    if not isinstance(training, str):
        return training
    if training not in Training.known:
        raise ValueError(f"training={training!r} is not one of {', '.join(sorted(Training.known))}")
    return Training.known[training]()


def training_from_dict(settings: dict[str, Any]) -> Training:
    """Inverse of `Training.to_dict`."""
    return Training.known[settings["name"]](**{key: value for key, value in settings.items() if key != "name"})


def require_positive(**settings: float) -> None:
    """Raise for the first setting that is not positive."""
    for name, value in settings.items():
        if not value > 0:
            raise ValueError(f"training.{name} must be positive, got {value!r}")
