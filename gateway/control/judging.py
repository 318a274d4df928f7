"""What a key may do now, and which level narrows that: judged by the functions that the edges judge with."""

from __future__ import annotations

import shlex
import time
from datetime import UTC, datetime

import redis

from agent.wire.reason import Reason
from gateway.control import ledger, parts
from gateway.core import principal
from gateway.core.errors import GatewayError
from gateway.core.snapshot import LevelLimits, ModelEntry
from llmgw import price
from llmgw.fold import fold
from llmgw.money import written
from tenancy import selectors as tenancy
from tenancy.core.tree import allows
from tenancy.models import Key


def key(ref: str, model: str | None = None) -> tuple[Reason, ...]:
    """Whom it speaks for, what it may use and which level narrows that; with `model`, whether it would be let through
    to it now. Raises `NotFound`, `Invalid`."""
    row = tenancy.key(ref)
    reasons = [*_allowed(row), *_limited(row)]
    refusal = _would_be_refused(row, model)
    if refusal is not None:
        return (refusal, _who(row), *reasons)
    end = f", and may use {model} now" if model else ""
    return (
        Reason("works", f"{_who(row).sentence}{end}", f"llmgw key list --project {shlex.quote(row.project.path)}"),
        *reasons,
    )


def _who(row: Key) -> Reason:
    whose = f" of {row.person.email}" if row.person is not None else ""
    until = f" until {row.expires_at:%Y-%m-%d %H:%M}" if row.expires_at is not None else ""
    what = "speaks for" if row.scope == Key.Scope.INFERENCE else "is for the admin API, and belongs to"
    return Reason("who", f"the key {row.name} ({row.prefix}…){whose} {what} {row.project.path}{until}")


def _allowed(row: Key) -> list[Reason]:
    """What each level says, outermost first."""
    levels = (row.project.team.organisation, row.project.team, row.project)
    said = [(f"{type(x).__name__.lower()} {x.path}", x.allow) for x in levels] + [("key itself", row.allow)]
    told = [
        Reason("allow", f"the {name} allows {', '.join(allow) or 'nothing'}")
        for name, allow in said
        if allow is not None
    ]
    return told or [Reason("allow", "no level narrows what it may use: every model")]


def _limited(row: Key) -> list[Reason]:
    published = parts.tenancy()
    entry, scope = published.keys.get(row.hash), published.projects.get(row.project.public_id)
    levels: list[LevelLimits] = [*(scope.limits if scope is not None else ())]
    if entry is not None and entry.limits is not None:
        levels.append(entry.limits)
    spent = _spent(levels)
    return [
        Reason(
            "limits",
            f"the {level.level} allows {_figures(level, spent)}",
            f"llmgw limits show {shlex.quote(_refs(row)[level.level])}",
        )
        for level in levels
    ]


def _spent(levels: list[LevelLimits]) -> dict[tuple[str, str], ledger.Money | None]:
    """Of those with a budget; nothing where Redis is away."""
    try:
        return ledger.spent(level for level in levels if level.limits.budget is not None)
    except (redis.RedisError, OSError):
        return {}


_EACH = {"day": "a day", "week": "a week", "month": "a month", "total": "in all"}


def _figures(level: LevelLimits, spent: dict[tuple[str, str], ledger.Money | None]) -> str:
    """Clauses that stand for themselves."""
    limits = level.limits
    words = []
    if limits.rpm is not None:
        words.append(f"{limits.rpm:,} requests a minute")
    if limits.tpm is not None:
        words.append(f"{limits.tpm:,} tokens a minute")
    if limits.concurrent is not None:
        words.append(f"{limits.concurrent:,} requests at once")
    if limits.budget is None:
        return "; ".join(words)
    words.append(f"a budget of {written(limits.budget)} {_EACH[limits.period]}")
    money = spent.get((level.level, level.id))
    if money is None:
        words.append("what is spent of it is not known now")
        return "; ".join(words)
    left = written(max(0, limits.budget - money.spent - money.held))
    words.append(f"{written(money.spent)} of it is spent")
    if money.held:
        words.append(f"{written(money.held)} of it is held by requests under way")
    if level.until:
        words.append(f"{left} of it is left until {datetime.fromtimestamp(level.until, UTC):%Y-%m-%d %H:%M} UTC")
    else:
        words.append(f"{left} of it is left")
    return "; ".join(words)


