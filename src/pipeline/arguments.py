"""The arguments of a constructor, read from its text: the settings of a model are known without waiting for torch."""

from __future__ import annotations

import ast
import operator
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any

from pipeline.code import SOURCES, Sources

_ANYTHING = "**"


@dataclass(frozen=True)
class Argument:
    """An argument of a constructor as its text declares it."""

    default: Any = None
    required: bool = False
    kind: type | None = None  # int, float, bool, str; None for anything
    optional: bool = True
    limits: dict[str, Any] = field(default_factory=dict)  # gt, ge, lt, le, choices, words


@cache
def arguments_of(target: str, sources: Sources = SOURCES) -> dict[str, Argument] | None:
    """Arguments of a class's constructor in their order; None when it is not a class of this project or user.

    Types and limits are those of its annotations (``Annotated[float, Interval(…)]``) and of scikit-learn's
    ``_parameter_constraints``. A constructor that takes whatever it is given (``**settings``) has no such list either.
    """
    found = _declared(target, sources)
    return None if found is None or _ANYTHING in found else found


def _declared(target: str, sources: Sources) -> dict[str, Argument] | None:
    try:
        module, name = sources.locate(target)
    except ModuleNotFoundError:
        return None
    kind = next((n for n in module.tree.body if isinstance(n, ast.ClassDef) and n.name == name), None)
    if kind is None:
        origin = module.facts.bindings.get(name)
        return _declared(origin, sources) if origin else None
    found: dict[str, Argument] = {}
    for base in reversed(kind.bases):
        found |= (_declared(f"{module.name}.{base.id}", sources) if isinstance(base, ast.Name) else None) or {}
    own = next((n for n in kind.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    if own is not None:
        found = _of_function(own)
    found |= _fields(kind)
    for argument, rule in _constraints(kind).items():
        if argument in found:
            found[argument] = replace(found[argument], **rule)
    return found


def _of_function(function: ast.FunctionDef) -> dict[str, Argument]:
    rules = function.args
    positional = rules.args[1:]
    defaults = [None] * (len(positional) - len(rules.defaults)) + list(rules.defaults)
    pairs = [*zip(positional, defaults), *zip(rules.kwonlyargs, rules.kw_defaults)]
    found = {arg.arg: _argument(arg.annotation, default) for arg, default in pairs}
    return found | ({_ANYTHING: Argument()} if rules.kwarg is not None else {})


def _fields(kind: ast.ClassDef) -> dict[str, Argument]:
    """Fields of a dataclass."""
    if not any("dataclass" in ast.unparse(decorator) for decorator in kind.decorator_list):
        return {}
    return {
        node.target.id: _argument(node.annotation, node.value)
        for node in kind.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
        if "ClassVar" not in ast.unparse(node.annotation)
    }


_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str}


def _argument(annotation: ast.expr | None, default: ast.expr | None) -> Argument:
    match annotation:
        case ast.Subscript(ast.Name("Annotated"), ast.Tuple([plain, *limits])):
            return replace(_argument(plain, default), **_rule(limits))
    words = [] if annotation is None else ast.unparse(annotation).strip("'\"").split(" | ")
    kind = _KINDS.get(words[0]) if words and set(words) <= {words[0], "None"} else None
    value = None if default is None else _value(default)
    return Argument(value, default is None, kind, kind is None or "None" in words)


_ARITHMETIC = {ast.Div: operator.truediv, ast.Mult: operator.mul, ast.Pow: operator.pow, ast.Sub: operator.sub}


def _value(node: ast.expr) -> Any:
    """A default as it stands in the source: literals, and arithmetic of two of them such as 8 / 255."""
    if isinstance(node, ast.BinOp) and type(node.op) in _ARITHMETIC:
        return _ARITHMETIC[type(node.op)](_value(node.left), _value(node.right))
    try:
        return ast.literal_eval(node)
    except ValueError as error:
        raise ValueError(f"{ast.unparse(node)} is not a plain value") from error


def _constraints(kind: ast.ClassDef) -> dict[str, dict[str, Any]]:
    """Type and limits of every argument in ``_parameter_constraints``."""
    for node in kind.body:
        if not isinstance(node, ast.AnnAssign) or not isinstance(node.value, ast.Dict):
            continue
        if isinstance(node.target, ast.Name) and node.target.id == "_parameter_constraints":
            pairs = zip(node.value.keys, node.value.values)
            return {
                str(key.value): _rule(value.elts)
                for key, value in pairs
                if isinstance(key, ast.Constant) and isinstance(value, ast.List)
            }
    return {}


def _rule(options: list[ast.expr]) -> dict[str, Any]:
    optional = any(isinstance(option, ast.Constant) and option.value is None for option in options)
    calls = [option for option in options if not (isinstance(option, ast.Constant) and option.value is None)]
    if len(calls) == 2 and isinstance(calls[1], ast.Call) and ast.unparse(calls[1].func) == "StrOptions":
        # A number or one of a few words, such as "auto".
        number, words = _rule(calls[:1]), _rule(calls[1:])
        if number and words:
            limits = {**number["limits"], "words": words["limits"]["choices"]}
            return {"kind": None, "optional": optional, "limits": limits}
    if len(calls) != 1 or not isinstance(calls[0], ast.Call):
        return {"kind": bool, "optional": optional} if [ast.unparse(c) for c in calls] == ["'boolean'"] else {}
    name, arguments = ast.unparse(calls[0].func), calls[0].args
    if name == "StrOptions" and isinstance(arguments[0], ast.Set):
        choices = sorted(ast.literal_eval(arguments[0]))
        return {"kind": str, "optional": optional, "limits": {"choices": choices}}
    if name != "Interval":
        return {}
    closed = next(ast.literal_eval(k.value) for k in calls[0].keywords if k.arg == "closed")
    low, high = _value(arguments[1]), _value(arguments[2])
    limits = {} if low is None else {"ge" if closed in ("left", "both") else "gt": low}
    limits |= {} if high is None else {"le" if closed in ("right", "both") else "lt": high}
    return {"kind": int if ast.unparse(arguments[0]) == "Integral" else float, "optional": optional, "limits": limits}
