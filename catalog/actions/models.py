"""Changes of the catalog: models added, changed, stopped, started, removed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db import IntegrityError, transaction

from agent.wire.reason import Reason
from catalog import selectors, sources
from catalog.actions import prices
from catalog.core import definition as core
from catalog.core import outside
from catalog.core.definition import Definition
from catalog.core.reading import read
from catalog.core.writing import changed_keys
from catalog.models import Model, ModelName, Unwanted
from llmgw.cluster.actions import audit
from llmgw.cluster.changes import announce
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.fold import fold


@dataclass(frozen=True, slots=True)
class Done:
    """What became of one definition: added, changed or unchanged."""

    name: str
    did: str
    changed: tuple[str, ...] = ()


def add(*, definition: Definition, actor: str) -> Done:
    """A new model. The same definition again is unchanged; another one under a name that is there is `Conflict`:
    `change` is the word for that."""
    return _all(_add, [definition], actor)[0]


def add_all(*, raws: Sequence[Any], actor: str, check_sources: bool = True) -> list[Done]:
    """`add` for definitions as people wrote them, all or none; `Invalid` names the problems of all of them."""
    return _all(_add, _read(raws, check_sources), actor)


def change(*, definition: Definition, actor: str) -> Done:
    """A stored model as it is defined now; whether it is stopped stays."""
    return _all(_change, [definition], actor)[0]


def change_all(*, raws: Sequence[Any], actor: str, check_sources: bool = True) -> list[Done]:
    """`change` for definitions as people wrote them, all or none."""
    return _all(_change, _read(raws, check_sources), actor)


def remove(*, name: str, actor: str, force: bool = False, purge: bool = False) -> str:
    """A stored model leaves the catalog, its weights stay; the name that it had. A declared one is taken out of
    the settings. One that others fall back to only by `force`: they then go on without it. With `purge` nodes delete
    what they fetched for it, as far as no other model uses it."""
    found = selectors.entry(name)
    refuse_declared(found, "removed")
    if not force:
        _refuse_needed(found, found.names, f"llmgw model remove {found.name} --force")
    with transaction.atomic():
        row = locked(found.name)
        row.delete()
        gone = _give_up(found, actor) if purge else []
        audit.record(actor=actor, action="model.remove", subject=row.name, **({"purged": gone} if purge else {}))
        announce("catalog")
    return found.name


def purged(found: selectors.Entry) -> tuple[list[str], list[str]]:
    """(sources whose weights go with the model, those that stay because another model uses them)."""
    own = selectors.sources_of(found.definition) if found.definition is not None else frozenset()
    fetched = {s for s in own if not s.startswith(("path:", "starter:"))}
    others = [e.definition for e in selectors.entries() if e.name != found.name and e.definition is not None]
    used = {source for definition in others for source in selectors.sources_of(definition)}
    return sorted(fetched - used), sorted(fetched & used)


def _give_up(found: selectors.Entry, actor: str) -> list[str]:
    gone, _ = purged(found)
    for source in gone:
        Unwanted.objects.get_or_create(source=source, defaults={"actor": actor})
    return gone


def stop(*, name: str, actor: str) -> str:
    """No replica is wanted until it is started; the definition stays. The model's name."""
    return _rest(name, True, actor)


def start(*, name: str, actor: str) -> str:
    return _rest(name, False, actor)


def _all(do: Callable[[Definition, str], Done], definitions: Sequence[Definition], actor: str) -> list[Done]:
    """All or none. Fallbacks are looked at when every definition is in: they may name one another."""
    with transaction.atomic():
        done = [do(definition, actor) for definition in definitions]
        if any(definition.fallbacks for definition in definitions):
            everybody = [e.definition for e in selectors.entries() if e.definition is not None]
            if problems := outside.fallback_problems(definitions, everybody):
                raise Invalid.several(problems)
        return done


def _read(raws: Sequence[Any], check_sources: bool) -> list[Definition]:
    definitions: list[Definition] = []
    problems: list[Reason] = []
    if not raws:
        raise Invalid("bad_definition", "there is no definition in it: name: …, source: …, profiles: …")
    for raw in raws:
        try:
            definitions.append(read(raw))
        except Invalid as e:
            problems.extend(e.problems)
    if check_sources and not problems:
        problems.extend(sources.problems(definitions))
    if problems:
        raise Invalid.several(tuple(problems))
    return definitions


def _add(definition: Definition, actor: str) -> Done:
    entries = selectors.entries()
    there = {fold(e.name): e for e in entries}.get(fold(definition.name))
    if there is not None:
        changed = _changed(there, definition)
        if not changed:
            return Done(there.name, "unchanged")
        refuse_declared(there, "changed")
        what = ", ".join(changed) if there.definition else "everything"
        raise Conflict(
            "model_exists",
            f"there is already a model {there.name}, and this definition differs in {what}",
            "llmgw model change -f FILE",
        )
    _refuse_declared_names(definition, entries)
    Model.objects.filter(name=definition.name, origin=Model.Origin.DECLARED).delete()  # it was declared once
    row = Model(name=definition.name, definition=stored(definition))
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:
        raise Conflict("model_exists", f"a model {definition.name} was added by somebody else just now") from None
    _name(row, definition)
    prices.enter_written(name=row.name, written=definition.prices, actor=actor)
    audit.record(actor=actor, action="model.add", subject=row.name, source=definition.source)
    announce("catalog")
    return Done(row.name, "added")


