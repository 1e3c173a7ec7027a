"""Perturbations inside training: a ball in L∞ or L2 around a batch, and steps within it."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Loss = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Ball:
    """Perturbations of size `epsilon` that stay in the box; a clean value outside the box may stay where it is."""

    norm: str
    epsilon: float
    box: tuple[float, float] | None

    def around(self, X: Tensor) -> "Neighbourhood":
        """The perturbations of the rows of X."""
        reach = torch.full_like(X, self.epsilon if self.norm == "linf" else float("inf"))
        if self.box is None:
            return Neighbourhood(self, X, -reach, reach)
        low, high = X.clamp(max=self.box[0]) - X, X.clamp(min=self.box[1]) - X
        return Neighbourhood(self, X, torch.maximum(low, -reach), torch.minimum(high, reach))

    def direction(self, gradient: Tensor) -> Tensor:
        """Steepest ascent of unit size: the sign, or the normalised gradient."""
        if self.norm == "linf":
            return gradient.sign()
        return gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)


@dataclass(frozen=True)
class Neighbourhood:
    """The perturbations of a batch, with the limits of each of its values: steps are many, limits found once."""

    ball: Ball
    X: Tensor
    low: Tensor
    high: Tensor

    def project(self, delta: Tensor) -> Tensor:
        """Into the ball, then into the box: 0 lies in both, so the result does too."""
        if self.ball.norm == "l2":
            delta = delta * (self.ball.epsilon / delta.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        return delta.clamp(self.low, self.high)

    def start(self) -> Tensor:
        """A random perturbation: uniform in the cube, or on a random ray."""
        epsilon = self.ball.epsilon
        if self.ball.norm == "linf":
            return self.project(torch.empty_like(self.X).uniform_(-epsilon, epsilon))
        ray = self.ball.direction(torch.randn_like(self.X))
        return self.project(epsilon * ray * torch.rand(len(self.X), 1).to(self.X))

    def ascend(self, loss: Loss, delta: Tensor, step: float) -> Tensor:
        """One step of length `step` up the loss of X + delta."""
        moved = (self.X + delta).requires_grad_()
        (gradient,) = torch.autograd.grad(loss(moved), moved)
        return self.project(delta + step * self.ball.direction(gradient))

    def pgd(self, loss: Loss, steps: int) -> Tensor:
        """K steps of 2.5·ε/K from a random start (Madry et al. 2018)."""
        delta = self.start()
        for _ in range(steps):
            delta = self.ascend(loss, delta, 2.5 * self.ball.epsilon / steps)
        return delta
