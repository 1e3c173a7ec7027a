"""What all networks share: the training loop, the attacks' protocol, files and a rigorous (if small) certificate.

How it is trained is a ``models.networks.Training``: it turns a batch into losses.
"""

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.base import _fit_context
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn

# The functional form: the first object of torch.optim imports torch's compiler, a second or two of a first training.
from torch.optim.sgd import sgd

from models.binary import BinaryClassifier
from models.certificates.contest import Form
from models.distances import to_tensor
from models.grid import Axes, CrossValidation, FoldScores, cross_validate_fits
from models.limits import POSITIVE, SEED, at_least, instance, one_of, whole, within
from models.networks.architecture import IntervalForm, build_network
from models.networks.losses import Training
from models.persistence import with_prefix
from models.threat import Threat
from models.training import DivergenceWarning

# Rows that go through the network at once when it is only evaluated.
_ROWS = 1024
# Adversarial losses have rare, very long gradients at large learning rates.
_LONGEST = 5.0


@dataclass(eq=False, repr=False)
class AdvNetwork(BinaryClassifier):
    """A small network with two outputs, trained by SGD; its score is the difference of the logits.

    Parameters
    ----------
    training : {"natural", "standard", "mart", "vat", "free", "fgsm_rs"} or Training, default="standard"
        What is minimised; an object of ``models.networks`` sets its options.
    epsilon : float, default=8/255
        Size of the perturbations trained against, in units of X.
    norm : {"linf", "l2"}, default="linf"
    box : (float, float) or None, default=(0, 1)
        Perturbed values stay in it.
    epochs : int, default=10
        Passes over the data; a batch that is replayed m times counts m times.
    learning_rate : float, default=0.05
        Largest learning rate: it rises over the first two fifths of training and falls to 0.
    weight_decay : float, default=5e-4
    ramp : float, default=0.4
        Share of training over which the perturbations grow from nothing to `epsilon`. From the first step at their full
        size, no small network leaves chance on CIFAR-10 at L∞ 8/255.
    batch_size : int, default=128
    image_shape : tuple of int or None, default=None
        (height, width), with the channels before or after them if there are any; None is a table.
    device : {"cpu", "cuda"}, default="cpu"
        Where it is trained; a fitted network is on the CPU.
    random_state : int, default=0
        Initial weights, order of the rows, random starts.

    Attributes
    ----------
    classes_ : array of shape (2,)
    n_features_in_ : int
    network_ : torch.nn.Sequential
    curve_ : dict of arrays of shape (epochs,)
        "iteration" (steps of the weights), "loss", and "test_error" if `eval_set` was given.
    diverged_ : bool
        The loss became NaN or infinite; the weights are those before.
    n_iter_ : int
        Steps of the weights.
    """

    training: Annotated[str | Training, instance(str, Training)] = "standard"
    epsilon: Annotated[float, at_least(0)] = 8 / 255
    norm: Annotated[str, one_of("linf", "l2")] = "linf"
    box: Annotated[tuple[float, float] | None, instance(tuple, list)] = (0.0, 1.0)
    epochs: Annotated[int, whole(1)] = 10
    learning_rate: Annotated[float, POSITIVE] = 0.05
    weight_decay: Annotated[float, at_least(0)] = 5e-4
    ramp: Annotated[float, within(0, 1, open_above=True)] = 0.4
    batch_size: Annotated[int, whole(1)] = 128
    image_shape: Annotated[tuple[int, ...] | None, instance(tuple, list)] = None
    device: Annotated[str, one_of("cpu", "cuda")] = "cpu"
    random_state: Annotated[int, SEED] = 0

    _sparse: ClassVar[str | bool] = False
    _stored_numbers: ClassVar[tuple[str, ...]] = ("diverged", "n_iter")

    @property
    def threat(self) -> Threat:
        """The perturbations trained against."""
        return Threat(self.norm, float(self.epsilon), None if self.box is None else (self.box[0], self.box[1]))

    def _validate_params(self) -> None:
        super()._validate_params()
        if self.device == "cuda" and not torch.cuda.is_available():
            raise ValueError("device='cuda': torch finds no CUDA here; device='cpu' trains on the processor")

    # -- fitting -------------------------------------------------------------------------------------------------------
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, eval_set: Any = None, observer: Any = None) -> "AdvNetwork":
        """Train on the rows of X.

        Parameters
        ----------
        X : array of shape (n, d)
        y : array of shape (n,)
            Any two labels.
        eval_set : (X, y), optional
            Rows whose error is followed by epoch, see `curve_`.
        observer : callable, optional
            ``observer("train", step, total, loss=[, test_error=])``, once an epoch.
        """
        X, signs = self._validate_training_data(X, y)
        evaluation = self._validate_evaluation(eval_set)
        training = Training.of(self.training)
        rows, labels = (part.to(self.device) for part in (to_tensor(X, _dtype(X)), torch.from_numpy(signs > 0).long()))
        size = min(int(self.batch_size), len(rows))
        # A last batch of one or two rows is a step as long as any other, in a direction that says little.
        batches = max(1, len(rows) // size)
        epochs = max(1, round(self.epochs / training.replays))
        total = epochs * batches * training.replays
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(int(self.random_state))
            mean, scale = float(rows.mean()), float(rows.std(correction=0)) or 1.0
            self.network_ = build_network(rows.shape[1], self.image_shape, mean, scale).to(rows)
            descent = OneCycleDescent(self.network_.parameters(), self.learning_rate, self.weight_decay, total)
            curve: dict[str, list[float]] = {"iteration": [], "loss": []}
            self.diverged_, step = False, 0
            for _ in range(epochs):
                last = {name: value.clone() for name, value in self.network_.state_dict().items()}
                losses = []
                for part in torch.randperm(len(rows)).split(size)[:batches]:
                    grown = min(1.0, step / (self.ramp * total)) if self.ramp else 1.0
                    threat = replace(self.threat, epsilon=grown * float(self.epsilon))
                    for loss in training.losses(self.logits, rows[part], labels[part], threat):
                        descent.step(loss)
                        losses.append(loss.detach())
                        step += 1
                mean = float(torch.stack(losses).mean())
                if not (np.isfinite(mean) and all(p.isfinite().all() for p in self.network_.parameters())):
                    self.network_.load_state_dict(last)
                    self.diverged_ = True
                    break
                values = {"loss": mean}
                if evaluation is not None:
                    values["test_error"] = float(np.mean((self.scores(evaluation[0]) > 0) != (evaluation[1] > 0)))
                for name, value in ({"iteration": step} | values).items():
                    curve.setdefault(name, []).append(value)
                if observer is not None:
                    observer("train", step, total, **values)
        self.network_.cpu()
        self.n_iter_ = step
        self.curve_ = {name: np.asarray(values) for name, values in curve.items()}
        if self.diverged_:
            warnings.warn(
                f"training diverged with learning_rate={self.learning_rate}: kept the last finite weights. "
                "Choose a smaller learning_rate.",
                DivergenceWarning,
                stacklevel=3,
            )
        return self

    def logits(self, X: Tensor) -> Tensor:
        """Outputs of the network for a batch, shape (n, 2)."""
        found: Tensor = self.network_(X)
        return found

    def cv_scores(self, X: Any, y: Any, axes: Axes, how: CrossValidation) -> FoldScores:
        """For ``models.grid_search``: one fit per setting, scored on one fold, as a fit takes minutes."""
        scores = cross_validate_fits(self, X, y, axes, how, only=1)
        return replace(scores, messages=[f"A network is scored on the first of the {how.folds} folds."])

    # -- the model side of the attacks' protocol -----------------------------------------------------------------------
    def scores(self, X: Any) -> np.ndarray:
        """Difference of the logits, shape (n,), float64; positive means ``classes_[1]``."""
        rows = self._tensor(X).to(next(self.network_.parameters()).device)
        with torch.no_grad():
            parts = [_difference(self.logits(part)) for part in rows.split(_ROWS)]
        return torch.cat(parts).double().cpu().numpy()

    def scores_and_gradients(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """Scores, shape (n,), float64, and their gradients, shape (n, d), in the model's dtype."""
        scores, gradients = [], []
        for part in self._tensor(X).split(_ROWS):
            part = part.clone().requires_grad_()
            found = _difference(self.logits(part))
            (gradient,) = torch.autograd.grad(found.sum(), part)
            scores.append(found.detach())
            gradients.append(gradient)
        return torch.cat(scores).double().numpy(), torch.cat(gradients).numpy()

    def probe(self, X: Any, coords: Any, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores at x + h·e_j and x - h·e_j for each j in `coords`, both (n, q), float64: so many evaluations."""
        rows, coords = self._tensor(X).numpy(), np.asarray(coords, dtype=np.int64)
        sides = []
        for move in (h, -h):
            moved = np.repeat(rows, len(coords), axis=0)
            moved[np.arange(len(moved)), np.tile(coords, len(rows))] += moved.dtype.type(move)
            sides.append(self.scores(moved).reshape(len(rows), len(coords)))
        return sides[0], sides[1]

    def _tensor(self, X: Any) -> Tensor:
        return to_tensor(self._validate_rows(X), next(self.network_.parameters()).dtype)

    # -- certificates --------------------------------------------------------------------------------------------------
    def form(self) -> tuple[Form, float]:
        """What ``models.certify`` asks; interval arithmetic proves what it can."""
        unit = torch.finfo(next(self.network_.parameters()).dtype).eps / 2
        return IntervalForm(self.network_), 0.0 if unit < 1e-12 else 2 * unit

    # -- files ---------------------------------------------------------------------------------------------------------
    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The fitted model as plain JSON and arrays; see ``models.persistence``."""
        check_is_fitted(self)
        meta, curve = self._common_state()
        meta["dtype"] = str(next(self.network_.parameters()).dtype).removeprefix("torch.")
        meta["params"] |= {"training": Training.of(self.training).to_dict()}
        arrays = {f"network.{name}": value.numpy() for name, value in self.network_.state_dict().items()}
        return meta, arrays | curve

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> "AdvNetwork":
        """Inverse of `get_state`; scores are equal bit for bit, in another ``dtype`` those of the same weights."""
        params = meta["params"] | {"training": Training.from_dict(meta["params"]["training"])}
        model: AdvNetwork = cls._from_common_state(meta | {"params": params}, arrays)
        dtype = torch.float64 if meta["dtype"] == "float64" else torch.float32
        model.network_ = build_network(model.n_features_in_, model.image_shape, 0.0, 1.0).to(dtype)
        weights = with_prefix(arrays, "network.")
        model.network_.load_state_dict({name: torch.from_numpy(np.array(value)) for name, value in weights.items()})
        return model


class OneCycleDescent:
    """Nesterov's gradient descent over one cycle: the learning rate rises and falls, the momentum falls and rises.

    Steps for `parameters`, as many as `total`; as ``torch.optim.SGD`` under ``OneCycleLR`` with linear phases.
    """

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


def _dtype(X: np.ndarray) -> torch.dtype:
    return torch.float64 if X.dtype == np.float64 else torch.float32


def _difference(logits: Tensor) -> Tensor:
    return logits[:, 1] - logits[:, 0]
