"""What every expansion shares: the space it lives in, the rows it is scored on, and the history of its decays.

The training loop (``models.training``) sees only `LiveExpansion` and `Tracker`. All of them hold several functions at
once, the *columns*: the settings and folds of a grid. A single model is one column.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from models.expansions.probing import ForgetfulProber, Prober
from models.kernels import Kernel, squared_distances

# Numbers a temporary matrix may hold: 4 MiB in float32, so that it is still in cache when it is read again.
CHUNK = 2**20
# Rows held by one training window, in bytes.
WINDOW_BYTES = 2**28


@dataclass(frozen=True)
class KernelSpace:
    """Kernel, widths, input dimension and arithmetic of an expansion.

    With G widths the columns come in G consecutive groups of equal size, one per width, so that distances and X @ Ω are
    shared.
    """

    kernel: Kernel
    gammas: tuple[float, ...]
    dimension: int
    dtype: torch.dtype
    seed: int

    def squared_distances(self, A: Tensor, B: Tensor, norms_a: Tensor | None = None, norms_b: Tensor | None = None):
        norms_a = row_norms(A) if norms_a is None else norms_a
        norms_b = row_norms(B) if norms_b is None else norms_b
        return squared_distances(A, B, norms_a, norms_b, refine=self.kernel.name == "laplacian")

    def groups(self, n_columns: int) -> Iterator[tuple[float, slice]]:
        """(gamma, columns) for each width."""
        size = n_columns // len(self.gammas)
        for number, gamma in enumerate(self.gammas):
            yield gamma, slice(number * size, (number + 1) * size)

    def kernel_product(self, squared: Tensor, coefficients: Tensor, out: Tensor) -> Tensor:
        """out += k(squared) @ coefficients, each group of columns with its own width. May overwrite `squared`."""
        for gamma, group in self.groups(coefficients.shape[1]):
            distances = squared if len(self.gammas) == 1 else squared.clone()
            out[:, group].addmm_(self.kernel.from_squared_distance_(distances, gamma), coefficients[:, group])
        return out


def row_norms(X: Tensor) -> Tensor:
    """Squared norms of the rows, shape (n,)."""
    return torch.linalg.vecdot(X, X)  # einsum takes ten times as long


class Front:
    """Rows to be scored, held as one tensor.

    Parameters
    ----------
    X : tensor of shape (n, d)
    ids : array of shape (n,)
        Row numbers in the training data; rows of other origin have none.
    """

    def __init__(self, X: Tensor, ids: np.ndarray | None = None):
        self.X = X
        self.ids = ids

    def __len__(self) -> int:
        return len(self.X)

    @cached_property
    def norms(self) -> Tensor:
        return row_norms(self.X)


class Tracker(ABC):
    """Scores of a front while the expansion grows."""

    expansion: "LiveExpansion"
    front: Front

    @abstractmethod
    def at(self, positions: Tensor) -> Tensor:
        """Current scores of some rows of the front, shape (len(positions), n_columns)."""

    @abstractmethod
    def advance(self, start: int) -> None:
        """Take in the newest decay and term; rows before `start` are never asked for again."""

    @abstractmethod
    def all(self) -> Tensor:
        """Current scores of the whole front, if `start` has always been 0."""

    def term_norms(self, positions: Tensor, coefficients: Tensor) -> Tensor:
        """‖Σ_b c_b k(x_b, ·)‖² for each column, shape (n_columns,), float64, from the rows' own Gram matrix."""
        space = self.expansion.space
        X, norms = self.front.X[positions], self.front.norms[positions]
        squared = space.squared_distances(X, X, norms, norms).fill_diagonal_(0.0)
        image = torch.zeros_like(coefficients)
        for gamma, group in space.groups(coefficients.shape[1]):
            gram = space.kernel.from_squared_distance_(squared.clone(), gamma)
            image[:, group] = gram.double() @ coefficients[:, group]
        return (coefficients * image).sum(0)


class PushTracker(Tracker):
    """Scores kept up to date by adding each new term to every row still needed: scores ← decay · scores + term."""

    def __init__(self, expansion: "LiveExpansion", front: Front):
        self.expansion = expansion
        self.front = front
        self.scores = expansion.scores(front.X)

    def at(self, positions: Tensor) -> Tensor:
        return self.scores[positions]

    def advance(self, start: int) -> None:
        self.expansion.push(self.front, self.scores, start)

    def all(self) -> Tensor:
        return self.scores


