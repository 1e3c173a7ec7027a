"""Standard adversarial training: Madry, Makelov, Schmidt, Tsipras, Vladu (ICLR 2018)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from models.networks.perturb import Ball
from models.networks.training import Network, Training, require_positive


@dataclass(frozen=True)
class Standard(Training):
    """The cross-entropy at the worst point that PGD finds.

    Parameters
    ----------
    steps : int
        PGD steps, each of 2.5·ε/steps, from a random start.
    """

    steps: int = 10

    name: ClassVar[str] = "standard"

    def __post_init__(self) -> None:
        require_positive(steps=self.steps)

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        delta = ball.around(X).pgd(lambda Z: cross_entropy(network(Z), y, reduction="sum"), self.steps)
        yield cross_entropy(network(X + delta), y)
