"""The catalogues in `locales/`: what must be translated, and whether it is. For developers; no process imports it.

    python -m llmgw.portal.messages extract   # new strings into the catalogues, gone ones out
    python -m llmgw.portal.messages compile   # the .mo files that Django reads
    python -m llmgw.portal.messages check     # every problem, a line each

`django` is what Python and templates say, `djangojs` what the scripts say, `sentences` what the cores say of the
fleet (`llmgw.portal.sentences`). English is the source.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from io import BytesIO
from itertools import chain
from pathlib import Path

import polib
from babel.messages.extract import extract as babel_extract
from django.utils.translation.template import templatize

from llmgw.portal import sentences

ROOT = Path(__file__).resolve().parents[2]
LANGUAGES = ("en", "tr")
DOMAINS = ("django", "djangojs", "sentences")
PACKAGES = ("llmgw", "catalog", "fleet", "gateway", "tenancy", "mirror")
KEYWORDS = {
    "gettext": None,
    "gettext_lazy": None,
    "gettext_noop": None,
    "_": None,
    "ngettext": (1, 2),
    "ngettext_lazy": (1, 2),
    "pgettext": ((1, "c"), 2),
    "pgettext_lazy": ((1, "c"), 2),
    "npgettext": ((1, "c"), 2, 3),
}
_ENGLISH_ONLY = {"are"}
"""What fills these has no counterpart in other languages: a verb's number."""
_STRING = r"""u?('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")"""
_CALL = re.compile(rf" (_|gettext|ngettext|pgettext|npgettext)\({_STRING}(?:, {_STRING})?(?:, {_STRING})?")


@dataclass(frozen=True, slots=True, order=True)
class Message:
    """One thing to translate."""

    text: str
    plural: str = ""
    context: str = ""


@cache
def wanted(domain: str) -> dict[Message, list[str]]:
    """Every message of the domain, with the files that say it."""
    found: dict[Message, list[str]] = {}
    for path, message in _SAYERS[domain]():
        places = found.setdefault(message, [])
        if (place := str(path.relative_to(ROOT))) not in places:
            places.append(place)
    return found


def catalogue(language: str, domain: str) -> Path:
    return ROOT / "locales" / language / "LC_MESSAGES" / f"{domain}.po"


def problems() -> list[str]:
    """What is missing, empty, fuzzy, no longer said, broken in its placeholders, or not compiled."""
    return [p for language in LANGUAGES for domain in DOMAINS for p in _problems(language, domain)]


def _problems(language: str, domain: str) -> Iterator[str]:
    path = catalogue(language, domain)
    if not path.exists():
        yield f"{path.name} of {language} is not there: run extract"
        return
    entries = {_message(e): e for e in polib.pofile(str(path)) if not e.obsolete}
    said = wanted(domain)
    for message, places in sorted(said.items()):
        entry = entries.get(message)
        if entry is None:
            yield f"{language}: {message.text!r} ({places[0]}) is missing: run extract"
        elif language == "en":
            continue
        elif not entry.translated() or "fuzzy" in entry.flags:
            yield f"{language}: {message.text!r} ({places[0]}) is not translated"
        else:
            yield from _placeholders(path, language, message, entry)
    yield from (f"{language}: {m.text!r} is no longer said: run extract" for m in sorted(entries.keys() - said.keys()))
    compiled = path.with_suffix(".mo")
    if not compiled.exists() or compiled.read_bytes() != polib.pofile(str(path)).to_binary():
        yield f"{compiled.name} of {language} is not what {path.name} says: run compile"


def _placeholders(path: Path, language: str, message: Message, entry: polib.POEntry) -> Iterator[str]:
    pattern = r"(?<!{){(\w+)" if path.stem == "sentences" else r"%\(\w+\)[sd]|%s|%%"
    need = set(re.findall(pattern, message.plural or message.text))
    for text in entry.msgstr_plural.values() if message.plural else (entry.msgstr,):
        if set(re.findall(pattern, text)) | _ENGLISH_ONLY & need != need:
            yield f"{language}: {message.text!r} is translated with other placeholders"


