"""Training on clean rows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from models.networks.perturb import Ball
from models.networks.training import Network, Training


@dataclass(frozen=True)
class Natural(Training):
    """Cross-entropy on clean rows."""

    name: ClassVar[str] = "natural"

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        yield cross_entropy(network(X), y)
