"""Which template made a sentence, and the sentence in another language. Pure.

A sentence is matched with the templates that the source can make. What filled their gaps is filled into the
translation, and translated itself where it is a sentence. The longest text of its own wins.
"""

from __future__ import annotations

import re
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

STATE_GAPS = frozenset({"state", "observed"})
"""Gaps that hold a state's code."""
AMOUNT_GAPS = frozenset({"budget", "cost", "held", "left", "spent"})
"""Gaps that hold money, which is written like 0.0021."""
_LONGEST = 2000
"""Characters; what is longer is no sentence of ours."""
_DEEPEST = 4
"""So deep one sentence may stand in another."""

_GAP = re.compile(r"{{|}}|{(\w+)(?::([^{}]*))?}")
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]+")
_FIGURE = r"-?[\d,]+(?:\.\d+)?(?:e[+-]\d+)?"
_MEASURED = re.compile(rf"{_FIGURE} ?(?:[KMGT]iB|k?W|G[Bb]/s|ms|s|min|h|d|%)")
_AMOUNT = re.compile(_FIGURE + "%?")
_SO_MANY = re.compile(r"(\d+ × )(.+)")
_MOMENT = r"[\d: -]+"


@dataclass(frozen=True, slots=True)
class Pattern:
    """A template and its translation. `weight`: the letters that are the same in every sentence of it."""

    literals: tuple[str, ...]
    gaps: tuple[str, ...]
    figures: frozenset[str]
    regex: re.Pattern[str]
    weight: int
    text: str


@dataclass(frozen=True, slots=True)
class Found:
    weight: int
    text: str


class Book:
    """Every template of a language, by the rarest word that each has."""

    def __init__(
        self,
        messages: Mapping[str, str],
        states: Mapping[str, object] | None = None,
        units: Mapping[str, object] | None = None,
    ) -> None:
        """`messages`: the translation of each template. `states`: words for what rows call by a code; `units`: for
        units of time."""
        self._states, self._units = states or {}, units or {}
        patterns = [_pattern(template, text) for template, text in messages.items() if text]
        count = Counter(word for p in patterns for word in _words(p))
        self.patterns = patterns
        self._whole = {p.literals[0]: p for p in patterns if not p.gaps}
        self._by_word: dict[str, list[Pattern]] = defaultdict(list)
        for p in sorted(patterns, key=_order):
            if p.gaps and (words := _words(p)):
                self._by_word[min(words, key=lambda word: (count[word], -len(word), word))].append(p)
            elif p.gaps:
                self._by_word[""].append(p)

    def find(self, sentence: str, depth: int = 0) -> Found | None:
        """The template with the longest text of its own that makes the whole sentence; else it is several in a row."""
        if not sentence or len(sentence) > _LONGEST or depth > _DEEPEST:
            return None
        one = self._one(sentence, depth)
        several = self._several(sentence, depth)
        found = max((f for f in (several, one) if f), key=lambda f: f.weight, default=None)
        return found or self._named(sentence, depth) or self._counted(sentence, depth)

    def _one(self, sentence: str, depth: int) -> Found | None:
        if (whole := self._whole.get(sentence)) is not None:
            return Found(whole.weight, whole.text)
        for pattern in self._candidates(sentence):
            if (match := pattern.regex.fullmatch(sentence)) is not None:
                return self._filled(pattern, match, depth)
        return None

    def _candidates(self, sentence: str) -> Iterator[Pattern]:
        words = {"", *_WORD.findall(sentence)}
        near = [p for word in words for p in self._by_word.get(word, ()) if _holds(sentence, p.literals)]
        yield from sorted(near, key=_order)

    def _filled(self, pattern: Pattern, match: re.Match[str], depth: int) -> Found:
        weight, filled = pattern.weight, {}
        for gap in pattern.gaps:
            if gap in STATE_GAPS and match[gap] in self._states:
                filled[gap] = str(self._states[match[gap]])
                continue
            filled[gap], more = self._argument(match[gap], gap in pattern.figures | AMOUNT_GAPS, depth)
            weight += more
        return Found(weight, _GAP.sub(lambda m: filled.get(m[1], m[0]) if m[1] else m[0][0], pattern.text))

    def _argument(self, text: str, figure: bool, depth: int) -> tuple[str, int]:
        if (figure and _AMOUNT.fullmatch(text)) or _MEASURED.fullmatch(text):
            amount, space, unit = text.translate(_POINTS).rpartition(" ")
            return amount + space + str(self._units.get(unit, unit)), 0
        inner = self.find(text, depth + 1) if text.strip() else None
        return (inner.text, inner.weight) if inner else (text, 0)

    def _several(self, sentence: str, depth: int) -> Found | None:
        for between in ("\n", "; ", ". "):
            if between in sentence:
                parts = [self.find(part, depth + 1) for part in sentence.split(between)]
                if all(parts):
                    known = [p for p in parts if p]
                    return Found(sum(p.weight for p in known), between.join(p.text for p in known))
        return None

    def _named(self, sentence: str, depth: int) -> Found | None:
        """`n1: a sentence`: what it is about is named before it."""
        name, _, rest = sentence.partition(": ")
        if not rest or (found := self.find(rest, depth + 1)) is None:
            return None
        known = self.find(name, depth + 1)
        return Found(found.weight, f"{known.text if known else name}: {found.text}")

    def _counted(self, sentence: str, depth: int) -> Found | None:
        """`2 × cordoned, 1 × too old`: so many of each."""
        weight = 0
        told: list[str] = []
        for part in sentence.split(", "):
            match = _SO_MANY.fullmatch(part)
            words = self._states.get(match[2]) or self.find(match[2], depth + 1) if match else None
            if match is None or words is None:
                return None
            text = words.text if isinstance(words, Found) else str(words)
            weight += sum(map(str.isalpha, match[2]))
            told.append(match[1] + text)
        return Found(weight, ", ".join(told))


