"""How fitted classifiers decide, in forms that can be proved: of every machine that ``models.decisions`` reads."""

from functools import singledispatch
from typing import Any

from models.certificates.contest import Contest, Form, binary_contest
from models.certificates.differences import highest_score, pairs
from models.certificates.gaussian import GaussianSum
from models.certificates.linear import LinearForm
from models.certificates.scaling import Scaling
from models.decisions import Decision, Highest, Sign, Unreadable, decision_of
from models.machines import Behind, Gaussian, KernelMachine, Linear, Machine, Ours, Scale, Stacked
from models.rounding import UNIT32, UNIT64, NoCertificate

_KNOWN = "certify a kernel SVM (rbf, linear), a linear classifier, or a Pipeline of scalers that ends in one"


def contest_of(model: Any, single: bool = False) -> Contest:
    """How a fitted model decides; `single` if it is given float32 rows. NoCertificate where none is known."""
    if isinstance(model, type):
        raise ValueError(f"model must be a fitted object, got the class {model.__name__}")
    try:
        return contest_of_decision(decision_of(model), single)
    except Unreadable as error:
        raise NoCertificate(f"no certificate is known for {error}: {_KNOWN}") from error


def contest_of_decision(decision: Decision, single: bool) -> Contest:
    """The forms of a decision's outputs, and which of them a class has to win."""
    machine, rule = decision.machine, decision.rule
    forms, slack = forms_of(machine, single)
    if isinstance(rule, Sign):
        return binary_contest(decision.classes, forms[0], slack)
    if isinstance(rule, Highest):
        return highest_score(decision.classes, forms, slack)
    # Whatever breaks ties: a class that wins all its comparisons has more votes than any other.
    return Contest(decision.classes, forms, pairs(len(decision.classes)), slack)


@singledispatch
def forms_of(machine: Machine, single: bool) -> tuple[list[Form], float]:
    """A form for every output, and what the conversion of the rows may move a coordinate by, relatively."""
    raise NoCertificate(f"no certificate is known for a {type(machine).__name__} machine: {_KNOWN}")


@forms_of.register
def _(machine: Linear, single: bool) -> tuple[list[Form], float]:
    unit = UNIT32 if single and machine.float32 else UNIT64
    mass = [None] * machine.n_outputs if machine.mass is None else machine.mass
    rows = zip(machine.weights, machine.intercepts.tolist(), mass)
    forms: list[Form] = [
        LinearForm(w, b, unit, own, 0.0, machine.terms, allowance=machine.allowance) for w, b, own in rows
    ]
    # A kernel machine converts the rows first, a linear classifier multiplies them as they are.
    return forms, UNIT32 if single and machine.float32 and machine.mass is not None else 0.0


@forms_of.register
def _(machine: Gaussian, single: bool) -> tuple[list[Form], float]:
    forms: list[Form] = []
    for column, intercept in zip(machine.weights.T, machine.intercepts.tolist()):
        used = column != 0
        form = GaussianSum(machine.vectors[used], column[used], machine.gamma, intercept, machine.allowance)
        forms.append(form.in_float32() if single and machine.float32 else form)
    return forms, UNIT32 if single and machine.float32 else 0.0


@forms_of.register
def _(machine: KernelMachine, single: bool) -> tuple[list[Form], float]:
    kind = {"polynomial": "poly"}.get(type(machine).__name__.lower(), type(machine).__name__.lower())
    raise NoCertificate(f"no certificate is known for the {kind} kernel: use rbf or linear")


@forms_of.register
def _(machine: Ours, single: bool) -> tuple[list[Form], float]:
    if not callable(getattr(machine.model, "form", None)):
        raise NoCertificate(f"no certificate is known for a {type(machine.model).__name__}: it states no form")
    form, slack = machine.model.form()
    return [form], slack


@forms_of.register
def _(machine: Stacked, single: bool) -> tuple[list[Form], float]:
    found = [forms_of(one, single) for one in machine.machines]
    return [forms[0] for forms, _ in found], max(slack for _, slack in found)


@forms_of.register
def _(machine: Behind, single: bool) -> tuple[list[Form], float]:
    for step in machine.steps:
        if not isinstance(step, Scale):
            raise NoCertificate(
                f"no certificate is known behind a {type(step).__name__} step: steps must scale every feature by "
                "itself (StandardScaler, MinMaxScaler without clip, MaxAbsScaler, RobustScaler)"
            )
    forms, slack = forms_of(machine.machine, single)
    steps = [(step.scale, step.shift) for step in machine.steps if isinstance(step, Scale)]
    scaling = Scaling(steps, max(UNIT32 if single else UNIT64, slack))
    return [_behind(form, scaling) for form in forms], 0.0


def _behind(form: Any, scaling: Scaling) -> Any:
    if not hasattr(form, "behind"):
        raise NoCertificate(f"no certificate is known for a {type(form).__name__} behind a scaler: scale the data")
    inner = form.scaling  # of a Pipeline inside this one: ours comes before it
    return form.behind(scaling if inner is None else scaling.then(inner))
