"""`llmgw model`: the catalog."""

from __future__ import annotations

import sys
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import yaml

from catalog import selectors
from catalog.actions import models
from catalog.core.definition import External
from fleet.actions import purge as purging
from fleet.actions import resize, rollout
from llmgw.cluster.commands import NounCommand, actor, table
from llmgw.cluster.errors import Invalid


class Command(NounCommand):
    help = "Models: what is served, from which weights, in how many replicas."
    examples = (
        "  llmgw model add -f qwen.yaml\n"
        "  llmgw model add -f - --no-source-check < several.yaml\n"
        "  llmgw model list\n"
        "  llmgw model show qwen > qwen.yaml\n"
        "  llmgw model change -f qwen.yaml\n"
        "  llmgw model stop qwen\n"
        "  llmgw model restart qwen\n"
        "  llmgw model context qwen 32768 --slots 4\n"
        "  llmgw model gpus qwen 2 --in-place\n"
        "  llmgw model remove qwen --purge"
    )

    def build(self) -> None:
        for name, run, help in (
            ("add", _add, "add models as they are written in a file; the same again changes nothing"),
            ("change", _change, "change stored models to what is written in a file"),
        ):
            verb = self.verb(name, run, help, show=_done)
            verb.add_argument(
                "-f", "--file", required=True, metavar="FILE", help="YAML, one or several documents; - is the input"
            )
            verb.add_argument(
                "--no-source-check",
                action="store_true",
                help="do not look whether the weights are there (only nodes reach them)",
            )
        self.verb("list", selectors.models, "every model of the catalog", show=_list, watch=True)
        show = self.verb("show", _show, "a model's definition, as YAML that `add` and `change` take", show=_yaml)
        show.add_argument("name", help="the model, by name or alias")
        for name, rest, help in (
            ("stop", _stop, "run no replica of it until it is started; it is kept"),
            ("start", _start, "run it again, in as many replicas as its definition says"),
        ):
            self.verb(name, rest, help, show=_done).add_argument("name", help="the model, by name or alias")
        again = self.verb(
            "restart", _restart, "replace its replicas, each new one ready before the old one stops", show=_begun
        )
        again.add_argument("name", help="the model, by name or alias")
        again.add_argument("--in-place", action="store_true", help="stop each first, also where there is room beside")
        context = self.verb("context", _context, "change how many tokens one request may use", show=_begun)
        context.add_argument("name", help="the model, by name or alias")
        context.add_argument("tokens", type=int, help="prompt and answer together")
        context.add_argument("--slots", type=int, help="llama.cpp: requests worked on at once")
        gpus = self.verb("gpus", _gpus, "change how many cards of one node each replica uses", show=_begun)
        gpus.add_argument("name", help="the model, by name or alias")
        gpus.add_argument("count", type=int, help="cards a replica")
        gpus.add_argument("--profile", help="which, where it has several on cards")
        gpus.add_argument("--in-place", action="store_true", help="stop each replica first: there is no room beside it")
        remove = self.verb("remove", _remove, "take a model out of the catalog; its weights stay", show=_done)
        remove.add_argument("name", help="the model, by name or alias")
        remove.add_argument("--yes", action="store_true", help="do not ask")
        remove.add_argument("--purge", action="store_true", help="delete its weights on the nodes too")
        remove.add_argument("--force", action="store_true", help="although other models fall back to it")


def _documents(file: str) -> list[Any]:
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise Invalid("bad_file", f"{file} cannot be read: {getattr(e, 'strerror', None) or e}") from None
    try:
        return [document for document in yaml.safe_load_all(text) if document is not None]
    except yaml.YAMLError as e:
        raise Invalid("bad_yaml", f"{file} is not YAML: {' '.join(str(e).split())}") from None


def _add(file: str, no_source_check: bool) -> list[dict[str, Any]]:
    done = models.add_all(raws=_documents(file), actor=actor(), check_sources=not no_source_check)
    return [_told(d) for d in done]


def _change(file: str, no_source_check: bool) -> list[dict[str, Any]]:
    done = models.change_all(raws=_documents(file), actor=actor(), check_sources=not no_source_check)
    return [_told(d) for d in done]


def _told(done: models.Done) -> dict[str, Any]:
    found = selectors.entry(done.name)
    resting = found.definition is not None and not found.definition.external and found.definition.scaling.max == 0
    hint = "its definition asks for no replica (scaling: {min: 1} runs one)" if resting else ""
    if found.definition is not None and found.definition.external is not None:
        hint = external_hint(found.definition.external)
    return {"name": done.name, "did": done.did, "changed": list(done.changed), "hint": hint}


