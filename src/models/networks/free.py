"""Free adversarial training: Shafahi et al. (NeurIPS 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from models.networks.perturb import Ball
from models.networks.training import Network, Training, require_positive


@dataclass(frozen=True)
class Free(Training):
    """Every batch is replayed; one gradient serves the weights and the perturbation, which goes on with the next.

    Parameters
    ----------
    replays : int
        How often a batch is used in a row (the paper's m).
    """

    replays: int = 4

    name: ClassVar[str] = "free"

    def __post_init__(self) -> None:
        require_positive(replays=self.replays)

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        near, delta = ball.around(X), torch.zeros_like(X)
        for _ in range(self.replays):
            delta = delta.detach().requires_grad_()
            loss = cross_entropy(network(X + delta), y)
            yield loss  # its backward pass fills delta.grad beside the weights' gradients
            assert delta.grad is not None
            delta = near.project((delta + ball.epsilon * ball.direction(delta.grad)).detach())
