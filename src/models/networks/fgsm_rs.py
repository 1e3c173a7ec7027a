"""Fast adversarial training, FGSM from a random start: Wong, Rice, Kolter (ICLR 2020)."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn.functional import cross_entropy

from models.networks.perturb import Ball
from models.networks.training import Network, Training, require_positive


@dataclass(frozen=True)
class FGSMRS(Training):
    """One step from a random start, a quarter longer than the ball's radius.

    Parameters
    ----------
    step : float
        Length of the step, in units of ε.
    """

    step: float = 1.25

    name: ClassVar[str] = "fgsm_rs"

    def __post_init__(self) -> None:
        require_positive(step=self.step)

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        def loss(Z: Tensor) -> Tensor:
            return cross_entropy(network(Z), y, reduction="sum")

        near = ball.around(X)
        delta = near.ascend(loss, near.start(), self.step * ball.epsilon)
        yield cross_entropy(network(X + delta), y)
