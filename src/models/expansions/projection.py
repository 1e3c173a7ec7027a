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
from models.kernel_sums import KernelSpace
from models.rounding import UNIT64

_RIDGE = 1e-8
# The matrix is symmetric and made by stripes of so many rows, each from its diagonal on.
_ROWS = 256


class Projection(NamedTuple):
    """What the vectors that stay gain, (n_kept, n_columns), and a bound on the RKHS norm of the error, (n_columns,)."""

    gained: Tensor
    error: Tensor


def project(space: KernelSpace, kept: Tensor, gone: Tensor, weights: Tensor) -> Projection:
    """Project Σ_r weights_r k(gone_r, ·) onto the span of k(kept_s, ·), of one width; weights (n_gone, n_columns)."""
    n_kept, both = len(kept), torch.cat([kept, gone]).double()
    gram, norms = _gram(space, both)
    among, image, own = gram[:n_kept, :n_kept], gram[:n_kept, n_kept:] @ weights, gram[n_kept:, n_kept:] @ weights
    factor = torch.linalg.cholesky(among + _RIDGE * torch.eye(n_kept, dtype=torch.float64))
    gained = torch.cholesky_solve(image, factor)
    squared = (weights * own).sum(0) - 2 * (gained * image).sum(0) + (gained * (among @ gained)).sum(0)
    # Kernel values are off by d units of the lengths' squares, sums by their number of units of Σ|·|.
    mass = weights.abs().sum(0) + gained.abs().sum(0)
    reach, terms = float(norms.max()), len(both)
    rounding = 4 * UNIT64 * (terms + (space.dimension + 8) * (1 + 4 * max(space.gammas) * reach)) * mass**2
    return Projection(gained, (squared.clamp(min=0.0) + rounding).sqrt())


def _gram(space: KernelSpace, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Kernel values between all rows, and the rows' squared norms."""
    norms, gram = row_norms(rows), torch.empty(len(rows), len(rows), dtype=rows.dtype)
    for start in range(0, len(rows), _ROWS):
        part, rest = slice(start, start + _ROWS), slice(start, None)
        squared = space.squared_distances(rows[part], rows[rest], norms[part], norms[rest])
        values = space.kernel.from_squared_distance_(squared, space.gammas[0])
        gram[part, rest], gram[rest, part] = values, values.t()
    gram.fill_diagonal_(1.0)
    return gram, norms
