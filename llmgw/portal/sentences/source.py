"""The modules that are read: where sentences are said in them, and what is found by its name."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

FAMILY = frozenset({"Reason", "Refusal"})
"""What is told a sentence as its second argument: these, and every class below them."""
FIELDS = frozenset({"sentence", "reason", "problem", "installing", "tested_with"})
"""What else holds one: fields and parameters of these names."""

Function = ast.FunctionDef | ast.AsyncFunctionDef


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
            elif isinstance(node, ast.Call) and (name := called(node)):
                self.calls[name].append((path, node))
            elif isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                self.raised[called(node.exc)].append((path, node.exc))
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

    def _kin(self, node: ast.stmt) -> bool:
        if not isinstance(node, ast.ClassDef) or node.name in self.family:
            return False
        if {last_name(base) for base in node.bases} & self.family:
            self.family.add(node.name)
            return True
        return False

    def means(self, path: Path, call: ast.Call) -> list[tuple[Path, Function]]:
        """The functions that a call in `path` can mean: its own, the one imported, else the only one of that name."""
        known = self.functions.get(called(call), [])
        at = call.func.value if isinstance(call.func, ast.Attribute) else call.func
        if isinstance(at, ast.Name) and (modules := self.imports.get((path, at.id))):
            return [(p, f) for p, f in known if any(_is_module(p, m) for m in modules)]
        return [(p, f) for p, f in known if p == path] or (known if len(known) == 1 else [])

    def said(self) -> Iterator[tuple[Path, ast.expr]]:
        """What is told a reason, or held as one, and the module that does."""
        for path, tree in self.trees.items():
            for node in ast.walk(tree):
                if isinstance(node, ast.Assign) and any(_held(target) for target in node.targets):
                    yield path, node.value
        for calls in list(self.calls.values()):
            for path, call in calls:
                if called(call) in self.family and len(call.args) > 1:
                    yield path, call.args[1]
                for place in self.holders.get(called(call), ()):
                    if place < len(call.args):
                        yield path, call.args[place]
                yield from ((path, k.value) for k in call.keywords if k.arg in FIELDS)


def called(call: ast.Call) -> str:
    return last_name(call.func)


def last_name(at: ast.expr) -> str:
    match at:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
    return ""


def _held(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and target.attr.strip("_") in FIELDS


def _is_module(path: Path, module: str) -> bool:
    return ".".join(path.with_suffix("").parts).removesuffix(".__init__").endswith(module)
