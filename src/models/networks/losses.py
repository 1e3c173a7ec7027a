"""Ways of training: an object turns a batch into losses, and the weights take a step after each of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

from models.descent import room
from models.limits import POSITIVE
from models.registry import Registered
from models.threat import Threat

Network = Callable[[Tensor], Tensor]
Loss = Callable[[Tensor], Tensor]


class Neighbourhood:
    """The perturbations δ of a batch: X + δ in the ball and the box around X; their limits are found once.

    A clean value outside the box may stay where it is.
    """

    def __init__(self, threat: Threat, X: Tensor):
        self.norm, self.radius, self.X = threat.norm, threat.epsilon, X
        self.fall, self.rise = room(threat, X)

    def direction(self, gradient: Tensor) -> Tensor:
        """Steepest ascent of unit size: the sign, or the normalised gradient."""
        if self.norm == "linf":
            return gradient.sign()
        return gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def project(self, delta: Tensor) -> Tensor:
        """Into the threat, then into the box: 0 lies in both, so the result does too."""
        if self.norm == "l2":
            delta = delta * (self.radius / delta.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        return delta.clamp(-self.fall, self.rise)

    def start(self) -> Tensor:
        """A random perturbation: uniform in the cube, or on a random ray."""
        if self.norm == "linf":
            return self.project(torch.empty_like(self.X).uniform_(-self.radius, self.radius))
        ray = self.direction(torch.randn_like(self.X))
        return self.project(self.radius * ray * torch.rand(len(self.X), 1).to(self.X))

    def ascend(self, loss: Loss, delta: Tensor, step: float) -> Tensor:
        """One step of length `step` up the loss of X + delta."""
        moved = (self.X + delta).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(moved), moved)
        return self.project(delta + step * self.direction(gradient))

    def pgd(self, loss: Loss, steps: int) -> Tensor:
        """K steps of 2.5·ε/K from a random start (Madry et al. 2018)."""
        delta = self.start()
        for _ in range(steps):
            delta = self.ascend(loss, delta, 2.5 * self.radius / steps)
        return delta


@dataclass(frozen=True)
class Training(Registered, ABC, family="training"):
    """Settings of a way of training. A subclass with a `name` is known by it from then on."""

    formerly: ClassVar[str | None] = "models.networks.training"

    @abstractmethod
    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        """Losses of a batch, one after the other.

        Parameters
        ----------
        network : callable
            Rows (n, d) to logits (n, 2), with the weights of the moment.
        X : tensor of shape (n, d)
        y : int tensor of shape (n,)
            0 or 1.
        threat : Threat
            The perturbations to train against.
        """

    @property
    def replays(self) -> int:
        """How many losses `losses` gives for one batch."""
        return 1


def _summed_loss(network: Network, y: Tensor) -> Loss:
    """The cross-entropy of all rows: each has its own gradient, whatever the size of the batch."""
    return lambda Z: cross_entropy(network(Z), y, reduction="sum")


@dataclass(frozen=True)
class Natural(Training):
    """Cross-entropy on clean rows."""

    name: ClassVar[str] = "natural"

    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        yield cross_entropy(network(X), y)


@dataclass(frozen=True)
class Standard(Training):
    """The cross-entropy at the worst point that PGD finds: Madry, Makelov, Schmidt, Tsipras, Vladu (ICLR 2018).

    Parameters
    ----------
    steps : int
        PGD steps, each of 2.5·ε/steps, from a random start.
    """

    steps: Annotated[int, POSITIVE] = 10

    name: ClassVar[str] = "standard"

    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        delta = Neighbourhood(threat, X).pgd(_summed_loss(network, y), self.steps)
        yield cross_entropy(network(X + delta), y)


@dataclass(frozen=True)
class FGSMRS(Training):
    """One step from a random start, a quarter longer than the threat's radius: Wong, Rice, Kolter (ICLR 2020).

    Parameters
    ----------
    step : float
        Length of the step, in units of ε.
    """

    step: Annotated[float, POSITIVE] = 1.25

    name: ClassVar[str] = "fgsm_rs"

    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        near = Neighbourhood(threat, X)
        delta = near.ascend(_summed_loss(network, y), near.start(), self.step * threat.epsilon)
        yield cross_entropy(network(X + delta), y)


@dataclass(frozen=True)
class Free(Training):
    """Every batch is replayed; one gradient serves the weights and the perturbation, which goes on with the next.

    Shafahi et al. (NeurIPS 2019).

    Parameters
    ----------
    replays : int
        How often a batch is used in a row (the paper's m).
    """

    replays: Annotated[int, POSITIVE] = 4

    name: ClassVar[str] = "free"

    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        near, delta = Neighbourhood(threat, X), torch.zeros_like(X)
        for _ in range(self.replays):
            delta = delta.detach().requires_grad_()
            loss = cross_entropy(network(X + delta), y)
            yield loss  # its backward pass fills delta.grad beside the weights' gradients
            assert delta.grad is not None
            delta = near.project((delta + threat.epsilon * near.direction(delta.grad)).detach())


@dataclass(frozen=True)
class MART(Training):
    """Boosted cross-entropy at the adversarial point, plus a KL term that counts most where the clean row is wrong.

    Misclassification-aware: Wang, Zou, Yi, Bailey, Ma, Gu (ICLR 2020).

    Parameters
    ----------
    steps : int
        PGD steps.
    beta : float
        Weight of the KL term.
    """

    steps: Annotated[int, POSITIVE] = 10
    beta: Annotated[float, POSITIVE] = 5.0

    name: ClassVar[str] = "mart"

    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        delta = Neighbourhood(threat, X).pgd(_summed_loss(network, y), self.steps)
        clean, attacked = softmax(network(X), dim=1), log_softmax(network(X + delta), dim=1)
        own = y[:, None]
        # -log p_y - log(1 - max over other classes of p): with two classes the second is -log p_y again.
        rivals = attacked.exp().scatter(1, own, 0.0)
        boosted = -attacked.gather(1, own)[:, 0] - torch.log1p(-rivals.amax(dim=1).clamp(max=1 - 1e-6))
        divergence = (clean * (clean.clamp(min=1e-12).log() - attacked)).sum(dim=1)
        yield (boosted + self.beta * divergence * (1 - clean.gather(1, own)[:, 0])).mean()


@dataclass(frozen=True)
class VAT(Training):
    """Cross-entropy on clean rows, plus how far the prediction moves in the direction that moves it most.

    Virtual adversarial training: Miyato, Maeda, Koyama, Ishii (TPAMI 2019).

    Parameters
    ----------
    power_iterations : int
        Towards the dominant direction of the divergence's Hessian.
    xi : float
        Length of the trial step in them.
    weight : float
        Of the divergence.
    """

    power_iterations: Annotated[int, POSITIVE] = 1
    xi: Annotated[float, POSITIVE] = 1e-2
    weight: Annotated[float, POSITIVE] = 1.0

    name: ClassVar[str] = "vat"

    def losses(self, network: Network, X: Tensor, y: Tensor, threat: Threat) -> Iterator[Tensor]:
        logits = network(X)
        target = log_softmax(logits.detach(), dim=1)

        def divergence(Z: Tensor) -> Tensor:
            return kl_div(log_softmax(network(Z), dim=1), target, reduction="none", log_target=True).sum(dim=1)

        direction = torch.randn_like(X)
        for _ in range(self.power_iterations):
            trial = (self.xi * direction / direction.norm(dim=1, keepdim=True)).requires_grad_()
            (direction,) = torch.autograd.grad(divergence(X + trial).sum(), trial)
            direction = direction + 1e-12 * torch.randn_like(X)  # a flat divergence has no direction: any will do
        near = Neighbourhood(threat, X)
        delta = near.project(threat.epsilon * near.direction(direction))
        yield cross_entropy(logits, y) + self.weight * divergence(X + delta).mean()
