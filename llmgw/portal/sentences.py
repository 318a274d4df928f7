"""Which sentences the source can make: reasons, findings and refusals, as templates. For developers; no process
imports it.

A sentence is found where it is said: as the second argument of a `Reason` or a `Refusal`, or as what a field or a
parameter called `reason` is given. From there its text is followed back through names, parameters, calls, branches and
the errors that were caught, as far as the source shows it. An f-string becomes a template whose gaps are named by what
fills them, with its format where it has one: `{node} has {free:.1f} GiB free`.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path

from llmgw.portal.book import STATE_GAPS

FAMILY = frozenset({"Reason", "Refusal"})
"""What is told a sentence as its second argument: these, and every class below them."""
FIELDS = frozenset({"sentence", "reason", "problem", "installing"})
"""What else holds one: fields and parameters of these names."""
NOT_SHOWN = re.compile(
    r"(^|/)(migrations|management)/|^llmgw/(up/|rehearsal/(?!change|overlay)|machine\.py)"
    r"|^agent/(launchers/|rehearsal/|node/(agent|commands|joining)\.py)"
    r"|^gateway/(conform/|edge/(?!key_files)|core/(ledger/|admission/|answers|principal|request|sieve|tags))"
)
"""Whose sentences no page shows: they go to a terminal, or to the programs that call the gateway."""
_BRANCHES = 12
"""As many forms of one sentence are told apart; of more, a gap is left."""
_DEPTH = 6
_BUILT_IN = frozenset({"ValueError", "TypeError", "KeyError", "OSError", "RuntimeError"})
"""Errors of anybody: what they say is followed within the module alone."""
_LEAST = 8
"""Letters that a sentence with gaps must hold to be told from others."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Gap:
    """What is filled in: `name` is read off the source, `form` is its format."""

    name: str
    form: str = ""


Parts = tuple[str | Gap, ...]


@dataclass(slots=True)
class Source:
    """The modules that are read, and what is found in them by its name."""

    trees: dict[Path, ast.Module]
    functions: dict[str, list[tuple[Path, Function]]] = field(default_factory=lambda: defaultdict(list))
    calls: dict[str, list[tuple[Path, ast.Call]]] = field(default_factory=lambda: defaultdict(list))
    raised: dict[str, list[tuple[Path, ast.Call]]] = field(default_factory=lambda: defaultdict(list))
    holders: dict[str, dict[int, str]] = field(default_factory=dict)
    """What is told sentences besides the family: functions and classes, by which places."""
    inside: dict[ast.AST, Function] = field(default_factory=dict)
    constants: dict[tuple[Path, str], ast.expr] = field(default_factory=dict)
    imports: dict[tuple[Path, str], tuple[str, ...]] = field(default_factory=dict)
    """(who imports, as what): the module that it is, or is from."""
    family: set[str] = field(default_factory=lambda: set(FAMILY))

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Source:
        source = cls({path: ast.parse(path.read_text()) for path in paths})
        for path, tree in source.trees.items():
            source._module(path, tree)
        lines = [line for tree in source.trees.values() for line in tree.body]
        while sum(map(source._kin, lines)):
            pass
        return source

    def _module(self, path: Path, tree: ast.Module) -> None:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                self.functions[node.name].append((path, node))
                self._holds(node.name, [a.arg for a in node.args.args if a.arg not in ("self", "cls")])
                for below in ast.walk(node):
                    self.inside[below] = node  # the innermost is walked last
            elif isinstance(node, ast.Call) and (name := _called(node)):
                self.calls[name].append((path, node))
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                self.raised[_called(node.exc)].append((path, node.exc))
            elif isinstance(node, ast.ClassDef):
                self._class(node)
            elif isinstance(node, ast.ImportFrom) and node.module:
                for told in node.names:
                    self.imports[path, told.asname or told.name] = (node.module, f"{node.module}.{told.name}")
        for line in tree.body:
            if isinstance(line, ast.Assign | ast.AnnAssign) and line.value is not None:
                for target in line.targets if isinstance(line, ast.Assign) else (line.target,):
                    if isinstance(target, ast.Name):
                        self.constants[path, target.id] = line.value

    def _class(self, node: ast.ClassDef) -> None:
        made = next((f for f in node.body if isinstance(f, ast.FunctionDef) and f.name == "__init__"), None)
        fields = [f.target.id for f in node.body if isinstance(f, ast.AnnAssign) and isinstance(f.target, ast.Name)]
        self._holds(node.name, [a.arg for a in made.args.args[1:]] if made else fields)

    def _holds(self, name: str, told: list[str]) -> None:
        places = {n: argument for n, argument in enumerate(told) if argument in FIELDS}
        if places and name != "__init__":
            self.holders.setdefault(name, {}).update(places)

    def means(self, path: Path, call: ast.Call) -> list[tuple[Path, Function]]:
        """The functions that a call in `path` can mean: its own, the one imported, else the only one of that name."""
        known = self.functions.get(_called(call), [])
        at = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if isinstance(at, ast.Name) and (modules := self.imports.get((path, at.id))):
            return [(p, f) for p, f in known if any(_is_module(p, m) for m in modules)]
        return [(p, f) for p, f in known if p == path] or (known if len(known) == 1 else [])

    def _kin(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.ClassDef) or node.name in self.family:
            return False
        if {_last(base) for base in node.bases} & self.family:
            self.family.add(node.name)
            return True
        return False


