"""Virtual adversarial training: Miyato, Maeda, Koyama, Ishii (TPAMI 2019)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax

from models.networks.perturb import Ball
from models.networks.training import Network, Training, require_positive


@dataclass(frozen=True)
class VAT(Training):
    """Cross-entropy on clean rows, plus how far the prediction moves in the direction that moves it most.

    Parameters
    ----------
    power_iterations : int
        Towards the dominant direction of the divergence's Hessian.
    xi : float
        Length of the trial step in them.
    weight : float
        Of the divergence.
    """

    power_iterations: int = 1
    xi: float = 1e-2
    weight: float = 1.0

    name: ClassVar[str] = "vat"

    def __post_init__(self) -> None:
        require_positive(power_iterations=self.power_iterations, xi=self.xi, weight=self.weight)

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        logits = network(X)
        target = log_softmax(logits.detach(), dim=1)

        def divergence(Z: Tensor) -> Tensor:
            return kl_div(log_softmax(network(Z), dim=1), target, reduction="none", log_target=True).sum(dim=1)

        direction = torch.randn_like(X)
        for _ in range(self.power_iterations):
            trial = (self.xi * direction / direction.norm(dim=1, keepdim=True)).requires_grad_()
            (direction,) = torch.autograd.grad(divergence(X + trial).sum(), trial)
            direction = direction + 1e-12 * torch.randn_like(X)  # a flat divergence has no direction: any will do
        delta = ball.around(X).project(ball.epsilon * ball.direction(direction))
        yield cross_entropy(logits, y) + self.weight * divergence(X + delta).mean()
