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

    def project(self, delta: Tensor, X: Tensor) -> Tensor:
        """Into the ball, then into the box: x lies in both, so the result does too."""
        if self.norm == "linf":
            delta = delta.clamp(-self.epsilon, self.epsilon)
        else:
            delta = delta * (self.epsilon / delta.norm(dim=1, keepdim=True).clamp(min=1e-12)).clamp(max=1.0)
        if self.box is None:
            return delta
        low, high = X.clamp(max=self.box[0]), X.clamp(min=self.box[1])
        return torch.maximum(torch.minimum(X + delta, high), low) - X

    def direction(self, gradient: Tensor) -> Tensor:
        """Steepest ascent of unit size: the sign, or the normalised gradient."""
        if self.norm == "linf":
            return gradient.sign()
        return gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)

    def start(self, X: Tensor) -> Tensor:
        """A random perturbation: uniform in the cube, or on a random ray."""
        if self.norm == "linf":
            return self.project(torch.empty_like(X).uniform_(-self.epsilon, self.epsilon), X)
        return self.project(self.epsilon * self.direction(torch.randn_like(X)) * torch.rand(len(X), 1), X)

    def ascend(self, loss: Loss, X: Tensor, delta: Tensor, step: float) -> Tensor:
        """One step of length `step` up the loss of X + delta."""
        delta = delta.detach().requires_grad_()
        (gradient,) = torch.autograd.grad(loss(X + delta), delta)
        return self.project((delta + step * self.direction(gradient)).detach(), X)

    def pgd(self, loss: Loss, X: Tensor, steps: int) -> Tensor:
        """K steps of 2.5·ε/K from a random start (Madry et al. 2018)."""
        delta = self.start(X)
        for _ in range(steps):
            delta = self.ascend(loss, X, delta, 2.5 * self.epsilon / steps)
        return delta
