"""How identifiers are compared, and how people search: in the program, never by a locale. Pure.

E-mail addresses, model names, roles and headers are folded as ASCII, so that a Turkish locale cannot turn `INFO`
into `ınfo`, and both stores behave alike. Searching is for people: with and without dots, accents and case.
"""

from __future__ import annotations

import unicodedata

_ASCII = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_TURKISH = {ord("ı"): "i", ord("İ"): "i", ord("I"): "i"}


def fold(identifier: str) -> str:
    """`identifier` as it is compared: ASCII letters lowered, everything else as it stands."""
    return identifier.strip().translate(_ASCII)


def search_key(text: str) -> str:
    """`text` as people search it: `istanbul`, `ISTANBUL` and `İstanbul` are one."""
    plain = unicodedata.normalize("NFKD", text.translate(_TURKISH).casefold())
    return "".join(c for c in plain if not unicodedata.combining(c))


def found_in(query: str, text: str) -> bool:
    """Whether a person who types `query` means `text`."""
    return search_key(query.strip()) in search_key(text)
