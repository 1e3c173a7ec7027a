"""Misclassification-aware adversarial training: Wang, Zou, Yi, Bailey, Ma, Gu (ICLR 2020)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, log_softmax, softmax

from models.networks.perturb import Ball
from models.networks.training import Network, Training, require_positive


@dataclass(frozen=True)
class MART(Training):
    """Boosted cross-entropy at the adversarial point, plus a KL term that counts most where the clean row is wrong.

    Parameters
    ----------
    steps : int
        PGD steps.
    beta : float
        Weight of the KL term.
    """

    steps: int = 10
    beta: float = 5.0

    name: ClassVar[str] = "mart"

    def __post_init__(self) -> None:
        require_positive(steps=self.steps, beta=self.beta)

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        delta = ball.around(X).pgd(lambda Z: cross_entropy(network(Z), y, reduction="sum"), self.steps)
        clean, attacked = softmax(network(X), dim=1), log_softmax(network(X + delta), dim=1)
        own = y[:, None]
        # -log p_y - log(1 - max over other classes of p): with two classes the second is -log p_y again.
        rivals = attacked.exp().scatter(1, own, 0.0)
        boosted = -attacked.gather(1, own)[:, 0] - torch.log1p(-rivals.amax(dim=1).clamp(max=1 - 1e-6))
        divergence = (clean * (clean.clamp(min=1e-12).log() - attacked)).sum(dim=1)
        yield (boosted + self.beta * divergence * (1 - clean.gather(1, own)[:, 0])).mean()
