"""The free-range adversarial linear SVM exactly as Zhou et al. (2012) write it, with all its auxiliary variables."""

import cvxpy as cp
import numpy as np


def full_problem(X, signs, attacked, C, C_f, low, high, fit_intercept=True):
    """Solve it with CVXPY and Clarabel; returns w, b and the objective.

    For each attacked row i and feature j the inner problem (the worst δ_ij in [C_f (low_j - x_ij), C_f (high_j -
    x_ij)]) is replaced by its dual: u_ij, v_ij ≥ 0 with u_ij - v_ij = -y_i w_j and
    t_i = Σ_j C_f (high_j - x_ij) u_ij - C_f (low_j - x_ij) v_ij.
    """
    n, d = X.shape
    w, b, loss = cp.Variable(d), cp.Variable(), cp.Variable(n)
    t = [0.0] * n
    constraints = [loss >= 0]
    if not fit_intercept:
        constraints.append(b == 0)
    for i in np.flatnonzero(attacked):
        u, v = cp.Variable(d, nonneg=True), cp.Variable(d, nonneg=True)
        constraints.append(u - v == -signs[i] * w)
        t[i] = C_f * ((high - X[i]) @ u - (low - X[i]) @ v)
    constraints += [loss[i] >= 1 - signs[i] * (X[i] @ w + b) + t[i] for i in range(n)]
    problem = cp.Problem(cp.Minimize(0.5 * cp.sum_squares(w) + C * cp.sum(loss)), constraints)
    problem.solve(solver=cp.CLARABEL, tol_gap_abs=1e-10, tol_gap_rel=1e-10, tol_feas=1e-10)
    return w.value, float(b.value), float(problem.value)


def objective(w, b, X, signs, attacked, C, C_f, low, high):
    """½‖w‖² + C Σ hinge, the attacker's move found feature by feature."""
    total = 0.5 * w @ w
    for x, sign, is_attacked in zip(X, signs, attacked):
        moves = np.stack([C_f * (low - x), C_f * (high - x)]) if is_attacked else np.zeros((1, len(x)))
        worst = np.min(sign * w * moves, axis=0).sum()
        total += C * max(0.0, 1 - sign * (w @ x + b) - worst)
    return total
