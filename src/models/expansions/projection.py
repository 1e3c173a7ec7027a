"""Fewer support vectors for the same function: some of them are projected onto the others, with a known error.

g = Σ_r w_r k(x_r, ·) over the vectors that go is replaced by its projection Σ_s α_s k(x_s, ·) onto the span of those
that stay, (K_SS + λI) α = K_SR w. What that changes is measured in the RKHS, whatever α is:

    ‖g - Σ_s α_s k_s‖² = wᵀK_RR w - 2 αᵀK_SR w + αᵀK_SS α,

and no score anywhere moves by more, as k(x, x) = 1.
"""

from typing import NamedTuple

import torch
from torch import Tensor

from models.distances import row_norms
from models.expansions.base import KernelSpace
from models.rounding import UNIT64

_RIDGE = 1e-8


class Projection(NamedTuple):
    """What the vectors that stay gain, (n_kept, n_columns), and a bound on the RKHS norm of the error, (n_columns,)."""

    gained: Tensor
    error: Tensor


def project(space: KernelSpace, kept: Tensor, gone: Tensor, weights: Tensor) -> Projection:
    """Project Σ_r weights_r k(gone_r, ·) onto the span of k(kept_s, ·), of one width; weights (n_gone, n_columns)."""
    kept, gone = kept.double(), gone.double()
    among = _gram(space, kept, kept)
    image = _gram(space, kept, gone) @ weights
    own = _gram(space, gone, gone) @ weights
    factor = torch.linalg.cholesky(among + _RIDGE * torch.eye(len(kept), dtype=torch.float64))
    gained = torch.cholesky_solve(image, factor)
    squared = (weights * own).sum(0) - 2 * (gained * image).sum(0) + (gained * (among @ gained)).sum(0)
    # Kernel values are off by d units of the lengths' squares, sums by their number of units of Σ|·|.
    mass = weights.abs().sum(0) + gained.abs().sum(0)
    reach = float(torch.maximum(row_norms(kept).max(), row_norms(gone).max()))
    terms = len(kept) + len(gone)
    rounding = 4 * UNIT64 * (terms + (space.dimension + 8) * (1 + 4 * max(space.gammas) * reach)) * mass**2
    return Projection(gained, (squared.clamp(min=0.0) + rounding).sqrt())


def _gram(space: KernelSpace, A: Tensor, B: Tensor) -> Tensor:
    squared = space.squared_distances(A, B)
    if A is B:
        squared.fill_diagonal_(0.0)
    return space.kernel.from_squared_distance_(squared, space.gammas[0])