def external_hint(external: External) -> str:
    """What its owner should know now: whether its files are there is the edges' to say."""
    clear = " and its key and its prompts travel unencrypted" if external.url.startswith("http:") else ""
    missing = [key.file for key in external.keys if not Path(key.file).is_file()]
    here = f"; on this machine there is no {', '.join(missing)}" if missing else ""
    return f"its prompts leave the cluster{clear}{here}"


def _show(name: str) -> dict[str, Any]:
    return selectors.detail(selectors.entry(name))


def _stop(name: str) -> list[dict[str, Any]]:
    return [{"name": models.stop(name=name, actor=actor()), "did": "stopped"}]


def _start(name: str) -> list[dict[str, Any]]:
    return [{"name": models.start(name=name, actor=actor()), "did": "started"}]


def _restart(name: str, in_place: bool) -> dict[str, Any]:
    return asdict(rollout.restart(name=name, actor=actor(), in_place=in_place))


def _context(name: str, tokens: int, slots: int | None) -> dict[str, Any]:
    return asdict(resize.context(name=name, tokens=tokens, slots=slots, actor=actor()))


def _gpus(name: str, count: int, profile: str | None, in_place: bool) -> dict[str, Any]:
    return asdict(resize.gpus(name=name, count=count, profile=profile, in_place=in_place, actor=actor()))


def _begun(found: dict[str, Any]) -> None:
    print(f"{found['name']}: {found['sentence']}")


def _remove(name: str, yes: bool, force: bool, purge: bool) -> list[dict[str, Any]]:
    found = selectors.entry(name)
    if not yes:
        _confirm(found.name, purge)
    if purge:
        return [_purged(purging.remove(name=found.name, actor=actor(), force=force))]
    return [{"name": models.remove(name=found.name, actor=actor(), force=force), "did": "removed"}]


def _purged(done: purging.Purged) -> dict[str, Any]:
    hint = "nothing was fetched for it: weights that lie where a person put them stay"
    if done.deleted:
        where = f" (there on {', '.join(done.nodes)})" if done.nodes else ""
        hint = f"nodes delete what they fetched once its replicas have stopped{where}"
    if done.kept:
        hint += f"; other models use {', '.join(done.kept)}"
    return {"name": done.name, "did": "removed", "deleted": done.deleted, "kept": done.kept, "hint": hint}


def _confirm(name: str, purge: bool = False) -> None:
    if not sys.stdin.isatty():
        raise Invalid(
            "not_confirmed", f"removing {name} stops its replicas: say --yes", f"llmgw model remove {name} --yes"
        )
    print(
        f"This takes {name} out of the catalog and stops its replicas. "
        + (
            "Its weights on the nodes are deleted: adding it again fetches them again."
            if purge
            else "Its weights stay."
        )
    )
    if input("Type its name to go on: ").strip() != name:
        raise Invalid("not_confirmed", f"that is not {name}; nothing was removed")


def _done(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        changed = f" ({', '.join(row['changed'])})" if row.get("changed") else ""
        hint = f"; {row['hint']}" if row.get("hint") else ""
        print(f"{row['name']}: {row['did']}{changed}{hint}")


def _list(rows: list[dict[str, Any]]) -> None:
    shown = []
    for row in rows:
        ready = "-" if row["ready"] is None else row["ready"]
        wanted = "-" if row["wanted"] is None else row["wanted"]
        replicas = "external" if row["external"] else f"{ready} on demand" if row["on_demand"] else f"{ready}/{wanted}"
        shown.append({**row, "model": row["name"], "replicas": replicas, "for": row["kinds"]})
    table(shown, ["model", "state", "replicas", "aliases", "for", "context_length", "origin"])
    for row in rows:
        if row["reason"]:
            print(f"{row['name']}: {row['reason']}")


def _key(key: dict[str, Any]) -> str:
    since = f" since {datetime.fromtimestamp(key['since'], UTC):%Y-%m-%d %H:%M} UTC" if key["since"] else ""
    return f"{key['endpoint']}: {key['sentence'] or 'in use'}{since}"


def _yaml(row: dict[str, Any]) -> None:
    print(
        f"# {row['origin']}, {row['state']}" + (", external: its prompts leave the cluster" if row["external"] else "")
    )
    for key in row["keys"]:
        print(f"# {_key(key)}")
    if row["on_demand"] and row["reason"]:
        print(f"# {row['reason']}")
    for problem in row["problems"]:
        print(f"# {problem}")
    if row["definition"] is not None:
        print(yaml.safe_dump(row["definition"], sort_keys=False, allow_unicode=True), end="")
