"""scikit-learn's SVC behind the protocol of our own models: `KernelSVC` of two classes, `VotingSVC` of more."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Self

import numpy as np
import torch
from scipy import sparse
from sklearn.base import _fit_context
from sklearn.svm import SVC
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from models.binary import ExpansionClassifier
from models.distances import dense, leading_coordinates, pair_distances, row_norms, squared_distances, to_tensor
from models.expansions import KernelSpace, SupportVectors
from models.fitted import FittedClassifier, TrainedHere
from models.grid import Axes, CrossValidation, FoldScores, chosen_axes
from models.kernels import RBF
from models.limits import POSITIVE, SEED, check_limits, whole
from models.one_vs_rest import one_point_curve
from models.training import Observer

# A kernel matrix of more rows than the first (2 GiB, and its folds as much again) is not made.
TUNING_ROWS = (16_384, 8_192)
# Support vectors are kept dense: gradients need them so.
_MOST_BYTES = 4e9


def fastest_svc() -> type[SVC]:
    """The SVC of scikit-learn-intelex where it is installed (the extra ``[fast]``), else scikit-learn's own.

    Both stop within the same tolerance of the same optimum.
    """
    try:
        from sklearnex.svm import SVC as Fast
    except ImportError:
        return SVC
    return Fast


@dataclass(eq=False, repr=False)
class KernelSVC(ExpansionClassifier):
    """RBF-kernel SVC of scikit-learn (libsvm), with gradients, probes and certificates from its dual coefficients.

    Up to 16,384 dense rows libsvm is given the whole kernel matrix, made by matrix products: on pictures that takes a
    tenth of the time or less. Where scikit-learn-intelex is installed it does the fitting: the same machine, within the
    tolerance.

    Parameters
    ----------
    C : float, default=1.0
    width_scale : float, default=4.0
        gamma = width_scale / median(‖x - x'‖)², the rule of ``models.kernels.RBF``; used while `gamma` is None.
    gamma : float or None, default=None
    tol : float, default=1e-3
        libsvm's stopping tolerance.
    cache_size : float, default=1000
        Kernel cache of libsvm in MB.
    rank : int or None, default=None
        The kernel matrix comes from so many coordinates of the rows and their lengths, in single precision
        (``models.distances.leading_coordinates``): a fraction of the arithmetic. The machine is evaluated exactly.
    random_state : int, default=0
        Rows of the median rule, and of those coordinates.

    Attributes
    ----------
    classes_ : array of shape (2,)
    gamma_ : float
    intercept_ : float
        b in f = h + b.
    norm_ : float
        RKHS norm of h, without the intercept, computed when it is asked for.
    n_support_ : int
    n_iter_ : int
        libsvm's iterations.
    expansion_ : SupportVectorSum
        h.
    n_features_in_ : int
    curve_ : dict of arrays of shape (1,)
        libsvm shows no iterates, so there is one entry: "iteration", and "test_error" with an `eval_set`.
    """

    C: Annotated[float, POSITIVE] = 1.0
    width_scale: Annotated[float, POSITIVE] = 4.0
    gamma: Annotated[float | None, POSITIVE] = None
    tol: Annotated[float, POSITIVE] = 1e-3
    cache_size: Annotated[float, POSITIVE] = 1000
    rank: Annotated[int | None, whole(1)] = None
    random_state: Annotated[int, SEED] = 0

    tuning_rows: ClassVar[tuple[int, int]] = TUNING_ROWS
    _stored_numbers: ClassVar[tuple[str, ...]] = ("gamma", "intercept", "n_iter")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, eval_set: Any = None, observer: Observer | None = None) -> "KernelSVC":
        """Train on the rows of X.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, d)
            Sparse rows stay sparse in libsvm; the support vectors are kept dense.
        y : array of shape (n,)
            Any two labels.
        eval_set : (X, y), optional
            Rows whose error goes into `curve_`.
        observer : callable, optional
            ``observer("train", 1, 1[, test_error=])``, at the end.
        """
        X, signs = self._validate_training_data(X, y)
        self._validate_evaluation(eval_set)  # before the time is spent
        self.gamma_ = self._resolve_gamma(X)
        fitted = _fit(self, X, signs)
        self.n_iter_ = int(fitted.n_iter_[0])
        self._hold(X[fitted.support_], dense(fitted.dual_coef_)[0], float(fitted.intercept_[0]), X.dtype == np.float64)

        self.curve_ = one_point_curve(self, eval_set)
        if observer is not None:
            error = {"test_error": float(self.curve_["test_error"][0])} if "test_error" in self.curve_ else {}
            observer("train", 1, 1, **error)
        return self

    def for_classes(self, n_classes: int) -> Any:
        """The same settings for so many classes: this machine for two, one with a vote per pair of classes for more."""
        return self if n_classes == 2 else VotingSVC(**self.get_params())

    def _resolve_gamma(self, X: np.ndarray) -> float:
        return RBF(width_scale=float(self.width_scale), gamma=self.gamma).resolve_gamma(X, int(self.random_state))

    def _hold(
        self, vectors: Any, coefficients: np.ndarray, intercept: float, double: bool, squared_norm: float | None = None
    ) -> None:
        """Keep f = Σ_s coefficient_s k(·, s) + intercept; float32 unless the data was float64."""
        needed = vectors.shape[0] * vectors.shape[1] * (8 if double else 4)
        if needed > _MOST_BYTES:
            raise ValueError(
                f"{vectors.shape[0]:,} support vectors of {vectors.shape[1]:,} values take {needed / 1e9:.1f} GB, and "
                f"gradients need them dense, at most {_MOST_BYTES / 1e9:.0f} GB: take fewer rows or features"
            )
        vectors = dense(vectors)
        dtype = torch.float64 if double else torch.float32
        space = KernelSpace(RBF(), (self.gamma_,), vectors.shape[1], dtype, int(self.random_state))
        arrays = {
            "rows": vectors.astype(np.float64 if double else np.float32, copy=False),
            "offsets": np.array([0, len(vectors)]),
            "members": np.arange(len(vectors)),
            "coefficients": np.asarray(coefficients, dtype=np.float64),
            "decays": np.ones(1),
        }
        self.expansion_ = SupportVectors().restore(space, arrays)
        self.intercept_ = intercept
        self.n_support_ = len(vectors)
        # Where the kernel matrix is at hand, as in a grid, it costs nothing; else as much as half of it.
        self._squared_norm = squared_norm

    @property
    def _offset(self) -> float:
        return self.intercept_

    def staged_scores(self, X: Any) -> np.ndarray:
        """The scores as one row, shape (1, n)."""
        return self.scores(X)[None, :]

    def _global_quantity(self) -> float:
        if self._squared_norm is None:
            self._squared_norm = super()._global_quantity()
        return max(self._squared_norm, 0.0)

    @property
    def norm_(self) -> float:
        """‖h‖."""
        return float(np.sqrt(self._global_quantity()))

    # -- tuning --------------------------------------------------------------------------------------------------------
    def cv_scores(self, X: Any, y: Any, axes: Axes, how: CrossValidation) -> FoldScores:
        """Every setting of a grid (C, width_scale) on every fold; see ``models.grid_search``.

        The distances between all rows serve all folds, widths and values of C.
        """
        axes = chosen_axes(axes, ("width_scale", "C"))
        probe = KernelSVC(**self.get_params())
        rows, signs = probe._validate_training_data(X, y)
        labels, numbers = probe.classes_[(signs > 0).astype(int)], how.assign(signs)
        Cs, widths = axes["C"], axes.get("width_scale", [None])
        settings = [{"C": C} | ({} if w is None else {"width_scale": w}) for w in widths for C in Cs]
        accuracy, robust = how.begin(len(settings))
        fits: dict[tuple[int, int], tuple[Any, ...]] = {}

        def hold(place: int, fold: int) -> KernelSVC:
            probe.gamma_, support, coefficients, intercept, squared_norm = fits[place, fold]
            probe._hold(rows[support], coefficients, intercept, rows.dtype == np.float64, squared_norm)
            return probe

        squared = _squared_distances(rows, self.rank, self.random_state)
        for place, width in enumerate(widths):
            gamma = self._resolve_gamma(rows) if width is None else RBF(width).resolve_gamma(rows, self.random_state)
            gram = _kernel_matrix(squared, gamma)
            for fold in range(how.folds):
                train, held_out = np.flatnonzero(numbers != fold), np.flatnonzero(numbers == fold)
                inner, outer = gram[np.ix_(train, train)], gram[np.ix_(held_out, train)]
                some = how.sample(numbers, fold)
                for row, C in enumerate(Cs, start=place * len(Cs)):
                    fitted = SVC(C=C, kernel="precomputed", tol=self.tol, cache_size=self.cache_size)
                    fitted.fit(inner, signs[train])
                    accuracy[row, fold] = np.mean((fitted.decision_function(outer) > 0) == (signs[held_out] > 0))
                    if robust is not None:
                        support, weights = train[fitted.support_], fitted.dual_coef_[0]
                        # A certificate asks for it; collecting its part of the matrix takes as long as the fit.
                        squared_norm = None
                        if how.metric == "certified_accuracy":
                            squared_norm = float(weights @ gram[np.ix_(support, support)] @ weights)
                        fits[row, fold] = (gamma, support, weights, float(fitted.intercept_[0]), squared_norm)
                        robust[row, fold] = how.robust_share(hold(row, fold), dense(rows[some]), labels[some])
                    how.report((place * how.folds + fold) * len(Cs) + row % len(Cs) + 1, accuracy.size)

        return FoldScores(settings, accuracy, robust, attack=how.attack_on(hold, rows, labels, numbers))

    # -- files ---------------------------------------------------------------------------------------------------------
    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The fitted model as plain JSON and arrays; see ``models.persistence``."""
        check_is_fitted(self)
        meta, curve = self._common_state()
        meta["dtype"] = str(self.expansion_.space.dtype).removeprefix("torch.")
        arrays = self.expansion_.arrays()
        return meta, {"vectors": arrays["rows"], "coefficients": arrays["coefficients"]} | curve

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> "KernelSVC":
        """Inverse of `get_state`; scores are equal bit for bit."""
        model = cls._from_common_state(meta, arrays)
        vectors = arrays["vectors"]
        double = meta.get("dtype", str(vectors.dtype)) == "float64"
        model._hold(vectors, arrays["coefficients"], meta["intercept"], double)
        return model


