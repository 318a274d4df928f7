"""What became of a request, in sentences: the first answers, the others say why and what would change it. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from agent.wire.reason import Reason
from llmgw.money import written


@dataclass(frozen=True, slots=True)
class Told:
    """What the books hold of one request, and what people call those who asked. None: nobody could say."""

    request_id: str
    outcome: str
    asked: str = ""
    model: str = ""
    served: str = ""
    status: int | None = None
    code: str = ""
    reason: str = ""
    """The refusal's sentence, where the gateway itself refused."""
    replica: str = ""
    node: str = ""
    route: str = ""
    hops: tuple[str, ...] = ()
    attempts: int = 1
    cache: str = ""
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    cached_tokens: int | None = None
    estimated: bool = False
    cost: int | None = None
    queued_ms: float | None = None
    ttft_ms: float | None = None
    duration_ms: float | None = None
    tags: Mapping[str, str] = field(default_factory=dict)
    key: str = ""
    key_name: str = ""
    project: str = ""
    project_path: str = ""
    person_email: str = ""


def told(row: Mapping[str, Any]) -> Told:
    """From a row of the books, whatever else is in it. A column that is null says what an absent one says."""
    known = {f.name for f in fields(Told)}
    found = {name: value for name, value in row.items() if name in known and value is not None}
    return Told(**{**found, "hops": tuple(found.get("hops") or ())})


def tell(request: Told) -> tuple[Reason, ...]:
    """The answer first."""
    return (_answer(request), *_before(request), *_why(request), *_notes(request))


def _answer(request: Told) -> Reason:
    """Clauses that stand for themselves, so that a page can say each in its language."""
    code = "answered" if request.outcome == "ok" else request.outcome
    clauses = [_became(request)]
    match request.outcome:
        case "client_left":
            first = "before anything was answered" if request.ttft_ms is None else "in the middle of its answer"
            clauses.append(f"the client left after {span(request.duration_ms)}, {first}")
        case "engine_failed":
            clauses.append(f"it failed after {span(request.duration_ms)}" + _tries(request))
        case "timed_out":
            clauses.append(f"it was given up after {span(request.duration_ms)}" + _tries(request))
        case "ok" | "refused":
            pass
        case _:
            code = "unknown"
            clauses.append("what became of it is not known: its gateway ended before it could tell")
    if request.outcome in ("engine_failed", "timed_out") and request.replica:
        on = f" on {request.node}" if request.node else ""
        clauses.append(f"{request.replica}" + on + " was tried last")
    if request.prompt_tokens is not None or request.completion_tokens is not None:
        clauses.append(_counts(request))
    if request.cost is not None:
        clauses.append(f"its cost was {written(request.cost)}" if request.cost else "it was free")
    return Reason(code, "; ".join(clauses))


def _became(request: Told) -> str:
    """Who asked for what, and how far that goes."""
    opening = f"{request.request_id} asked for {_asked(request)}"
    match request.outcome:
        case "ok" if request.cache in ("hit", "similar"):
            return opening + _again(request)
        case "ok":
            return opening + _answered(request)
        case "refused":
            return opening + _refused(request)
        case _:
            return opening


def _again(request: Told) -> str:
    what = "the same request" if request.cache == "hit" else "a similar question"
    why = f": {request.route}" if request.route else ""
    return f" and was given again in {span(request.duration_ms)} what {what} had been answered" + why


def _answered(request: Told) -> str:
    by = ""
    if request.replica and request.node:
        by = f" by {request.replica} on {request.node}"
    elif request.replica:
        by = f" by {request.replica}"
    elif _other(request):
        by = f" by {request.served}"
    return f", was answered in {span(request.duration_ms)}" + by + (f": {request.route}" if request.route else "")


def _refused(request: Told) -> str:
    refused = " and was refused" if request.status is None else f" and was refused with {request.status}"
    code = f" ({request.code})" if request.code else ""
    return refused + code + (f": {request.reason}" if request.reason else "")


def _asked(request: Told) -> str:
    if not request.asked and not request.model:
        return "no model that could be read"
    if request.model and request.asked and request.asked != request.model:
        return f"{request.asked} (= {request.model})"
    return request.model or request.asked


def _other(request: Told) -> bool:
    return bool(request.served) and request.served != request.model


def _tries(request: Told) -> str:
    tries = f" and {request.attempts} attempts" if request.attempts > 1 else ""
    return tries + (f" ({request.code})" if request.code else "")


def _counts(request: Told) -> str:
    cached = f" ({request.cached_tokens} cached)" if request.cached_tokens else ""
    if request.completion_tokens is None:
        return f"{request.prompt_tokens} prompt tokens{cached}"
    if request.prompt_tokens is None:
        return f"{request.completion_tokens} tokens answered"
    return f"{request.prompt_tokens} prompt tokens{cached}, {request.completion_tokens} answered"


def _before(request: Told) -> list[Reason]:
    """What was tried and left."""
    return [Reason("tried", f"tried before: {hop}", _of_hop(hop)) for hop in request.hops]


def _of_hop(hop: str) -> str:
    replica = hop.partition(":")[0].rpartition("@")[2]
    return f"llmgw replica show {replica}" if replica.startswith("r-") else ""