_POINTS = str.maketrans({".": ",", ",": "."})


def _order(pattern: Pattern) -> tuple[int, int, int, int]:
    """The longest text first; of equals the one with more signs, fewer gaps, and gaps that take less."""
    signs = sum(map(len, pattern.literals))
    return -pattern.weight, -signs, len(pattern.gaps), -len(STATE_GAPS.intersection(pattern.gaps))


def _holds(sentence: str, literals: tuple[str, ...]) -> bool:
    """Whether they stand in it, in order: cheap, and true of every sentence that the pattern makes."""
    at = 0
    for literal in literals:
        at = sentence.find(literal, at)
        if at < 0:
            return False
        at += len(literal)
    return True


def _pattern(template: str, text: str) -> Pattern:
    literals, gaps, figures, regex, at = [""], [], set(), "", 0
    for match in _GAP.finditer(template):
        plain = template[at : match.start()]
        joined = _GAP.match(template, match.end()) is not None
        at = match.end()
        literals[-1] += plain
        regex += re.escape(plain)
        name, form = match[1], match[2] or ""
        if name is None:
            literals[-1] += match[0][0]
            regex += re.escape(match[0][0])
            continue
        literals.append("")
        gaps.append(name)
        if form.startswith("%"):
            regex += f"(?P<{name}>{_MOMENT})"
        elif name in STATE_GAPS:
            regex += f"(?P<{name}>[A-Za-z_ ]+)"
        elif form and form[-1] in "fgd,%":
            figures.add(name)
            regex += f"(?P<{name}>{_FIGURE}%?)"
        else:
            # Of two gaps side by side the first takes one word, for nothing else tells where it ends.
            regex += f"(?P<{name}>{_MEASURED.pattern}|[^\\s:,;]*)" if joined else f"(?P<{name}>.*?)"
    literals[-1] += template[at:]
    regex += re.escape(template[at:])
    weight = sum(c.isalpha() for literal in literals for c in literal)
    plain = text if gaps else text.replace("{{", "{").replace("}}", "}")
    return Pattern(tuple(literals), tuple(gaps), frozenset(figures), re.compile(regex, re.DOTALL), weight, plain)


def _words(pattern: Pattern) -> set[str]:
    """Whole words of it: one that touches a gap may be longer in the sentence."""
    found = set()
    for n, literal in enumerate(pattern.literals):
        for match in _WORD.finditer(literal):
            inside = (n == 0 or match.start() > 0) and (n == len(pattern.literals) - 1 or match.end() < len(literal))
            if inside:
                found.add(match[0])
    return found


def read(compiled: bytes) -> dict[str, str]:
    """What a .mo file of ours holds: in our machine's order, without plurals."""
    _magic, _version, count, ids, texts = struct.unpack_from("<5I", compiled)

    def told(table: int, n: int) -> str:
        length, offset = struct.unpack_from("<2I", compiled, table + 8 * n)
        return compiled[offset : offset + length].decode()

    return {told(ids, n): told(texts, n) for n in range(count) if told(ids, n)}
