"""Nesterov's gradient descent over one cycle: the learning rate rises and falls, the momentum falls and rises."""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

# The functional form: the first object of torch.optim imports torch's compiler, a second or two of a first training.
from torch.optim.sgd import sgd

# Adversarial losses have rare, very long gradients at large learning rates.
_LONGEST = 5.0


class Descent:
    """Steps for `parameters`, as many as `total`; as ``torch.optim.SGD`` under ``OneCycleLR`` with linear phases."""

    def __init__(self, parameters: Iterable[Tensor], learning_rate: float, weight_decay: float, total: int):
        self.parameters = list(parameters)
        self.velocities: list[Tensor | None] = [None] * len(self.parameters)
        self.weight_decay = weight_decay
        self.step_ = 0
        # Knots: the first two fifths of the steps, then the rest.
        self.knots = (0.0, max(0.4 * (total + 1) - 1, 1e-9), float(total))
        self.learning_rates = (learning_rate / 25, learning_rate, learning_rate / 250_000)

    def step(self, loss: Tensor) -> None:
        """One step down the gradient of the loss."""
        for parameter in self.parameters:
            parameter.grad = None
        loss.backward()
        nn.utils.clip_grad_norm_(self.parameters, _LONGEST)
        gradients = [parameter.grad for parameter in self.parameters if parameter.grad is not None]
        rate, momentum = (
            float(np.interp(self.step_, self.knots, values)) for values in (self.learning_rates, (0.95, 0.85, 0.95))
        )
        with torch.no_grad():
            sgd(
                self.parameters, gradients, self.velocities,
                lr=rate, momentum=momentum, weight_decay=self.weight_decay, dampening=0.0, nesterov=True,
                maximize=False, foreach=False,
            )  # fmt: skip
        self.step_ += 1