def _fit(settings: Any, X: Any, y: np.ndarray) -> SVC:
    """A fitted SVC with the `C`, `gamma_`, … of `settings`, by the fastest way there is."""
    machine, own = fastest_svc(), {"C": settings.C, "tol": settings.tol, "cache_size": settings.cache_size}
    few = not sparse.issparse(X) and X.shape[0] <= TUNING_ROWS[0]
    if settings.rank is not None and not few:
        raise ValueError(f"rank needs dense rows, at most {TUNING_ROWS[0]:,}, and there are {X.shape[0]:,}")
    if not few or (settings.rank is None and machine is not SVC):
        return machine(gamma=settings.gamma_, **own).fit(X, y)
    gram = np.empty((len(X), len(X)))  # as libsvm wants it
    for part, rest, block in _distance_blocks(X, settings.rank, settings.random_state):
        values = RBF().from_squared_distance_(block, settings.gamma_).numpy()
        gram[part, rest], gram[rest, part] = values, values.T
    np.fill_diagonal(gram, 1.0)
    return SVC(kernel="precomputed", **own).fit(gram, y)


def _squared_distances(X: Any, rank: int | None = None, seed: int = 0) -> Tensor:
    """‖x - x'‖² between all rows: float64, or with a `rank` float32 and from so many coordinates."""
    if sparse.issparse(X):
        return pair_distances(X, X)
    found = torch.empty(len(X), len(X), dtype=torch.float64 if rank is None else torch.float32)
    for part, rest, block in _distance_blocks(X, rank, seed):
        found[part, rest], found[rest, part] = block, block.t()
    return found.fill_diagonal_(0.0)