def _would_be_refused(row: Key, model: str | None) -> Reason | None:
    """The edge's own judgement of it."""
    if row.revoked_at is not None:
        return Reason(
            "revoked",
            f"the key {row.name} ({row.prefix}…) was revoked at {row.revoked_at:%Y-%m-%d %H:%M}: it is refused",
            _another(row),
        )
    if row.scope != Key.Scope.INFERENCE:
        return None
    if row.person is not None and not row.person.is_active:
        return Reason(
            "inactive_person",
            f"the key {row.name} is refused: the account {row.person.email} is not active",
            f"llmgw user activate {row.person.email}",
        )
    published = parts.tenancy()
    try:
        who = principal.of_key(published.keys.get(row.hash), published, time.time())
    except GatewayError as e:
        command = _another(row)
        return Reason(e.name, f"the key {row.name} would be refused with {e.answer}: {e.sentence}", command)
    return _may_not_use(who, row, model) if model else None


def _may_not_use(who: principal.Principal, row: Key, model: str) -> Reason | None:
    entry = _model(model)
    if entry is None:
        return Reason("model_not_found", f"a request would be refused with 404: there is no model {model}", _LIST)
    refusal = principal.check_model(who, entry.name)
    if refusal is not None:
        where, command = _narrowing(row, entry.name)
        sentence = f"a request would be refused with {refusal.answer}: the {where} does not allow {entry.name}"
        return Reason(refusal.name, sentence, command)
    if who.scope.in_cluster and entry.external is not None:
        sentence = (
            f"a request would be refused: nothing of {row.project.path} may leave the cluster, and {entry.name} is"
        )
        return Reason("must_stay", f"{sentence} served outside", f"llmgw limits show {shlex.quote(row.project.path)}")
    if entry.state != "serving":
        sentence = f"a request would be refused with 503: {entry.name} is {entry.state.replace('_', ' ')}"
        because = f": {entry.reason}" if entry.reason else ""
        return Reason(f"model_{entry.state}", sentence + because, f"llmgw why {entry.name}")
    return _spent_out(who, row, entry)


def _spent_out(who: principal.Principal, row: Key, entry: ModelEntry) -> Reason | None:
    """Whether a budget of its levels is spent, where the model has a price."""
    cost = price.at(entry.prices, time.time()) or parts.policies().default_price
    levels = [*who.scope.limits, *((who.limits,) if who.limits is not None else ())]
    if cost.free:
        return None
    for (kind, _), money in _spent(levels).items():
        level = next(x for x in levels if x.level == kind)
        if money is None or level.limits.budget is None or money.spent + money.held < level.limits.budget:
            continue
        command = f"llmgw limits set {shlex.quote(_refs(row)[kind])} --budget AMOUNT"
        if who.scope.when_spent:
            sentence = f"the budget of its {kind} is spent: {who.scope.when_spent} answers instead of {entry.name}"
        else:
            sentence = (
                f"a request would be refused with 429: the budget of its {kind} is spent, {entry.name} has a price"
            )
        return Reason("insufficient_quota", sentence, command)
    return None


def _refs(row: Key) -> dict[str, str]:
    """What the commands call its levels."""
    return {
        "organisation": row.project.team.organisation.path,
        "team": row.project.team.path,
        "project": row.project.path,
        "key": f"key:{row.prefix}",
    }


def _narrowing(row: Key, model: str) -> tuple[str, str]:
    """The outermost level that does not allow it, and the command that would change that."""
    project = row.project
    for level in (project.team.organisation, project.team, project):
        if not allows(level.allow, model):
            return f"{type(level).__name__.lower()} {level.path}", _allow(level.path, level.allow, model)
    return "key itself", _allow(f"key:{row.prefix}", row.allow, model)


def _allow(ref: str, allow: list[str] | None, model: str) -> str:
    return f"llmgw limits set {shlex.quote(ref)} --allow {shlex.quote(','.join([*(allow or ()), model]))}"


def _another(row: Key) -> str:
    return f"llmgw key create {shlex.quote(row.name)} --project {shlex.quote(row.project.path)}"


def _model(asked: str) -> ModelEntry | None:
    found = parts.models().models
    for entry in found.values():
        if fold(asked) in {fold(name) for name in (entry.name, *entry.aliases)}:
            return entry
    return None


_LIST = "llmgw model list"
