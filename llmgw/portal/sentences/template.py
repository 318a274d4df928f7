"""A text with gaps, as it stands in a catalogue, and whether a sentence can be told from others by it."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from llmgw.portal.book import STATE_GAPS

LEAST = 8
"""Letters that a sentence with gaps must hold to be told from others."""
_PLAIN = frozenset({"self", "str", "len", "round", "sorted", "join", "id", "name", "sum", "max", "min", "get"})


@dataclass(frozen=True, slots=True)
class Gap:
    """What is filled in: `name` is read off the source, `form` is its format."""

    name: str
    form: str = ""


Parts = tuple[str | Gap, ...]


def text_of(parts: Parts) -> str:
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


def matchable(text: str) -> bool:
    """Whether it says enough by itself to be told from others, and has words to translate at all."""
    if " " not in text:
        return False
    literal = re.sub(r"{{|}}|{[^{}]*}", " ", text)
    count = sum(map(str.isalpha, literal))
    words = re.findall(r"[A-Za-z]{2,}", literal)
    if not re.search(r"(?<!{){[^{]", text.replace("{{", "")):
        return count > 3 and " " in text.strip()
    figures = all(":" in told or told in STATE_GAPS for told in re.findall(r"(?<!{){([^{}]*)}", text))
    begins = not text.startswith("{")  # what it begins with tells it from most others
    return bool(words) and (count >= (4 if begins else LEAST) or figures)


def filled(form: Parts) -> Parts:
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


def gap(at: ast.expr) -> Gap:
    """What stands in a text for this."""
    return Gap(_name(at.value), _form(at)) if isinstance(at, ast.FormattedValue) else Gap(_name(at))


def letters(values: Iterable[ast.expr]) -> int:
    """Of what is said between the gaps."""
    return sum(c.isalpha() for v in values if isinstance(v, ast.Constant) for c in str(v.value))


def _form(value: ast.FormattedValue) -> str:
    spec = value.format_spec
    if isinstance(spec, ast.JoinedStr) and all(isinstance(v, ast.Constant) for v in spec.values):
        return "".join(str(v.value) for v in spec.values if isinstance(v, ast.Constant))
    return ""


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