def templates(root: Path, packages: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Every sentence that these packages can make and a page may show, with the module that says it."""
    source = Source.read(path for package in packages for path in sorted((root / package).rglob("*.py")))
    walk = _Walk(source)
    for path, expression in _said(source):
        if NOT_SHOWN.search(path.relative_to(root).as_posix()):
            continue
        for parts in walk.forms(path, expression):
            walk.keep(path, parts)
    yield from sorted(walk.found)


def _said(source: Source) -> Iterator[tuple[Path, ast.expr]]:
    for path, tree in source.trees.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and any(_held(target) for target in node.targets):
                yield path, node.value
    for calls in list(source.calls.values()):
        for path, call in calls:
            if _called(call) in source.family and len(call.args) > 1:
                yield path, call.args[1]
            for place in source.holders.get(_called(call), ()):
                if place < len(call.args):
                    yield path, call.args[place]
            yield from ((path, k.value) for k in call.keywords if k.arg in FIELDS)


class _Walk:
    """Follows expressions to the texts that they can be."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.found: set[tuple[Path, str]] = set()
        self._known: dict[tuple[ast.expr, int], list[Parts]] = {}

    def keep(self, path: Path, parts: Parts) -> None:
        text = _text(parts)
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
                return [_braces(form) for form in self.forms(path, told, depth + 1)]
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.List(elts=listed) | ast.Tuple(elts=listed)]):
                self._aside(path, listed, depth)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.GeneratorExp(elt=each) | ast.ListComp(elt=each)]):
                self._aside(path, [each], depth)
            case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Name() as named]):
                self._aside(path, self._listed(path, named), depth)
            case ast.Call():
                return self._returned(path, at, depth)
            case ast.Name(id=name):
                return self._named(path, at, name, depth)
        return []

    def _either(self, path: Path, values: Sequence[ast.expr], depth: int) -> list[Parts]:
        """Where the source shows one of several, the others are gaps."""
        forms = [self.forms(path, value, depth) for value in values]
        if not any(forms):
            return []
        unknown = [(Gap(_name(v)),) for v, shown in zip(values, forms, strict=True) if not shown and not _empty(v)]
        return [*(form for shown in forms for form in shown), *unknown[:1]]

    def _joined(self, path: Path, values: Sequence[ast.expr], depth: int) -> list[Parts]:
        """One after the other. What is short and has few forms is written out; what has many is a gap, and its forms
        are sentences of their own."""
        pieces: list[list[Parts]] = []
        count = 1
        bare = sum(c.isalpha() for v in values if isinstance(v, ast.Constant) for c in str(v.value)) < _LEAST
        for value in values:
            form, inner = "", value
            if isinstance(value, ast.FormattedValue):
                inner, form = value.value, _form(value)
            gap: Parts = (Gap(_name(inner), form),)
            forms = _once(self.forms(path, inner, depth + (inner is not value)))
            written = bare or isinstance(inner, ast.Constant | ast.JoinedStr | ast.IfExp | ast.BinOp)
            if written and forms and count * len(forms) <= _BRANCHES:
                pieces.append(forms)
                count *= len(forms)
                continue
            for parts in forms:
                self.keep(path, parts)
            pieces.append([gap])
        return [tuple(p for piece in chosen for p in piece) for chosen in product(*pieces)]

    def _aside(self, path: Path, values: Iterable[ast.expr], depth: int) -> None:
        """They are sentences of their own, wherever they are put together."""
        for value in values:
            for parts in self.forms(path, value, depth + 1):
                self.keep(path, parts)

    def _listed(self, path: Path, named: ast.Name) -> Iterator[ast.expr]:
        for value in self._assigned(named):
            match value:
                case ast.List(elts=elements) | ast.Tuple(elts=elements):
                    yield from elements
                case ast.ListComp(elt=each):
                    yield each
        if (function := self.source.inside.get(named)) is not None:
            for node in ast.walk(function):
                match node:
                    case ast.Call(func=ast.Attribute(value=ast.Name(id=name), attr="append"), args=[one]):
                        if name == named.id:
                            yield one

    def _returned(self, path: Path, call: ast.Call, depth: int) -> list[Parts]:
        found: list[Parts] = []
        for place, function in self.source.means(path, call):
            for node in ast.walk(function):
                if isinstance(node, ast.Return | ast.Yield) and node.value is not None:
                    found += self.forms(place, node.value, depth + 1)
        return found

    def _named(self, path: Path, at: ast.Name, name: str, depth: int) -> list[Parts]:
        found = self._either(path, list(self._assigned(at)), depth + 1)
        for value, always in self._added(at):
            tails = self.forms(path, value, depth + 1)
            if len(found) * len(tails) > _BRANCHES:
                self._aside(path, [value], depth)
                continue
            found = [(*f, *tail) for f in found for tail in tails] + ([] if always else found)
        function = self.source.inside.get(at)
        if function is not None and (place := _parameter(function, name)) is not None:
            found += self._given(path, function, name, place, depth)
            if (default := _default(function, name)) is not None:
                found += self.forms(path, default, depth + 1)
        found += self._caught(path, at, depth)
        if not found and (constant := self.source.constants.get((path, name))) is not None:
            found += self.forms(path, constant, depth + 1)
        return found

    def _caught(self, path: Path, at: ast.Name, depth: int) -> list[Parts]:
        """What an error says that was caught under this name."""
        function = self.source.inside.get(at)
        found: list[Parts] = []
        for node in ast.walk(function) if function is not None else ():
            if isinstance(node, ast.ExceptHandler) and node.name == at.id and node.type is not None:
                kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
                for kind in map(_last, kinds):
                    for place, error in self.source.raised.get(kind, ()):
                        if error.args and (kind not in _BUILT_IN or place == path):
                            said = error.args[1 if kind in self.source.family and len(error.args) > 1 else 0]
                            found += self.forms(place, said, depth + 1)
        return found

    def _assigned(self, at: ast.Name) -> Iterator[ast.expr]:
        function = self.source.inside.get(at)
        for node in ast.walk(function) if function is not None else ():
            match node:
                case ast.Assign(targets=targets, value=value):
                    for target in targets:
                        yield from _bound(target, value, at.id)
                case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if name == at.id:
                    yield value
                case ast.NamedExpr(target=ast.Name(id=name), value=value) if name == at.id:
                    yield value

    def _added(self, at: ast.Name) -> Iterator[tuple[ast.expr, bool]]:
        """What `+=` puts behind it, and whether it always does where it was assigned."""
        function = self.source.inside.get(at)
        for node in ast.walk(function) if function is not None else ():
            for block in (getattr(node, "body", None), getattr(node, "orelse", None)):
                lines = block if isinstance(block, list) else []
                fresh = any(isinstance(line, ast.Assign) and _binds(line, at.id) for line in lines)
                for line in lines:
                    if isinstance(line, ast.AugAssign) and _last(line.target) == at.id:
                        yield line.value, fresh

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


