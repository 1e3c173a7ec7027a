"""The adversarially trained kernel SVM (Wu, Hu, Gu, AAAI 2021) as a scikit-learn classifier."""

import warnings
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Annotated, Any, ClassVar

import numpy as np
import torch
from sklearn.base import _fit_context, clone
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted

from models.batches import RowSource, shuffled_batches
from models.binary import ExpansionClassifier
from models.column_grid import Plan, cross_validate_columns
from models.expansions import Expansion, KernelSpace
from models.grid import Axes, CrossValidation, FoldScores, cross_validate_fits
from models.kernels import Kernel
from models.limits import POSITIVE, SEED, at_least, either, instance, one_of, whole
from models.persistence import with_prefix
from models.threat import Threat
from models.training import (
    Columns,
    DivergenceWarning,
    FewIterationsWarning,
    FreshExamples,
    Observer,
    PenaltyTooLargeWarning,
    train_columns,
)

# The paper's batch size; a constant step has hardly begun after fewer iterations than the second; the third is what
# "auto" makes of small data.
_PAPER_BATCH = 500
FEW_ITERATIONS = 20
ENOUGH_ITERATIONS = 100
_DTYPES = {"float32": torch.float32, "float64": torch.float64}


@dataclass(eq=False, repr=False)
class AdvSVM(ExpansionClassifier):
    """Kernel SVM trained against the worst perturbation of L2 size `epsilon`, by doubly stochastic gradient steps.

    Minimises ½‖f‖² + (C·B/n) Σ_i [1 - y_i f(x_i) + ε'‖f‖]_+ over all n rows, in batches of B, with
    ε' = sqrt(2g(0) - 2g(ε)) for the kernel g(‖x - x'‖), without intercept. ``epsilon=0`` is the paper's Natural;
    ``schedule="constant"`` its adv-SVM(C), ``"diminishing"`` (D). With ``adversary="input"`` the perturbations are not
    bounded in feature space but made: [1 - y_i f(x_i + δ_i)]_+ with δ_i found in the ball against the function so far.

    Parameters
    ----------
    schedule : {"constant", "diminishing"}, default="constant"
        Step γ_i = step, or step / i.
    expansion : {"doubly_stochastic", "fixed_features", "support_vectors"} or Expansion, default="doubly_stochastic"
        How f is held; an object of ``models.expansions`` sets its options.
    kernel : {"rbf", "laplacian"} or Kernel, default="rbf"
        An object of ``models.kernels`` sets its width.
    epsilon : float, default=8/255
        Radius of the perturbations trained against, in units of X: in L2, or in `norm` if they are made.
    C : float, default=1.0
        Weight of the hinge loss summed over a batch.
    step : float, default=0.125
        Step size γ. A constant step of 2 or more diverges.
    batch_size : int or "auto", default="auto"
        Rows per iteration, at most the number of rows n; "auto" is the paper's 500 where that gives 20 iterations a
        pass, else a twentieth of the rows.
    passes : int or "auto", default="auto"
        Passes over the data, each in a new order; "auto" is the paper's 1 if a pass has 20 iterations of 500 rows, else
        as many as make 100 iterations.
    decay : {"literal", "proximal"}, default="literal"
        The paper's rule for the ε' term, or its proximal form, which can reach f = 0.
    averaging : {"none", "tail"}, default="none"
        f is the last iterate (the paper), or the mean of the last half of the iterates, which takes the noise out of a
        constant step.
    adversary : {"rkhs", "input"}, default="rkhs"
        The paper's term ε'‖f‖, or fresh adversarial examples: each batch is moved within `epsilon`, `norm` and `box`
        before it is learned from (``models.batches``).
    norm : {"linf", "l2"}, default="linf"
        Of the perturbations that are made.
    attack_steps : int, default=1
        Gradients a batch is moved by; 1 is the fast gradient sign method.
    box : (low, high) or None, default=None
        Where moved rows stay, numbers or arrays of shape (d,); None is everywhere.
    dtype : {"auto", "float32", "float64"}, default="auto"
        Arithmetic; "auto" follows the dtype of X at fit (float64 only for float64).
    random_state : int, RandomState or None, default=0
        Order of the rows, random features and the rows of the median rule.

    Attributes
    ----------
    classes_ : array of shape (2,)
    n_features_in_ : int
    n_iter_ : int
        Iterations T.
    gamma_ : float
        Width of the kernel.
    norm_ : float
        ‖f‖ of the last iterate, by the training recursion; a mean of iterates has at most the mean of their norms.
    expansion_ : LiveExpansion
        The fitted function.
    curve_ : dict of arrays of shape (T,)
        "iteration", "norm", "violators", and "test_error" if `eval_set` was given; averaged iterates count from the
        middle on with the mean so far.
    diverged_ : bool
        Training was stopped at its last finite state.
    penalty_too_large_ : bool
        f vanished or kept changing sign: on this data the penalty ε' outweighs the labels.
    """

    schedule: Annotated[str, one_of("constant", "diminishing")] = "constant"
    # Live views of the registries: a class defined later counts, too.
    expansion: Annotated[str | Expansion, either(one_of(live=Expansion.registry), instance(Expansion))] = (
        "doubly_stochastic"
    )
    kernel: Annotated[str | Kernel, either(one_of(live=Kernel.registry), instance(Kernel))] = "rbf"
    epsilon: Annotated[float, at_least(0)] = 8 / 255
    C: Annotated[float, POSITIVE] = 1.0
    step: Annotated[float, POSITIVE] = 0.125
    batch_size: Annotated[int | str, either(whole(1), one_of("auto"))] = "auto"
    passes: Annotated[int | str, either(whole(1), one_of("auto"))] = "auto"
    decay: Annotated[str, one_of("literal", "proximal")] = "literal"
    averaging: Annotated[str, one_of("none", "tail")] = "none"
    adversary: Annotated[str, one_of("rkhs", "input")] = "rkhs"
    norm: Annotated[str, one_of("linf", "l2")] = "linf"
    attack_steps: Annotated[int, whole(1)] = 1
    box: Annotated[tuple[Any, Any] | None, instance(tuple, list)] = None
    dtype: Annotated[str, one_of("auto", "float32", "float64")] = "auto"
    random_state: Annotated[int | np.random.RandomState | None, either(SEED, instance(np.random.RandomState))] = 0

    _stored_numbers: ClassVar[tuple[str, ...]] = ("gamma", "norm", "diverged", "penalty_too_large")

    # -- fitting -------------------------------------------------------------------------------------------------------
    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, eval_set: Any = None, observer: Observer | None = None) -> "AdvSVM":
        """Train on the rows of X.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, d)
            float32, float64 or uint8, taken as it is; may be a memory map. Never copied or made dense as a whole.
        y : array of shape (n,)
            Any two labels.
        eval_set : (X, y), optional
            Rows whose error is followed by iteration, see `curve_`.
        observer : callable, optional
            ``observer("train", iteration, T, norm=, violators=[, test_error=])``, at most a few hundred times.
        """
        X, signs = self._validate_training_data(X, y)
        batch_size, passes = self.batching(len(signs))
        if batch_size > len(signs):
            warnings.warn(
                f"batch_size={batch_size} is larger than n_samples={len(signs)}: using {len(signs)}", stacklevel=3
            )
            batch_size = len(signs)
        kernel, settings = Kernel.of(self.kernel), Expansion.of(self.expansion)
        seed = self._seed()
        self.gamma_ = kernel.resolve_gamma(X, seed)
        space = KernelSpace(kernel, (self.gamma_,), X.shape[1], self._torch_dtype(X), seed)
        columns = Columns(
            C=np.array([self.C]),
            step=np.array([self.step]),
            penalty=np.array([0.0 if self.adversary == "input" else kernel.penalty(self.epsilon, self.gamma_)]),
            diminishing=self.schedule == "diminishing",
            proximal=self.decay == "proximal",
        )
        evaluation = self._validate_evaluation(eval_set)
        self.expansion_ = settings.begin(space, 1)
        record = train_columns(
            self.expansion_,
            self._source(X, space.dtype, signs),
            signs,
            shuffled_batches(len(signs), batch_size, passes, seed),
            columns,
            evaluation=evaluation,
            averaging=self.averaging == "tail",
            observer=observer,
        )
        self.n_iter_ = len(record.norms)
        self.norm_ = float(record.norms[-1, 0])
        self.curve_ = {
            "iteration": np.arange(1, self.n_iter_ + 1),
            "norm": record.norms[:, 0].copy(),
            "violators": record.violators[:, 0].copy(),
        }
        if record.test_errors is not None:
            self.curve_["test_error"] = record.test_errors
        self._report(bool(record.diverged[0]), bool(record.penalty_too_large[0]))
        self._certificate_quantity: float | None = None
        return self

    @property
    def moves_rows(self) -> bool:
        """Whether training makes its own examples."""
        return self.adversary == "input" and self.epsilon > 0

    def _source(self, X: np.ndarray, dtype: torch.dtype, signs: np.ndarray) -> RowSource:
        if not self.moves_rows:
            return RowSource(X, dtype)
        threat = Threat(self.norm, float(self.epsilon), None if self.box is None else (self.box[0], self.box[1]))
        return FreshExamples(X, dtype, signs, self.expansion_, threat, self.attack_steps)

    def batching(self, n_rows: int) -> tuple[int, int]:
        """Rows per iteration and passes for that many rows, "auto" resolved."""
        paper = -(-n_rows // _PAPER_BATCH) >= FEW_ITERATIONS
        automatic = _PAPER_BATCH if paper else max(1, n_rows // FEW_ITERATIONS)
        batch_size = automatic if self.batch_size == "auto" else int(self.batch_size)
        if self.passes != "auto":
            return batch_size, int(self.passes)
        a_pass = -(-n_rows // min(batch_size, n_rows))
        return batch_size, 1 if paper and self.batch_size in ("auto", _PAPER_BATCH) else -(-ENOUGH_ITERATIONS // a_pass)

    def _seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return int(check_random_state(self.random_state).randint(2**31 - 1))

    def _torch_dtype(self, X: Any) -> torch.dtype:
        if self.dtype == "auto":
            return torch.float64 if X.dtype == np.float64 else torch.float32
        return _DTYPES[self.dtype]

    def _report(self, diverged: bool, penalty_too_large: bool) -> None:
        self.diverged_, self.penalty_too_large_ = diverged, penalty_too_large
        if self.n_iter_ < FEW_ITERATIONS:
            warnings.warn(
                f"training ended after {self.n_iter_} iterations, fewer than {FEW_ITERATIONS}: lower batch_size "
                f"({self.batch_size}) or raise passes ({self.passes})",
                FewIterationsWarning,
                stacklevel=4,
            )
        if diverged:
            warnings.warn(
                f"training diverged with step={self.step}: stopped at its last finite state. Choose a smaller step.",
                DivergenceWarning,
                stacklevel=4,
            )
        if penalty_too_large:
            warnings.warn(
                f"the penalty of epsilon={self.epsilon} is too large for this data: f = 0 is (near) the optimum. "
                "Choose a smaller epsilon or a wider kernel.",
                PenaltyTooLargeWarning,
                stacklevel=4,
            )

    def staged_scores(self, X: Any) -> np.ndarray:
        """Scores of the iterates f_1 … f_T, shape (T, n), float64, at the cost of one prediction."""
        return np.concatenate([self.expansion_.staged_scores(part).numpy() for part in self._parts(X)], axis=1)

    def cv_scores(self, X: Any, y: Any, axes: Axes, how: CrossValidation) -> FoldScores:
        """Every setting of a grid on every fold, in one pass over the data; see ``models.grid_search``.

        Settings that move their rows move them differently and share nothing: a fit each, on one fold.
        """
        if self.adversary == "rkhs" or max(axes.get("epsilon", [self.epsilon])) == 0:
            checked = clone(self)
            checked._validate_params()
            X, signs = checked._validate_training_data(X, y)
            return cross_validate_columns(self._plan(X), X, signs, axes, how)
        known = ["C", "step", "width_scale", "epsilon"]
        known += ["n_features"] if hasattr(Expansion.of(self.expansion), "n_features") else []
        scores = cross_validate_fits(self, X, y, axes, how, only=1, known=tuple(known))
        note = f"Each setting makes its own examples: {len(scores.settings)} fits, on the first of {how.folds} folds."
        return replace(scores, messages=[note])

    def _plan(self, X: Any) -> Plan:
        batch_size, passes = self.batching(X.shape[0])
        return Plan(
            Kernel.of(self.kernel),
            Expansion.of(self.expansion),
            C=float(self.C),
            step=float(self.step),
            epsilon=float(self.epsilon),
            diminishing=self.schedule == "diminishing",
            proximal=self.decay == "proximal",
            averaging=self.averaging == "tail",
            batch_size=batch_size,
            passes=passes,
            dtype=self._torch_dtype(X),
        )

    # -- certificates --------------------------------------------------------------------------------------------------
    def _global_quantity(self) -> float:
        if self._certificate_quantity is None:
            self._certificate_quantity = super()._global_quantity()
        return self._certificate_quantity

    # -- files ---------------------------------------------------------------------------------------------------------
    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The fitted model as plain JSON and arrays; see ``models.persistence``."""
        check_is_fitted(self)
        space = self.expansion_.space
        meta, curve = self._common_state()
        meta["dtype"] = str(space.dtype).removeprefix("torch.")
        meta["certificate_quantity"] = self._certificate_quantity
        meta["params"] |= {
            "kernel": Kernel.of(self.kernel).to_dict(),
            "expansion": Expansion.of(self.expansion).to_dict(),
            "random_state": space.seed,
            "box": None if self.box is None else [np.asarray(side, dtype=np.float64).tolist() for side in self.box],
        }
        expansion = {f"expansion.{name}": values for name, values in self.expansion_.arrays().items()}
        return meta, {**curve, **expansion}

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> "AdvSVM":
        """Inverse of `get_state`; scores are equal bit for bit."""
        params = dict(meta["params"])
        kernel = params["kernel"] = Kernel.from_dict(params["kernel"])
        settings = params["expansion"] = Expansion.from_dict(params["expansion"])
        model = cls._from_common_state(meta | {"params": params}, arrays)
        model._certificate_quantity = meta["certificate_quantity"]
        space = KernelSpace(
            kernel, (meta["gamma"],), meta["n_features_in"], _DTYPES[meta["dtype"]], params["random_state"]
        )
        model.expansion_ = settings.restore(space, with_prefix(arrays, "expansion."))
        model.n_iter_ = len(model.curve_["iteration"])
        if model.averaging == "tail":
            model.expansion_.average_tail(model.n_iter_ // 2)
        return model