def _change(definition: Definition, actor: str) -> Done:
    there = selectors.entry(definition.name)
    refuse_declared(there, "changed")
    if fold(there.name) != fold(definition.name):
        raise NotFound(
            "no_such_model", f"{definition.name} is an alias of {there.name}: change that one", "llmgw model list"
        )
    changed = _changed(there, definition)
    if not changed:
        return Done(there.name, "unchanged")
    _refuse_declared_names(definition, selectors.entries())
    left = {fold(n) for n in (definition.name, *definition.aliases)}
    _refuse_needed(there, [n for n in there.names if fold(n) not in left], f"llmgw model show {there.name}")
    row = locked(there.name)
    row.name, row.definition = definition.name, stored(definition)
    row.save()
    row.names.all().delete()
    _name(row, definition)
    prices.enter_written(name=row.name, written=definition.prices, actor=actor)
    audit.record(actor=actor, action="model.change", subject=row.name, changed=list(changed))
    announce("catalog")
    return Done(row.name, "changed", changed)


def stored(definition: Definition) -> dict[str, Any]:
    """As its row holds it; what it loads is wanted again. Prices are entries of their own: a definition that changes
    must not rewrite what was charged."""
    Unwanted.objects.filter(source__in=selectors.sources_of(definition)).delete()
    return core.to_builtins(replace(definition, prices=()))


def _changed(there: selectors.Entry, definition: Definition) -> tuple[str, ...]:
    """The keys in which a definition differs from what is there. One without a price leaves the price as it is."""
    if there.definition is None:
        return ("definition",)
    if there.origin == selectors.DECLARED:
        return changed_keys(there.definition, definition)
    bare = changed_keys(there.definition, replace(definition, prices=()))
    return (*bare, "price") if prices.differs(there.name, definition.prices) else bare


def _name(row: Model, definition: Definition) -> None:
    """Claims the model's names: the database has one owner for each."""
    for name in (definition.name, *definition.aliases):
        try:
            with transaction.atomic():
                ModelName.objects.create(name=fold(name), model=row)
        except IntegrityError:
            owner = ModelName.objects.select_related("model").get(name=fold(name)).model.name
            raise _taken(definition, name, owner) from None


def _refuse_declared_names(definition: Definition, entries: Iterable[selectors.Entry]) -> None:
    """Declared models have no rows: their names are looked up before a stored one could take them."""
    declared = {fold(n): e.name for e in entries if e.origin == selectors.DECLARED for n in e.names}
    for name in (definition.name, *definition.aliases):
        if fold(name) in declared:
            raise _taken(definition, name, declared[fold(name)])


def _taken(definition: Definition, name: str, owner: str) -> Conflict:
    return Conflict("name_taken", f"model {definition.name}: the name {name} is already of the model {owner}")


def _refuse_needed(found: selectors.Entry, gone: Collection[str], command: str) -> None:
    """Names that others fall back to do not go unseen."""
    names = {fold(n): n for n in gone}
    others = [e.definition for e in selectors.entries() if e.definition is not None and e.name != found.name]
    if needing := outside.needing(names, others):
        what = f"{found.name} is" if fold(found.name) in names else f"{', '.join(names.values())} of {found.name} is"
        raise Conflict(
            "model_is_fallback", f"{what} a fallback of {', '.join(needing)}: change their fallbacks first", command
        )


def _rest(name: str, stopped: bool, actor: str) -> str:
    found = selectors.entry(name)
    with transaction.atomic():
        row = kept(found)
        if row.stopped != stopped:
            row.stopped = stopped
            row.save(update_fields=["stopped", "changed_at"])
            audit.record(actor=actor, action="model.stop" if stopped else "model.start", subject=row.name)
            announce("catalog")
    return found.name


def kept(found: selectors.Entry) -> Model:
    """The row that remembers what was asked of the model. Of a declared one the settings hold the definition."""
    if found.origin != selectors.DECLARED:
        return locked(found.name)
    row, _ = Model.objects.select_for_update().get_or_create(
        name=found.name, defaults={"definition": {}, "origin": Model.Origin.DECLARED}
    )
    return row


def locked(name: str) -> Model:
    try:
        return Model.objects.select_for_update().get(name=name)
    except Model.DoesNotExist:
        raise NotFound("no_such_model", f"the model {name} was removed by somebody else just now") from None


def refuse_declared(found: selectors.Entry, done: str, command: str = "llmgw config get models") -> None:
    """What the settings declare is read from them again and again: a change here would not last."""
    if found.origin == selectors.DECLARED:
        raise Conflict(
            "declared_model", f"the model {found.name} is declared in the settings, and is {done} there", command
        )