def _why(request: Told) -> list[Reason]:
    if _other(request):
        return [
            Reason(
                "other_model",
                f"{request.served} answered in the place of {request.model}",
                f"llmgw model show {request.model}",
            )
        ]
    if request.outcome == "ok":
        return []
    if request.code in _LIMITS:
        return [_limit(request)]
    what, command = _CODES.get(request.code, ("", ""))
    names = {"model": request.model or request.asked, "key": request.key, "project": request.project_path}
    if not names["project"]:
        names["project"] = request.project
    if not what:
        return []
    quoted = {name: shlex.quote(value) for name, value in names.items()}
    return [Reason(request.code, what.format(**names), command.format(**quoted) if _full(command, names) else "")]


def _limit(request: Told) -> Reason:
    """Which level's limit it met, and the command that raises it: both are in the refusal's sentence."""
    organisation, team = request.project_path.partition("/")[0], request.project_path.rpartition("/")[0]
    levels = {
        "this key": f"key:{request.key}",
        "this project's team": team,
        "this project's organisation": organisation,
        "this project": request.project_path,
    }
    level = next((ref for words, ref in levels.items() if request.reason.startswith(words)), "")
    option = next((name for words, name in _OPTIONS if words in request.reason), "")
    if not level or level == "key:":
        return Reason(request.code, _LIMITS[request.code], _CHAT_LIMITS if "account" in request.reason else "")
    command = f"llmgw limits set {shlex.quote(level)} {option}" if option else f"llmgw limits show {shlex.quote(level)}"
    return Reason(request.code, _LIMITS[request.code], command)


def _full(command: str, names: Mapping[str, str]) -> bool:
    """Whether everything that the command names is known."""
    return all(names[name] for name in names if "{" + name + "}" in command)


def _notes(request: Told) -> list[Reason]:
    found = []
    if request.queued_ms:
        command = f"llmgw model show {request.model}" if request.model else ""
        found.append(Reason("queued", f"it waited {span(request.queued_ms)} to be let in", command))
    if request.estimated:
        found.append(Reason("estimated", "its counts are estimated: the engine could not say"))
    if request.project_path or request.key_name or request.person_email:
        found.append(Reason("who", _who(request), f"llmgw why {request.key}" if request.key else ""))
    if request.tags:
        tags = ", ".join(f"{name}={value}" for name, value in sorted(request.tags.items()))
        found.append(Reason("tags", f"it was tagged {tags}"))
    return found


def _who(request: Told) -> str:
    who = f"the key {request.key_name or request.key}" if request.key else "the chat page"
    for_whom = f" of {request.person_email}" if request.person_email else ""
    where = f", for {request.project_path}" if request.project_path else ""
    return f"{who}{for_whom} asked{where}"


def span(milliseconds: float | None) -> str:
    """As people say it."""
    if milliseconds is None:
        return "an unknown time"
    if milliseconds < 1000:
        return f"{milliseconds:.0f} ms"
    return f"{milliseconds / 1000:.1f} s" if milliseconds < 100_000 else f"{milliseconds / 1000:.0f} s"


_CODES = {
    "model_forbidden": (
        "the model {model} is not among those that the key and the levels above it allow",
        "llmgw why {key} --model {model}",
    ),
    "residency": (
        "its project's requests must stay in the cluster, and {model} is served outside it",
        "llmgw limits show {project}",
    ),
    "model_not_found": ("there was no model of that name or alias", "llmgw model list"),
    "model_loading": ("no replica of {model} was ready yet", "llmgw why {model}"),
    "model_parked": ("{model} was parked: it runs when it is needed", "llmgw why {model}"),
    "system_stopped": ("the whole system had been stopped", "llmgw start"),
    "model_stopped": ("{model} had been stopped by somebody", "llmgw model start {model}"),
    "no_capacity": ("there was no room for a replica of {model}", "llmgw explain-placement {model}"),
    "engine_busy": ("every replica of {model} had asked for a pause", "llmgw replica list --model {model}"),
    "queue_full": ("more requests waited for {model} than may wait", "llmgw why {model}"),
    "wait_too_long": ("it would have waited for {model} longer than it may", "llmgw why {model}"),
    "provider_busy": ("the provider of {model} asked for a pause", "llmgw model show {model}"),
    "no_usable_key": ("none of the keys for the provider of {model} can be used", "llmgw model show {model}"),
    "context_length_exceeded": ("it does not fit into what {model} can read", "llmgw model show {model}"),
    "no_vision": ("{model} does not see pictures", "llmgw model show {model}"),
    "engine_unauthorized": ("the engine did not take the gateway's key", "llmgw replica list --model {model}"),
    "ledger_away": ("limits and budgets could not be checked, for Redis did not answer", "llmgw status"),
    "gateway_stopping": ("the gateway was being restarted", "llmgw status"),
    "books_closed": ("the gateway could not write its books, and serves nothing unaccounted", "llmgw status"),
    "unsupported_endpoint": ("the model does not answer that kind of request", "llmgw model show {model}"),
    "internal_error": ("a fault of the gateway", "llmgw logs edge"),
}
"""A code's meaning, and the command that would change it or show more."""
_LIMITS = {
    "rate_limit_exceeded": "a limit of a level that it counts for was met",
    "insufficient_quota": "the budget of a level that it counts for is spent",
}
_OPTIONS = (
    ("requests a minute", "--rpm N"),
    ("no requests at all", ""),
    ("tokens a minute", "--tpm N"),
    ("a minute: it can never fit", "--tpm N"),
    ("requests at once", "--concurrent N"),
    ("of its budget", "--budget AMOUNT"),
)
"""What `gateway.core.ledger.refusals` says of a limit, and the option that sets it."""
_CHAT_LIMITS = "llmgw config show"