@dataclass(frozen=True)
class Expansion(ABC):
    """Settings of an expansion: how a function f is held."""

    name: ClassVar[str]

    @abstractmethod
    def begin(self, space: KernelSpace, n_columns: int) -> "LiveExpansion":
        """The zero function, `n_columns` times."""

    @abstractmethod
    def restore(self, space: KernelSpace, arrays: dict[str, np.ndarray]) -> "LiveExpansion":
        """An expansion of one column from what `LiveExpansion.arrays` gave."""

    def to_dict(self) -> dict[str, Any]:
        return {"name": self.name, **asdict(self)}


class LiveExpansion(ABC):
    """f_t = decay_t · f_{t-1} + term_t for each column, scored, differentiated and probed.

    Terms are stored as they were added; the weight of term t today is its coefficient times the product of all later
    decays. That keeps every earlier iterate at hand (`staged_scores`).
    """

    def __init__(self, space: KernelSpace, n_columns: int):
        self.space = space
        self.n_columns = n_columns
        self.decays: list[Tensor] = []

    # -- training ------------------------------------------------------------------------------------------------------
    def scale(self, decay: Tensor) -> None:
        """Multiply each column by its decay, shape (n_columns,), float64. One `add` follows."""
        self.decays.append(decay)

    @abstractmethod
    def add(self, front: Front, positions: Tensor, coefficients: Tensor) -> None:
        """Add Σ_b coefficients[b] k(x_b, ·) over the rows of the front at `positions`; coefficients (B, n_columns)."""

    @abstractmethod
    def track(self, front: Front, revisited: bool) -> Tracker:
        """Follow the scores of a front; `revisited` if its rows are used more than once."""

    @abstractmethod
    def window_batches(self, n_rows: int, batch_size: int, n_batches: int, revisited: bool) -> int:
        """How many consecutive batches are best trained on one front."""

    def push(self, front: Front, scores: Tensor, start: int) -> None:
        """scores[start:] ← decay · scores[start:] + newest term."""
        raise TypeError(f"{type(self).__name__} is not trained by pushing terms")

    def later_decays(self) -> Tensor:
        """Product of the decays after each iteration, shape (T, n_columns), float64."""
        return suffix_products(torch.stack(self.decays))

    # -- the fitted function -------------------------------------------------------------------------------------------
    @abstractmethod
    def scores(self, X: Tensor, dtype: torch.dtype | None = None) -> Tensor:
        """f(x) for every column, shape (n, n_columns)."""

    @abstractmethod
    def scores_and_gradients(
        self, X: Tensor, columns: Tensor | None = None, dtype: torch.dtype | None = None
    ) -> tuple[Tensor, Tensor]:
        """f(x), shape (n, c), and ∇f(x), shape (n, c, d), for some columns of one width."""

    @abstractmethod
    def probe(self, X: Tensor, coords: Tensor, h: float) -> tuple[Tensor, Tensor]:
        """Even and odd part of f(x ± h·e_j) in h, both (n, q), for the first column."""

    def prober(self) -> Prober | ForgetfulProber:
        """Answers `probe` again and again for rows of which few columns change in between."""
        return ForgetfulProber(self)

    @abstractmethod
    def staged_scores(self, X: Tensor) -> Tensor:
        """Scores of every iterate, shape (T, n), first column."""

    @abstractmethod
    def arrays(self) -> dict[str, np.ndarray]:
        """The first column as arrays, for `Expansion.restore`."""


def suffix_products(decays: Tensor) -> Tensor:
    """Product of all later rows, for each row, shape (T, n_columns)."""
    after = torch.ones_like(decays)
    after[:-1] = decays[1:].flip(0).cumprod(0).flip(0)
    return after


def negligible(weights: Tensor, dtype: torch.dtype) -> Tensor:
    """Mask of terms whose weight no longer moves a score: together at most half an eps of any column's total weight.

    Every |feature| and kernel value is at most 1, so leaving them out moves no score by more than eps/2 · Σ|w|: 6e-8 of
    the total weight in float32, what evaluating the sum once may round anyway.

    Parameters
    ----------
    weights : tensor of shape (n_terms, n_columns), float64
    dtype : torch.dtype
        The arithmetic whose eps counts.
    """
    tolerance = torch.finfo(dtype).eps / 2
    share = weights.abs()
    share = (share / share.sum(0).clamp_(min=torch.finfo(share.dtype).tiny)).amax(1)
    ascending, order = share.sort()
    mask = torch.zeros(len(share), dtype=torch.bool)
    mask[order[ascending.cumsum(0) <= tolerance]] = True
    return mask


def chunks(n_rows: int, width: int, at_least: int = 64) -> Iterator[slice]:
    """Slices of rows such that a chunk × width matrix stays in cache."""
    size = max(at_least, CHUNK // max(1, width))
    for start in range(0, n_rows, size):
        yield slice(start, min(start + size, n_rows))
