"""Ways of training: an object turns a batch into losses, and the weights take a step after each of them."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy, kl_div, log_softmax, softmax

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


@dataclass(frozen=True)
class Natural(Training):
    """Cross-entropy on clean rows."""

    name: ClassVar[str] = "natural"

    def losses(self, network: Network, X: Tensor, y: Tensor, ball: Ball) -> Iterator[Tensor]:
        yield cross_entropy(network(X), y)


@dataclass(frozen=True)
class Standard(Training):
    """The cross-entropy at the worst point that PGD finds.

    Standard adversarial training: Madry, Makelov, Schmidt, Tsipras, Vladu (ICLR 2018).

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


@dataclass(frozen=True)
class MART(Training):
    """Boosted cross-entropy at the adversarial point, plus a KL term that counts most where the clean row is wrong.

    Misclassification-aware adversarial training: Wang, Zou, Yi, Bailey, Ma, Gu (ICLR 2020).

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


@dataclass(frozen=True)
class Free(Training):
    """Every batch is replayed; one gradient serves the weights and the perturbation, which goes on with the next.

    Free adversarial training: Shafahi et al. (NeurIPS 2019).

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


@dataclass(frozen=True)
class FGSMRS(Training):
    """One step from a random start, a quarter longer than the ball's radius.

    Fast adversarial training, FGSM from a random start: Wong, Rice, Kolter (ICLR 2020).

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