def _is_module(path: Path, module: str) -> bool:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__").endswith(module)


def _binds(line: ast.Assign, name: str) -> bool:
    return any(isinstance(n, ast.Name) and n.id == name for target in line.targets for n in ast.walk(target))


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


def _parameter(function: Function, name: str) -> int | None:
    every = [*function.args.posonlyargs, *function.args.args]
    for place, argument in enumerate(every):
        if argument.arg == name:
            return place
    return len(every) if any(a.arg == name for a in function.args.kwonlyargs) else None


def _default(function: Function, name: str) -> ast.expr | None:
    arguments, defaults = [*function.args.posonlyargs, *function.args.args], function.args.defaults
    named = dict(zip([a.arg for a in arguments[len(arguments) - len(defaults) :]], defaults, strict=True))
    named |= {a.arg: d for a, d in zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True) if d}
    return named.get(name)


def _empty(at: ast.expr) -> bool:
    """Nothing that is shown."""
    return isinstance(at, ast.Constant) and at.value in ("", None, False)


def _once(forms: list[Parts]) -> list[Parts]:
    return list(dict.fromkeys(forms))


def _held(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr.strip("_") in FIELDS


def _called(call: ast.Call) -> str:
    return _last(call.func)


def _last(at: ast.expr) -> str:
    match at:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _form(value: ast.FormattedValue) -> str:
    spec = value.format_spec
    if isinstance(spec, ast.JoinedStr) and all(isinstance(v, ast.Constant) for v in spec.values):
        return "".join(str(v.value) for v in spec.values if isinstance(v, ast.Constant))
    return ""


_PLAIN = frozenset({"self", "str", "len", "round", "sorted", "join", "id", "name", "sum", "max", "min", "get"})


def _name(at: ast.expr) -> str:
    """A word for what fills a gap, by which a translator knows it."""
    words = [n.attr if isinstance(n, ast.Attribute) else n.id for n in _inward(at)]
    telling = [w.strip("_").lower() for w in words if w not in _PLAIN and w.strip("_").isidentifier()]
    return telling[0] if telling else "what"


def _inward(at: ast.expr) -> Iterator[ast.Name | ast.Attribute]:
    match at:
        case ast.Name():
            yield at
        case ast.Attribute(value=value):
            yield at
            yield from _inward(value)
        case ast.Call(func=ast.Name(id=own) as function) if own.startswith("_"):
            yield function
        case ast.Call(func=function, args=arguments):
            for argument in arguments:
                yield from _inward(argument)
            yield from _inward(function)
        case ast.IfExp(body=body):
            yield from _inward(body)
        case ast.GeneratorExp(elt=elt) | ast.ListComp(elt=elt):
            yield from _inward(elt)
        case ast.Subscript(value=value) | ast.Starred(value=value) | ast.FormattedValue(value=value):
            yield from _inward(value)
        case ast.BinOp(left=left, right=right):
            yield from _inward(left)
            yield from _inward(right)
        case ast.BoolOp(values=[value, *_]):
            yield from _inward(value)


def _text(parts: Parts) -> str:
    """As it stands in a catalogue. Gaps of one name are told apart by a number."""
    told: list[str] = []
    count: dict[str, int] = defaultdict(int)
    for part in parts:
        if isinstance(part, str):
            told.append(part.replace("{", "{{").replace("}", "}}"))
            continue
        count[part.name] += 1
        number = "" if count[part.name] == 1 else str(count[part.name])
        told.append(f"{{{part.name}{number}{':' if part.form else ''}{part.form}}}")
    return "".join(told)


def _braces(form: Parts) -> Parts:
    """A constant that is filled by `format`."""
    if len(form) != 1 or not isinstance(form[0], str):
        return form
    pieces = re.split(r"{(\w+)(?::([^{}]*))?}", form[0])
    told: list[str | Gap] = []
    for n in range(0, len(pieces), 3):
        told.append(pieces[n])
        if n + 1 < len(pieces):
            told.append(Gap(pieces[n + 1], pieces[n + 2] or ""))
    return tuple(told)


def matchable(text: str) -> bool:
    """Whether it says enough by itself to be told from others, and has words to translate at all."""
    if " " not in text:
        return False
    literal = re.sub(r"{{|}}|{[^{}]*}", " ", text)
    letters = sum(map(str.isalpha, literal))
    words = re.findall(r"[A-Za-z]{2,}", literal)
    if not re.search(r"(?<!{){[^{]", text.replace("{{", "")):
        return letters > 3 and " " in text.strip()
    figures = all(":" in gap or gap in STATE_GAPS for gap in re.findall(r"(?<!{){([^{}]*)}", text))
    begins = not text.startswith("{")  # what it begins with tells it from most others
    return bool(words) and (letters >= (4 if begins else _LEAST) or figures)
