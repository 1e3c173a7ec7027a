"""The linear SVM of Zhou, Kantarcioglu, Thuraisingham and Xi (2012) against a free-range attacker."""

import warnings
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from sklearn.base import _fit_context
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils.validation import check_is_fitted

from models.binary import BinaryClassifier
from models.certificates import linear_radius
from models.certificates.certify import certified_radius
from models.certificates.contest import Form
from models.certificates.linear import LinearForm
from models.distances import dense
from models.grid import Axes, CrossValidation, FoldScores
from models.limits import BOOLEAN, POSITIVE, instance, one_of, whole, within
from models.linear_columns import solve_columns
from models.linear_problem import Candidate, FreeRangeProblem
from models.linear_solver import solve
from models.rounding import UNIT64
from models.threat import Box
from models.training import Observer

_STAGES = 50
# Newton's matrix and its factor in float64: 4 GiB.
_MOST_FEATURES = 16_384


@dataclass(eq=False, repr=False)
class AdvLinearSVM(BinaryClassifier):
    """Linear SVM for data that an attacker may move: feature j of an attacked row by up to C_f of its way to the box.

    Minimises ½‖w‖² + C Σ_i [1 - y_i (w·x_i + b) + t_i]_+, where t_i is the most that δ_ij in
    [C_f (low_j - x_ij), C_f (high_j - x_ij)] can take from the margin of an attacked row, and 0 for the others. Solved
    to a relative duality gap of `tol`; see ``models.linear_problem`` for the reduced form.

    Parameters
    ----------
    C : float, default=1.0
        Weight of the hinge losses.
    C_f : float, default=0.1
        How much of the way to the edge of the box the attacker may move, in [0, 1]; 0 is the plain linear SVM.
    attacked_class : {"positive", "negative", "both"}, default="positive"
        Whose rows move; positive is ``classes_[1]``.
    box : (low, high) or None, default=None
        Edges of the box, numbers or arrays of shape (d,). None takes each feature's smallest and largest value in the
        training data, as in the paper.
    fit_intercept : bool, default=True
    tol : float, default=1e-4
        Relative duality gap at which to stop. float32 data supports about 1e-5.
    max_iter : int, default=400
        Newton steps.

    Attributes
    ----------
    classes_ : array of shape (2,)
    coef_ : array of shape (1, d)
    intercept_ : array of shape (1,)
    objective_ : float
        What was minimised.
    dual_gap_ : float
        Relative: the optimum is at least ``objective_ * (1 - dual_gap_)``.
    n_iter_ : int
        Newton steps.
    n_features_in_ : int
    curve_ : dict of arrays
        "iteration", "norm", "objective", and "test_error" if `eval_set` was given; at most 50 entries, the last the
        solution. The objective of an early entry is that of the rows then in use.
    """

    C: Annotated[float, POSITIVE] = 1.0
    C_f: Annotated[float, within(0, 1)] = 0.1
    attacked_class: Annotated[str, one_of("positive", "negative", "both")] = "positive"
    box: Annotated[tuple[Any, Any] | None, instance(tuple, list)] = None
    fit_intercept: Annotated[bool, BOOLEAN] = True
    tol: Annotated[float, POSITIVE] = 1e-4
    max_iter: Annotated[int, whole(1)] = 400

    _stored_numbers: ClassVar[tuple[str, ...]] = ("objective", "dual_gap", "n_iter")

    @_fit_context(prefer_skip_nested_validation=True)
    def fit(self, X: Any, y: Any, eval_set: Any = None, observer: Observer | None = None) -> "AdvLinearSVM":
        """Train on the rows of X.

        Parameters
        ----------
        X : array or CSR matrix of shape (n, d)
            Sparse rows stay sparse.
        y : array of shape (n,)
            Any two labels.
        eval_set : (X, y), optional
            Rows whose error is followed by Newton step, see `curve_`.
        observer : callable, optional
            ``observer("train", step, max_iter, norm=, objective=[, test_error=])``.
        """
        X, signs = self._validate_training_data(X, y)
        evaluation = self._validate_evaluation(eval_set)
        stages: list[tuple[int, Candidate]] = []

        def record(step: int, candidate: Candidate) -> None:
            stages.append((step, candidate))
            if observer is not None:
                values = {"norm": float(np.linalg.norm(candidate.weights)), "objective": candidate.objective}
                if evaluation is not None:
                    values["test_error"] = _error(candidate, *evaluation)
                observer("train", step, self.max_iter, **values)

        solution = solve(self._problem(X, signs), self.tol, self.max_iter, callback=record)
        self.coef_, self.intercept_ = solution.weights[None, :], np.array([solution.intercept])
        self.objective_, self.dual_gap_, self.n_iter_ = solution.objective, solution.gap, solution.n_iter
        if self.dual_gap_ > self.tol:
            warnings.warn(
                f"stopped at a relative duality gap of {self.dual_gap_:.1e} after {solution.n_iter} Newton steps, "
                f"above tol={self.tol:g}: increase max_iter or tol, or scale the features to [0, 1]",
                ConvergenceWarning,
                stacklevel=2,
            )
        final = Candidate(solution.weights, solution.intercept, solution.objective)
        self._keep_stages([*stages[:-1], (max(solution.n_iter, 1), final)], evaluation)
        return self

    def _problem(self, X: Any, signs: np.ndarray) -> FreeRangeProblem:
        if X.shape[1] > _MOST_FEATURES:
            raise ValueError(
                f"AdvLinearSVM solves a system in its weights: {X.shape[1]:,} features would take "
                f"{16e-9 * X.shape[1] ** 2:.0f} GB; choose at most {_MOST_FEATURES:,} features, or a linear model of "
                "scikit-learn such as LinearSVC"
            )
        X = X.astype(np.float32) if X.dtype == np.uint8 else X
        edges = [dense(edge).ravel().astype(np.float64) for edge in (X.min(axis=0), X.max(axis=0))]
        if self.box is None:
            low, high = edges
        else:
            low, high = (np.broadcast_to(np.asarray(e, dtype=np.float64), (X.shape[1],)) for e in self.box)
            if not (low <= high).all():
                raise ValueError("box must be (low, high) with low <= high")
            if (low > edges[0]).any() or (high < edges[1]).any():
                raise ValueError("box does not hold all rows of X: widen it, or leave it None to take it from the data")
        attacked = {"positive": signs > 0, "negative": signs < 0, "both": np.full(len(signs), True)}
        strength = np.where(attacked[self.attacked_class], float(self.C_f), 0.0)
        return FreeRangeProblem(X, signs, strength, low, high, float(self.C), bool(self.fit_intercept))

    def _keep_stages(
        self, stages: list[tuple[int, Candidate]], evaluation: tuple[np.ndarray, np.ndarray] | None
    ) -> None:
        kept = [stages[k] for k in np.unique(np.linspace(0, len(stages) - 1, _STAGES).round().astype(int))]
        self._stage_weights = np.stack([c.weights for _, c in kept])
        self._stage_intercepts = np.array([c.intercept for _, c in kept])
        self.curve_ = {
            "iteration": np.array([step for step, _ in kept]),
            "norm": np.linalg.norm(self._stage_weights, axis=1),
            "objective": np.array([c.objective for _, c in kept]),
        }
        if evaluation is not None:
            self.curve_["test_error"] = np.array([_error(c, *evaluation) for _, c in kept])

    # -- the model side of the attacks' protocol -----------------------------------------------------------------------
    def scores(self, X: Any) -> np.ndarray:
        """w·x + b, shape (n,), float64; positive means ``classes_[1]``."""
        X = self._validate_rows(X)
        return np.asarray(X.astype(np.float64, copy=False) @ self.coef_[0] + self.intercept_[0])

    def scores_and_gradients(self, X: Any) -> tuple[np.ndarray, np.ndarray]:
        """w·x + b, shape (n,), float64, and w for every row, shape (n, d)."""
        scores = self.scores(X)
        return scores, np.tile(self.coef_, (len(scores), 1))

    def probe(self, X: Any, coords: Any, h: float) -> tuple[np.ndarray, np.ndarray]:
        """Scores at x + h·e_j and x - h·e_j for each j in `coords`, both of shape (n, q), float64."""
        even = self.scores(X)[:, None]
        odd = float(h) * self.coef_[:, np.asarray(coords, dtype=np.intp)]
        return even + odd, even - odd

    def staged_scores(self, X: Any) -> np.ndarray:
        """Scores of the iterates in `curve_`, shape (T, n), float64."""
        X = self._validate_rows(X)
        return np.asarray(self._stage_weights @ X.astype(np.float64, copy=False).T + self._stage_intercepts[:, None])

    def certified_radius(  # type: ignore[override]
        self, X: Any, y: Any, bound: str | None = None, norm: str = "l2", box: Box = None
    ) -> np.ndarray:
        """Distance to the hyperplane, shape (n,); 0 where the label y is wrong already. No radius is larger.

        `norm` is "l2" or "linf"; `box`, (low, high) or None, is where the moved point must stay.
        """
        if bound not in (None, "linear"):
            raise ValueError(f"bound={bound!r} does not hold for this model; choose from linear")
        X = dense(self._validate_rows(X)).astype(np.float64, copy=False)
        if norm != "l2" or box is not None:
            return certified_radius(self, X, y, norm, box)
        weights, intercept = self.coef_[0], float(self.intercept_[0])
        length = float(np.linalg.norm(weights))
        # A dot product of length d is off by at most d units of Σ|x_j w_j|; twice, for this score and the one it is
        # compared with at the edge of the ball.
        units = 4 * UNIT64 * (len(weights) + 4)
        error = units * (np.abs(X) @ np.abs(weights) + abs(intercept))
        margins = self._signs(y) * (X @ weights + intercept)
        return linear_radius(margins, length, margin_error=error, norm_error=units * length)

    def form(self) -> tuple[Form, float]:
        """What ``models.certify`` asks: f, and that its rows are taken as they are."""
        return LinearForm(self.coef_[0], float(self.intercept_[0])), 0.0

    # -- tuning --------------------------------------------------------------------------------------------------------
    def cv_scores(self, X: Any, y: Any, axes: Axes, how: CrossValidation) -> FoldScores:
        """Every setting of a grid (C, C_f) on every fold; see ``models.grid_search``.

        The columns of a C_f are solved together, to a relative gap of about 1e-3 (``models.linear_columns``). A box
        taken from the data is that of all rows here: it says nothing about labels, and lets the folds share one matrix.
        """
        Cs, strengths = axes["C"], axes.get("C_f", [self.C_f])
        fitted = AdvLinearSVM(**self.get_params())
        rows, signs = fitted._validate_training_data(X, y)
        labels, numbers = fitted.classes_[(signs > 0).astype(int)], how.assign(signs)
        settings = [{"C": C} | ({"C_f": s} if "C_f" in axes else {}) for s in strengths for C in Cs]
        per_strength, total = len(Cs) * how.folds, len(settings) * how.folds
        # Column C · folds + fold.
        trained = np.tile(numbers[:, None] != np.arange(how.folds), (1, len(Cs)))
        weights, intercepts = [], []
        for turn, strength in enumerate(strengths):

            def tell(done: int, before: int = turn * per_strength) -> None:
                how.report(before + done, total)

            problem = fitted.set_params(C_f=strength)._problem(rows, signs)
            found = solve_columns(problem, np.repeat(Cs, how.folds), trained, max(self.tol, 1e-3), callback=tell)
            weights += list(found.weights.T)
            intercepts += list(found.intercepts)
        accuracy, robust = how.begin(len(settings))

        def hold(place: int, fold: int) -> AdvLinearSVM:
            column = place * how.folds + fold
            fitted.coef_, fitted.intercept_ = weights[column][None, :], np.array([intercepts[column]])
            return fitted

        for fold in range(how.folds):
            held_out, some = numbers == fold, how.sample(numbers, fold)
            for place in range(len(settings)):
                accuracy[place, fold] = np.mean(hold(place, fold).predict(rows[held_out]) == labels[held_out])
                if robust is not None:
                    robust[place, fold] = how.robust_share(fitted, dense(rows[some]), labels[some])
        how.report(total, total)
        return FoldScores(settings, accuracy, robust, attack=how.attack_on(hold, rows, labels, numbers))

    # -- files ---------------------------------------------------------------------------------------------------------
    def get_state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The fitted model as plain JSON and arrays; see ``models.persistence``."""
        check_is_fitted(self)
        meta, curve = self._common_state()
        if self.box is not None:
            meta["params"]["box"] = [np.asarray(edge, dtype=np.float64).tolist() for edge in self.box]
        arrays = {
            "coef": self.coef_,
            "intercept": self.intercept_,
            "stage_weights": self._stage_weights,
            "stage_intercepts": self._stage_intercepts,
        }
        return meta, arrays | curve

    @classmethod
    def from_state(cls, meta: dict[str, Any], arrays: dict[str, np.ndarray]) -> "AdvLinearSVM":
        """Inverse of `get_state`; scores are equal bit for bit."""
        model = cls._from_common_state(meta, arrays)
        model.coef_, model.intercept_ = arrays["coef"], arrays["intercept"]
        model._stage_weights, model._stage_intercepts = arrays["stage_weights"], arrays["stage_intercepts"]
        return model


def _error(candidate: Candidate, X: Any, signs: np.ndarray) -> float:
    scores = X.astype(np.float64, copy=False) @ candidate.weights + candidate.intercept
    return float(np.mean(np.where(scores > 0, 1.0, -1.0) != signs))
