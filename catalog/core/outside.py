"""What a definition says of models elsewhere: where an external one is served, and who answers in its place. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from urllib.parse import urlsplit

from agent.wire.reason import Reason
from catalog.core.definition import EXTERNAL, Definition, External, ExternalKey
from catalog.core.fields import Fields
from llmgw.fold import fold

MOST_KEYS = 64
MOST_FALLBACKS = 8
_PLACED = ("profiles", "scaling", "sha256")


def external(fields: Fields, problems: list[Reason]) -> External:
    """The table `external` of a model whose source is `external`."""
    for key in _PLACED:
        if fields.take(key) is not None:
            fields.problem(
                f"{key} says how a model runs here, and a model with source: {EXTERNAL} does not: leave it out"
            )
    table = fields.table("external")
    url = table.text("url", required=True).rstrip("/")
    if url and (problem := _bad_address(url)):
        table.problem(problem)
    found = External(url, table.text("model", required=True), _keys(table, problems))
    table.done()
    return found


def fallbacks(fields: Fields, own: Collection[str]) -> tuple[str, ...]:
    """The models that answer in its place. `own`: the model's own names, folded."""
    names = fields.texts("fallbacks")
    if len(names) > MOST_FALLBACKS:
        fields.problem(f"fallbacks are at most {MOST_FALLBACKS}, and are {len(names)}")
    seen: set[str] = set()
    for name in names:
        if fold(name) in own:
            fields.problem(f"fallbacks: {name} is the model itself", "bad_fallback")
        elif fold(name) in seen:
            fields.problem(f"fallbacks: {name} stands twice", "bad_fallback")
        seen.add(fold(name))
    return names


def fallback_problems(checked: Iterable[Definition], everybody: Iterable[Definition]) -> tuple[Reason, ...]:
    """What is wrong with the fallbacks of `checked`: names that nobody has, and ways that lead back."""
    named: dict[str, Definition] = {}
    for definition in everybody:
        named.update({fold(n): definition for n in (definition.name, *definition.aliases)})
    problems: list[Reason] = []
    for definition in checked:
        for name in definition.fallbacks:
            if fold(name) not in named:
                sentence = (
                    f"model {definition.name}: its fallback {name} is no model of the catalog: add that one first"
                )
                problems.append(Reason("unknown_fallback", sentence, "llmgw model list"))
        if way := _ring(definition, named):
            sentence = f"model {definition.name}: its fallbacks lead back to it: {' → '.join(way)}"
            problems.append(Reason("fallback_ring", sentence))
    return tuple(problems)


def needing(gone: Collection[str], everybody: Iterable[Definition]) -> tuple[str, ...]:
    """Who has one of the names `gone` (folded) among its fallbacks."""
    return tuple(d.name for d in everybody if any(fold(n) in gone for n in d.fallbacks))


def _ring(start: Definition, named: Mapping[str, Definition]) -> tuple[str, ...]:
    """The way from a model along the fallbacks back to it; empty where none leads back."""
    ways: list[tuple[Definition, ...]] = [(start,)]
    seen = {start.name}
    while ways:
        way = ways.pop(0)
        for name in way[-1].fallbacks:
            found = named.get(fold(name))
            if found is not None and found.name == start.name:
                return (*(d.name for d in way), start.name)
            if found is not None and found.name not in seen:
                seen.add(found.name)
                ways.append((*way, found))
    return ()


def _bad_address(url: str) -> str:
    try:
        parts = urlsplit(url)
        host, user, _ = parts.hostname, parts.username or parts.password, parts.port
    except ValueError:
        return f"url {url!r} is not an address"
    if parts.scheme not in ("https", "http") or not host or not url.isascii() or any(c <= " " for c in url):
        return f"url must be like https://api.example.com, and is {url!r}"
    if user:
        return "url has a name or password in it, which every page would show: the key belongs into api_key_file"
    if parts.query or parts.fragment:
        return f"url must end with its path, without ? and #, and is {url!r}"
    if parts.path.endswith("/v1"):
        return f"url is written without /v1, which is added to it: {url.removesuffix('/v1')}"
    return ""


def _keys(table: Fields, problems: list[Reason]) -> tuple[ExternalKey, ...]:
    one, several = table.text("api_key_file"), table.take("api_key_files")
    if one and several is not None:
        table.problem("say api_key_file or api_key_files, not both")
    if one:
        return (_key(table, one, 1.0),)
    if several is None:
        table.problem("api_key_file is missing: the file that holds the provider's key", "missing")
        return ()
    if not isinstance(several, list) or not 0 < len(several) <= MOST_KEYS:
        table.problem(f"api_key_files must be a list of 1 to {MOST_KEYS} files (- {{file: …, weight: …}})")
        return ()
    found: list[ExternalKey] = []
    for number, entry in enumerate(several, 1):
        raw = {"file": entry} if isinstance(entry, str) else entry
        if not isinstance(raw, Mapping):
            table.problem(f"api_key_files: key {number} must be like {{file: …, weight: …}}")
            continue
        fields = Fields(raw, f"{table.where}api_key_files: key {number}: ", problems)
        key = _key(fields, fields.text("file", required=True), fields.number("weight", 1.0, 0.001, 1000.0))
        fields.done()
        if key.file in {k.file for k in found}:
            fields.problem(f"the file {key.file} stands twice")
        found.append(key)
    return tuple(found)


def _key(fields: Fields, file: str, weight: float) -> ExternalKey:
    if file and (not file.startswith("/") or ".." in file.split("/") or any(ord(c) < 32 for c in file)):
        fields.problem(f"the file {file!r} must be an absolute path without .. in it, as it is on the edges' machines")
    return ExternalKey(file, weight)
