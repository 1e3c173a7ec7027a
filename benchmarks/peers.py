"""The same fitted function for every side: a torch module for foolbox, and the data all attack benchmarks share."""

import sys
import types

import foolbox
import numpy as np
import torch

from models import AdvSVM
from pipeline.data import load_dataset


class TorchRBF(torch.nn.Module):
    """An exact-expansion AdvSVM as the two logits (-f/2, f/2), differentiated by autograd."""

    def __init__(self, model: AdvSVM) -> None:
        super().__init__()
        vectors, weights = model.expansion_.live()
        self.vectors, self.weights, self.gamma = vectors.float(), weights[:, 0].float(), float(model.gamma_)
        self.norms = (self.vectors**2).sum(1)

    def forward(self, X: torch.Tensor) -> torch.Tensor:
        squared = (X * X).sum(1, keepdim=True) + self.norms - 2.0 * (X @ self.vectors.T)
        scores = torch.exp(-self.gamma * squared) @ self.weights
        return torch.stack([-0.5 * scores, 0.5 * scores], dim=1)


def exact_mnist_model():
    """MNIST 1 vs 7 and the exact expansion fitted to it: data, model, foolbox's view of the model."""
    data = load_dataset("mnist_1v7")
    model = AdvSVM(expansion="support_vectors", C=8.0, step=0.0625).fit(data.X_train, data.y_train)
    wrapped = foolbox.PyTorchModel(TorchRBF(model).eval(), bounds=(0, 1), device="cpu")
    return data, model, wrapped


def to_foolbox(X: np.ndarray, y: np.ndarray) -> tuple[torch.Tensor, torch.Tensor]:
    """Rows and class indices as tensors."""
    return torch.from_numpy(np.ascontiguousarray(X)), torch.from_numpy((y > 0).astype(np.int64))


def adv_lib_attacks():
    """adv-lib's attacks, or None: ``pip install --no-deps adv-lib==0.2.8``."""
    # It asks for torchvision, for a distance that none of these attacks uses, and for a plotting client.
    for name in ("torchvision", "visdom"):
        try:
            __import__(name)
        except ImportError:
            stand_in = sys.modules[name] = types.ModuleType(name)
            stand_in.models = stand_in.Visdom = None
    try:
        from adv_lib import attacks
        from adv_lib.attacks.auto_pgd import apgd
    except ImportError:
        return None
    attacks.apgd = apgd
    return attacks
