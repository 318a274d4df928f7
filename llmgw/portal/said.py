"""Sentences of the cores in the page's language: reasons, findings, refusals.

They are made in English by parts that know no page, sent by agents of other versions, and kept in rows for years. So
they are translated where a page shows them, by the templates in `sentences.po`; ids, names and commands stay as they
are. A sentence that no template makes stays English.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from django.conf import settings
from django.utils.translation import get_language, override

from llmgw.portal.book import Book, read
from llmgw.portal.words import STATES, UNITS

DOMAIN = "sentences"


def here(sentence: object) -> str:
    """The sentence in the language of the page that is being made; as it is where there is none of it."""
    found = translated(str(sentence), get_language() or "en")
    return str(sentence) if found is None else found


@lru_cache(maxsize=8192)
def translated(sentence: str, language: str) -> str | None:
    """None: it is known in no other language than its own."""
    book = _book(language)
    with override(language):
        found = book.find(sentence.strip()) if book.patterns else None
    return found.text if found else None


@lru_cache
def _book(language: str) -> Book:
    for folder in settings.LOCALE_PATHS:
        path = Path(folder) / language / "LC_MESSAGES" / f"{DOMAIN}.mo"
        if path.exists():
            return Book(read(path.read_bytes()), STATES, UNITS)
    return Book({})
