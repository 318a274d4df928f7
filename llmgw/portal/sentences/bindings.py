"""What a function binds a name to."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from llmgw.portal.sentences.source import Function, last_name


def assigned(function: Function, name: str) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        match node:
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    yield from _bound(target, value, name)
            case ast.AnnAssign(target=ast.Name(id=found), value=ast.expr() as value) if found == name:
                yield value
            case ast.NamedExpr(target=ast.Name(id=found), value=value) if found == name:
                yield value


def added(function: Function, name: str) -> Iterator[tuple[ast.expr, bool]]:
    """What `+=` puts behind it, and whether it always does where it was assigned."""
    for node in ast.walk(function):
        for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
            lines = block if isinstance(block, list) else []
            fresh = any(isinstance(line, ast.Assign) and _binds(line, name) for line in lines)
            for line in lines:
                if isinstance(line, ast.AugAssign) and last_name(line.target) == name:
                    yield line.value, fresh


def listed(function: Function, name: str) -> Iterator[ast.expr]:
    """What is in the list of this name."""
    for value in assigned(function, name):
        match value:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                yield from elements
            case ast.ListComp(elt=each):
                yield each
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id=found), attr="append"), args=[one]) if found == name:
                yield one


def caught(function: Function, name: str) -> Iterator[str]:
    """The classes of the errors that are caught under this name."""
    for node in ast.walk(function):
        if isinstance(node, ast.ExceptHandler) and node.name == name and node.type is not None:
            yield from map(last_name, node.type.elts if isinstance(node.type, ast.Tuple) else [node.type])


def parameter(function: Function, name: str) -> int | None:
    """Its place among the arguments; behind the last one where it is told by its name alone."""
    every = [*function.args.posonlyargs, *function.args.args]
    for place, argument in enumerate(every):
        if argument.arg == name:
            return place
    return len(every) if any(a.arg == name for a in function.args.kwonlyargs) else None


def default(function: Function, name: str) -> ast.expr | None:
    arguments, defaults = [*function.args.posonlyargs, *function.args.args], function.args.defaults
    named = dict(zip([a.arg for a in arguments[len(arguments) - len(defaults) :]], defaults, strict=True))
    named |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d}
    return named.get(name)


def returned(function: Function) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
            yield node.value


def _bound(target: ast.expr, value: ast.expr, name: str) -> Iterator[ast.expr]:
    match target, value:
        case ast.Name(id=found), _ if found == name:
            yield value
        case ast.Tuple(elts=targets), ast.Tuple(elts=values):
            for one, its in zip(targets, values, strict=False):
                yield from _bound(one, its, name)
        case ast.Tuple(elts=targets), ast.IfExp(body=ast.Tuple() as body, orelse=ast.Tuple() as other):
            yield from _bound(target, body, name)
            yield from _bound(target, other, name)


def _binds(line: ast.Assign, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for target in line.targets for n in ast.walk(target))