def _distance_blocks(X: np.ndarray, rank: int | None, seed: int) -> Iterator[tuple[slice, slice, Tensor]]:
    """Some rows, all from the first of them on, and ‖x - x'‖² between the two; the rest is symmetric."""
    rows = to_tensor(X, torch.float64 if rank is None else torch.float32)
    norms, Z = row_norms(rows), rows if rank is None else leading_coordinates(rows, rank, seed)
    for start in range(0, len(rows), 1024):
        part, rest = slice(start, start + 1024), slice(start, None)
        yield part, rest, squared_distances(Z[part], Z[rest], norms[part], norms[rest])


def _kernel_matrix(squared: Tensor, gamma: float) -> np.ndarray:
    """In float64, as libsvm wants it; the distances are kept for other widths."""
    gram = np.empty(squared.shape)
    for start in range(0, len(gram), 1024):
        gram[start : start + 1024] = RBF().from_squared_distance_(squared[start : start + 1024].clone(), gamma)
    return gram


class VotingSVC(TrainedHere):
    """RBF-kernel SVC of scikit-learn for more than two classes: one machine per pair, and the most votes win.

    Parameters as those of `KernelSVC`, which makes one where there are more than two classes.
    """

    tuning_rows = KernelSVC.tuning_rows
    __init__ = KernelSVC.__init__

    def _validate_params(self) -> None:
        check_limits(self, like=KernelSVC)

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any = None, y: Any = None, eval_set: Any = None, observer: Any = None) -> Self:
        """Train on the rows of X, labels of any number of classes."""
        return super().fit(X, y, eval_set, observer)

    def _train(self, X: Any, y: np.ndarray) -> SVC:
        rule = RBF(width_scale=float(self.width_scale), gamma=self.gamma)
        self.gamma_ = rule.resolve_gamma(X, int(self.random_state))
        fitted = _fit(self, X, y)
        if type(fitted) is SVC and fitted.kernel == "rbf":
            return fitted
        # The support vectors have the optimum of all rows. Their machine is scikit-learn's own, of rows: one of a
        # kernel matrix knows none, and writing that of scikit-learn-intelex to a file ends the process.
        own = {"C": self.C, "gamma": self.gamma_, "tol": self.tol, "cache_size": self.cache_size}
        return SVC(**own).fit(X[fitted.support_], y[fitted.support_])

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        return tags

    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """See ``models.persistence``."""
        meta, arrays = super().get_state()
        return meta | {"params": self.get_params(), "gamma": self.gamma_}, arrays

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> Self:
        """Inverse of `get_state`."""
        model = cls(**meta["params"])
        model.gamma_, model.curve_ = meta["gamma"], {}
        model._hold(FittedClassifier.from_state(meta, arrays).estimator)
        return model
