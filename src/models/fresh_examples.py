"""Training on fresh adversarial examples: every batch is moved, in the threat's own ball, against the function so far.

The moved rows take the place of the rows in Algorithm 1: they are scored, violate their margins and become the kernels'
centres. A moved row is seen once, so there is nothing to over-fit; a row of a later pass is another one.
"""

import numpy as np
import torch
from torch import Tensor

from models.batches import BatchView, RowSource
from models.expansions import LiveExpansion
from models.threat_ball import Ball


class FreshExamples(RowSource):
    """Rows of X by number, moved to where y·f is low when they are asked for.

    Parameters
    ----------
    X : array of shape (n, d)
    dtype : torch.dtype
    signs : array of shape (n,)
        Labels as -1.0 and +1.0.
    expansion : LiveExpansion
        f while it grows, one column.
    ball : Ball
        Where a row may be moved to.
    steps : int
        Steps of descent; 1 is the fast gradient sign method.
    """

    # Rows are moved against f as it is now, so they cannot be scored ahead of their turn.
    ahead = False

    def __init__(
        self, X: np.ndarray, dtype: torch.dtype, signs: np.ndarray, expansion: LiveExpansion, ball: Ball, steps: int
    ):
        super().__init__(X, dtype)
        self.signs = signs
        self.expansion = expansion
        self.ball = ball
        self.steps = steps
        self._given = 0

    def view(self, ids: np.ndarray) -> BatchView:
        """Some rows, moved; each gets a number of its own, as the same row is moved elsewhere in another pass."""
        rows = super().view(ids).X
        y = torch.from_numpy(self.signs[ids])[:, None].to(self.dtype)
        self.expansion.bring_up_to_date()

        def slopes(points: Tensor) -> Tensor:
            return y * self.expansion.scores_and_gradients(points)[1][:, 0]

        numbers = np.arange(self._given, self._given + len(ids))
        self._given += len(ids)
        return BatchView(self.ball.descend(rows, slopes, self.steps), numbers)