def extract() -> None:
    """Brings every catalogue to what is said now; translations that are still needed stay."""
    for language in LANGUAGES:
        for domain in DOMAINS:
            path = catalogue(language, domain)
            path.parent.mkdir(parents=True, exist_ok=True)
            old = {_message(e): e for e in polib.pofile(str(path))} if path.exists() else {}
            new = polib.POFile(wrapwidth=110)
            new.metadata = {
                "Language": language,
                "MIME-Version": "1.0",
                "Content-Type": "text/plain; charset=UTF-8",
                "Content-Transfer-Encoding": "8bit",
                "Plural-Forms": "nplurals=2; plural=(n != 1);",
            }
            for message, places in sorted(wanted(domain).items()):
                new.append(_entry(message, places, old.get(message), domain))
            new.save(str(path))


def compile_all() -> None:
    for language in LANGUAGES:
        for domain in DOMAINS:
            path = catalogue(language, domain)
            path.with_suffix(".mo").write_bytes(polib.pofile(str(path)).to_binary())


def _entry(message: Message, places: list[str], old: polib.POEntry | None, domain: str) -> polib.POEntry:
    entry = polib.POEntry(
        msgid=message.text, msgctxt=message.context or None, occurrences=[(place, "") for place in sorted(places)]
    )
    if message.plural:
        entry.msgid_plural = message.plural
        entry.msgstr_plural = dict(old.msgstr_plural) if old else {0: "", 1: ""}
    else:
        entry.msgstr = old.msgstr if old else ""
    if domain != "sentences" and "%" in message.text:
        entry.flags.append("python-format")
    return entry


def _message(entry: polib.POEntry) -> Message:
    return Message(entry.msgid, entry.msgid_plural or "", entry.msgctxt or "")


def _python() -> Iterator[tuple[Path, Message]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            if "migrations" not in path.parts:
                yield from _babel(path, "python")


def _scripts() -> Iterator[tuple[Path, Message]]:
    for path in sorted((ROOT / "llmgw/portal/static/portal").glob("*.js")):
        yield from _babel(path, "javascript")


def _spoken() -> Iterator[tuple[Path, Message]]:
    yield from ((path, Message(text)) for path, text in sentences.templates(ROOT, (*PACKAGES, "agent")))


def _babel(path: Path, method: str) -> Iterator[tuple[Path, Message]]:
    for _line, found, _comments, context in babel_extract(method, BytesIO(path.read_bytes()), KEYWORDS):
        texts = found if isinstance(found, tuple) else (found,)
        if texts[0]:
            yield path, Message(texts[0], texts[1] if len(texts) > 1 and texts[1] else "", context or "")


def _templates() -> Iterator[tuple[Path, Message]]:
    for path in sorted((ROOT / "templates").rglob("*.html")):
        for match in _CALL.finditer(templatize(path.read_text(), str(path))):
            name, *literals = match.groups()
            texts = [ast.literal_eval(text) for text in literals if text]
            context = texts.pop(0) if name.startswith(("p", "np")) else ""
            # templatize doubles a per cent sign; Django looks such a string up with the doubled sign, too.
            yield path, Message(texts[0], texts[1] if len(texts) > 1 else "", context)


_SAYERS: dict[str, Callable[[], Iterator[tuple[Path, Message]]]] = {
    "django": lambda: chain(_python(), _templates()),
    "djangojs": _scripts,
    "sentences": _spoken,
}


def main(argv: list[str]) -> int:
    match argv:
        case ["extract"]:
            extract()
        case ["compile"]:
            compile_all()
        case ["check"]:
            found = problems()
            print("\n".join(found))
            return 1 if found else 0
        case _:
            print(__doc__, file=sys.stderr)
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
