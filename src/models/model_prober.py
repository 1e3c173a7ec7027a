"""A model's answers to coordinate-wise queries, numpy in and numpy out, with a memory of the last ones."""

import numpy as np
import torch

from models.expansions import LiveExpansion
from models.rows import to_tensor


class ModelProber:
    """What ``model.prober()`` returns.

    Parameters
    ----------
    expansion : LiveExpansion
    offset : float
        Added to the scores.
    """

    def __init__(self, expansion: LiveExpansion, offset: float = 0.0):
        self._prober, self._dtype, self._offset = expansion.prober(), expansion.space.dtype, offset

    def probe(self, X: np.ndarray, coords: np.ndarray, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores at x + h·e_j and x - h·e_j for each j in `coords`, both of shape (n, q), float64."""
        columns = torch.as_tensor(np.asarray(coords, dtype=np.int64))
        even, odd = (part.numpy() for part in self._prober.probe(to_tensor(X, self._dtype), columns, float(h)))
        return even + self._offset + odd, even + self._offset - odd

    def keep(self, rows: np.ndarray) -> None:
        """Only these rows of the last X, given as a mask, will be asked about from now on."""
        self._prober.keep(torch.from_numpy(rows))
