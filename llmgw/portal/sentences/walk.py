"""Follows expressions to the texts that they can be."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path

from llmgw.portal.sentences import bindings
from llmgw.portal.sentences.source import Function, Source
from llmgw.portal.sentences.template import LEAST, Parts, filled, gap, letters, matchable, text_of

_BRANCHES = 12
"""As many forms of one sentence are told apart; of more, a gap is left."""
_DEPTH = 6
_BUILT_IN = frozenset({"ValueError", "TypeError", "KeyError", "OSError", "RuntimeError"})
"""Errors of anybody: what they say is followed within the module alone."""


class Walk:
    """Follows expressions to the texts that they can be."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: set[tuple[Path, str]] = set()
        self._known: dict[tuple[ast.expr, int], list[Parts]] = {}

    def keep_all(self, path: Path, at: ast.expr, depth: int = 0) -> None:
        """Each of its texts is a sentence of its own, wherever it is put together with others."""
        for parts in self.forms(path, at, depth):
            self._keep(path, parts)

    def _keep(self, path: Path, parts: Parts) -> None:
        text = text_of(parts)
        if matchable(text):
            self.found.add((path, text))

    def forms(self, path: Path, at: ast.expr, depth: int = 0) -> list[Parts]:
        """The texts that it can be; none where the source does not show it."""
        if depth > _DEPTH:
            return []
        if (at, depth) not in self._known:
            self._known[at, depth] = _once(self._forms(path, at, depth))
        return self._known[at, depth]

    def _forms(self, path: Path, at: ast.expr, depth: int) -> list[Parts]:
        match at:
            case ast.Constant(value=str(text)):
                return [(text,)]
            case ast.JoinedStr(values=values):
                return self._joined(path, values, depth)
            case ast.BinOp(left=left, op=ast.Add(), right=right):
                return self._joined(path, (left, right), depth)
            case ast.IfExp(body=body, orelse=other):
                return self._either(path, (body, other), depth)
            case ast.BoolOp(values=values):
                return self._either(path, values, depth)
            case ast.Tuple(elts=[first, *_]):  # what a function returns with its sentence
                return self.forms(path, first, depth)
            case ast.NamedExpr(value=value):
                return self.forms(path, value, depth)
            case ast.Subscript(value=ast.Name(id=name)) if isinstance(
                table := self.source.constants.get((path, name)), ast.Dict
            ):
                return [f for v in table.values for f in self.forms(path, v, depth + 1)]
            case ast.Call(func=ast.Name(id="str"), args=[ast.Name() as named]):
                return self.forms(path, named, depth)
            case ast.Call(func=ast.Attribute(attr="format", value=told)):
                return [filled(form) for form in self.forms(path, told, depth + 1)]
            case ast.Call(func=ast.Attribute(attr="join"), args=[listed]):
                for value in self._elements(listed):
                    self.keep_all(path, value, depth + 1)
            case ast.Call():
                return self._returned(path, at, depth)
            case ast.Name():
                return self._named(path, at, depth)
        return []

    def _either(self, path: Path, values: Sequence[ast.expr], depth: int) -> list[Parts]:
        """Where the source shows one of several, the others are gaps."""
        forms = [self.forms(path, value, depth) for value in values]
        if not any(forms):
            return []
        unknown = [(gap(v),) for v, shown in zip(values, forms, strict=True) if not shown and not _empty(v)]
        return [*(form for shown in forms for form in shown), *unknown[:1]]

    def _joined(self, path: Path, values: Sequence[ast.expr], depth: int) -> list[Parts]:
        """One after the other. What is short and has few forms is written out; what has many is a gap, and its forms
        are sentences of their own."""
        pieces: list[list[Parts]] = []
        count = 1
        bare = letters(values) < LEAST
        for value in values:
            inner = value.value if isinstance(value, ast.FormattedValue) else value
            forms = self.forms(path, inner, depth + (inner is not value))
            written = bare or isinstance(inner, ast.Constant | ast.JoinedStr | ast.IfExp | ast.BinOp)
            if written and forms and count * len(forms) <= _BRANCHES:
                pieces.append(forms)
                count *= len(forms)
                continue
            for parts in forms:
                self._keep(path, parts)
            pieces.append([(gap(value),)])
        return [tuple(p for piece in chosen for p in piece) for chosen in product(*pieces)]

    def _elements(self, listed: ast.expr) -> Iterable[ast.expr]:
        match listed:
            case ast.List(elts=elements) | ast.Tuple(elts=elements):
                return elements
            case ast.GeneratorExp(elt=each) | ast.ListComp(elt=each):
                return [each]
            case ast.Name(id=name) if (function := self.source.inside.get(listed)) is not None:
                return bindings.listed(function, name)
        return ()

    def _returned(self, path: Path, call: ast.Call, depth: int) -> list[Parts]:
        found: list[Parts] = []
        for place, function in self.source.means(path, call):
            for value in bindings.returned(function):
                found += self.forms(place, value, depth + 1)
        return found

    def _named(self, path: Path, at: ast.Name, depth: int) -> list[Parts]:
        function = self.source.inside.get(at)
        found = self._bound(path, function, at.id, depth) if function is not None else []
        if not found and (constant := self.source.constants.get((path, at.id))) is not None:
            found = self.forms(path, constant, depth + 1)
        return found

    def _bound(self, path: Path, function: Function, name: str, depth: int) -> list[Parts]:
        """What a name stands for in a function."""
        found = self._either(path, list(bindings.assigned(function, name)), depth + 1)
        for value, always in bindings.added(function, name):
            tails = self.forms(path, value, depth + 1)
            if len(found) * len(tails) > _BRANCHES:
                self.keep_all(path, value, depth + 1)
                continue
            found = [(*f, *tail) for f in found for tail in tails] + ([] if always else found)
        if (place := bindings.parameter(function, name)) is not None:
            found += self._given(path, function, name, place, depth)
            if (default := bindings.default(function, name)) is not None:
                found += self.forms(path, default, depth + 1)
        for kind in bindings.caught(function, name):
            found += self._raised(path, kind, depth)
        return found

    def _given(self, path: Path, function: Function, name: str, place: int, depth: int) -> list[Parts]:
        """What a parameter is given by those who call it."""
        found: list[Parts] = []
        for caller, call in self.source.calls.get(function.name, []):
            if (path, function) not in self.source.means(caller, call):
                continue
            own = function.args.args[0].arg if function.args.args else ""
            at = place - (own in ("self", "cls") and isinstance(call.func, ast.Attribute))
            if 0 <= at < len(call.args):
                found += self.forms(caller, call.args[at], depth + 1)
            found += [f for k in call.keywords if k.arg == name for f in self.forms(caller, k.value, depth + 1)]
        return found

    def _raised(self, path: Path, kind: str, depth: int) -> list[Parts]:
        """What an error of this class says."""
        found: list[Parts] = []
        for place, error in self.source.raised.get(kind, ()):
            if error.args and (kind not in _BUILT_IN or place == path):
                said = error.args[1 if kind in self.source.family and len(error.args) > 1 else 0]
                found += self.forms(place, said, depth + 1)
        return found


def _empty(at: ast.expr) -> bool:
    """Nothing that is shown."""
    return isinstance(at, ast.Constant) and at.value in ("", None, False)


def _once(forms: list[Parts]) -> list[Parts]:
    return list(dict.fromkeys(forms))
