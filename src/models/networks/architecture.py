"""The networks: small and plain, so that the same interval arithmetic goes through every layer.

28 × 28 pictures: two convolutions of stride 2 and a hidden layer. 32 × 32 × 3: three convolutions and a hidden layer.
Everything else (tables, very small pictures): two hidden layers. No batch statistics, no dropout: the function that is
attacked is the function that was trained.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np
import torch
from torch import Tensor, nn

from models.certificates.contest import Quick
from models.certificates.region import Region

# Pictures with a shorter side have nothing for two strides of 2 to look at.
_SMALLEST_SIDE = 16
# Rows whose intervals are followed at once.
_ROWS = 256


class Standardise(nn.Module):
    """Flat rows to centred inputs of the first layer: (x - mean) / scale, then the shape of a picture if it is one."""

    mean: Tensor
    scale: Tensor

    def __init__(self, mean: float, scale: float, shape: Sequence[int] | None):
        super().__init__()
        self.register_buffer("mean", torch.tensor(float(mean)))
        self.register_buffer("scale", torch.tensor(float(scale)))
        self.shape = tuple(shape) if shape is not None else None

    def forward(self, x: Tensor) -> Tensor:
        """Rows (n, d) to (n, d), or (n, channels, height, width)."""
        return self.arrange((x - self.mean.to(x.dtype)) / self.scale.to(x.dtype))

    def arrange(self, x: Tensor) -> Tensor:
        """Rows to pictures with the channels first."""
        if self.shape is None:
            return x
        pictures = x.reshape(len(x), *self.shape)
        return pictures if _channels_first(self.shape) else pictures.permute(0, 3, 1, 2)


class FirstConvolution(nn.Conv2d):
    """A 4 × 4 convolution of stride 2 and padding 1, computed as one of 2 × 2 and stride 1 on blocks of 2 × 2 pixels.

    The same weights and, up to rounding, the same values; but the gradient by a picture with one or three channels,
    which adversarial training asks for in every step, takes less than a third of the time.
    """

    def forward(self, x: Tensor) -> Tensor:
        """Pictures (n, channels, height, width) to (n, filters, height // 2, width // 2)."""
        filters, channels = self.weight.shape[:2]
        # Row 2i + r of the filter meets row r of block i; likewise for columns.
        blocks = self.weight.reshape(filters, channels, 2, 2, 2, 2).permute(0, 1, 3, 5, 2, 4)
        # The last row of zeros beneath an odd number of rows meets no filter.
        padded = nn.functional.pad(x, (1, 1 - x.shape[3] % 2, 1, 1 - x.shape[2] % 2))
        pixels = nn.functional.pixel_unshuffle(padded, 2)
        return nn.functional.conv2d(pixels, blocks.reshape(filters, 4 * channels, 2, 2), self.bias)


def _channels_first(shape: tuple[int, ...]) -> bool:
    return shape[0] <= shape[2]


def build_network(n_features: int, image_shape: Sequence[int] | None, mean: float, scale: float) -> nn.Sequential:
    """The network for rows of `n_features` values; two outputs, one per class.

    `image_shape` is (height, width), with the channels before or after them if there are any. With the `mean` and
    `scale` of the training values the first layer sees mean 0 and deviation 1.
    """
    shape = None if image_shape is None else tuple(int(side) for side in image_shape)
    if shape is not None and prod(shape) != n_features:
        raise ValueError(f"image_shape {shape} has {prod(shape)} values, the rows have {n_features}")
    picture = (1, *shape) if shape is not None and len(shape) == 2 else shape
    if picture is None or len(picture) != 3 or sorted(picture)[1] < _SMALLEST_SIDE:
        hidden = [nn.Linear(n_features, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 2)]
        return nn.Sequential(Standardise(mean, scale, None), *hidden)
    channels, height, width = picture if _channels_first(picture) else (picture[2], *picture[:2])
    widths = [16, 32] if channels == 1 else [16, 32, 64]
    layers: list[nn.Module] = [Standardise(mean, scale, picture)]
    for place, filters in enumerate(widths):
        convolution = FirstConvolution if place == 0 else nn.Conv2d
        layers += [convolution(channels, filters, kernel_size=4, stride=2, padding=1), nn.ReLU()]
        channels, height, width = filters, height // 2, width // 2
    layers += [nn.Flatten(), nn.Linear(channels * height * width, 128), nn.ReLU(), nn.Linear(128, 2)]
    return nn.Sequential(*layers)


@dataclass(frozen=True)
class IntervalForm:
    """The difference of the logits as ``models.certificates`` asks for it: positive all over a region, or not known."""

    network: nn.Sequential
    stages: ClassVar[tuple[()]] = ()

    @torch.no_grad()
    def quick(self, X: np.ndarray, signs: np.ndarray) -> Quick:
        """Margins, shape (n,), and where interval arithmetic proves that they stay positive."""
        logits = self.network(torch.from_numpy(X).to(next(self.network.parameters()).dtype)).double().numpy()
        return Quick(signs * (logits[:, 1] - logits[:, 0]), lambda where: self.lower_bounds(where, signs) > 0)

    def lower_bounds(self, where: Region, signs: np.ndarray) -> np.ndarray:
        """Lower bound of the margin over every region, shape (n,)."""
        found = []
        for start in range(0, len(where), _ROWS):
            part = where.take(slice(start, start + _ROWS))
            X, low, high = (torch.from_numpy(rows) for rows in (part.X, part.X + part.lower, part.X + part.upper))
            classes = torch.from_numpy((signs[start : start + _ROWS] > 0).astype(np.int64))
            found.append(interval_margins(self.network, low, high, classes, (X, torch.from_numpy(part.radius))))
        return torch.cat(found).numpy() if found else np.zeros(0)


@torch.no_grad()
def interval_margins(
    network: nn.Sequential, low: Tensor, high: Tensor, classes: Tensor, ball: tuple[Tensor, Tensor]
) -> Tensor:
    """Lower bounds of the margin (own logit minus the other) over the cell low ≤ x ≤ high, shape (n,), float64.

    Interval arithmetic layer by layer, in the network's own dtype (float64 would take ten times as long). Of a sum of k
    terms whose magnitudes add up to m, rounding adds at most (k + 2)·u·m in any order, u the unit roundoff: once where
    the network's users compute it, and here for the interval's centre and for its radius; their inputs and what is done
    with them take a few more u·m. So each layer's interval grows by (3k + 32)·u·m, and holds the values that are
    computed, not only the true ones.

    The points also lie in the `ball`, within an L2 radius (n,) of x (n, d): the first linear layer moves from where x
    puts it by at most the radius times the norm of its weights. `classes`, 0 or 1, are those whose margin is asked for.
    """
    dtype = next(network.parameters()).dtype
    unit = torch.finfo(dtype).eps  # 2u
    x, reach = ball
    first = True
    for layer in network:
        if isinstance(layer, Standardise):
            mean, scale = float(layer.mean), float(layer.scale)
            rounding = 4 * unit * (torch.maximum(low.abs(), high.abs()) + abs(mean)) / scale
            low = layer.arrange((low - mean) / scale - rounding)
            high = layer.arrange((high - mean) / scale + rounding)
            x, reach, slack = layer.arrange((x - mean) / scale), reach / scale, layer.arrange(rounding)
            low, high, x, slack = (part.to(dtype) for part in (low, high, x, slack))
        elif isinstance(layer, nn.ReLU):
            low, high = low.clamp(min=0), high.clamp(min=0)
        elif isinstance(layer, nn.Flatten):
            low, high = low.flatten(1), high.flatten(1)
        else:
            assert isinstance(layer, (nn.Conv2d, nn.Linear))
            assert layer.bias is not None
            weight, bias = layer.weight, layer.bias
            centre, radius = (low + high) / 2, (high - low) / 2
            magnitude = _apply(layer, weight.abs(), bias.abs(), torch.maximum(low.abs(), high.abs()))
            # The magnitudes are rounded, too, by far less than one part in a hundred.
            rounding = 1.01 * unit * (1.5 * weight[0].numel() + 16) * magnitude
            centre, radius = _apply(layer, weight, bias, centre), _apply(layer, weight.abs(), None, radius)
            low, high = centre - radius, centre + radius
            if first:
                first, sides = False, [1] * (x.dim() - 2)
                norms = weight.double().flatten(1).norm(dim=1)
                lengths = (norms.reshape(-1, *sides) * reach.reshape(-1, 1, *sides)).to(dtype)
                centre, radius = _apply(layer, weight, bias, x), lengths + _apply(layer, weight.abs(), None, slack)
                low, high = torch.maximum(low, centre - radius), torch.minimum(high, centre + radius)
            low, high = low - rounding, high + rounding
    rows = torch.arange(len(classes))
    return low[rows, classes].double() - high[rows, 1 - classes].double()


def _apply(layer: nn.Conv2d | nn.Linear, weight: Tensor, bias: Tensor | None, x: Tensor) -> Tensor:
    if isinstance(layer, nn.Conv2d):
        return nn.functional.conv2d(x, weight, bias, stride=2, padding=1)
    return nn.functional.linear(x, weight, bias)
