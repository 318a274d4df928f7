"""What a request leaves behind: an intent before it is sent, and its counts, cost and settlement when it has ended."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from gateway.core import request as requests
from gateway.core import saving, tags, usage
from gateway.core.record import Intent, Settlement
from gateway.edge.spool import SpoolFull

if TYPE_CHECKING:
    from gateway.edge.exchange import Exchange


def intent(x: Exchange) -> Intent:
    assert x.who is not None
    who, scope, request = x.who, x.who.scope, x.request
    session = x.client.named.get(b"x-session-id")
    return Intent(
        id=x.id,
        at=x.at,
        endpoint=x.endpoint,
        model=x.asked_model,
        asked=request.asked[:120] if request is not None else "",
        stream=request.stream if request is not None else False,
        organisation=scope.organisation,
        team=scope.team,
        project=scope.project,
        key=who.key,
        person=who.person,
        edge=x.edge.id,
        session=tags.text(session, 128) if session else "",
        end_user=tags.text(request.user, 256) if request is not None and request.user else "",
        tags=x.tags,
    )


def close(x: Exchange, outcome: str, status: int, code: str) -> None:
    """Once. What nobody may be charged for (no valid key) is counted, and leaves no row."""
    if x.settled:
        return
    x.settled = True
    if x.keeping is not None:
        x.edge.keeper.keep(x.keeping)
    duration_s = time.perf_counter() - x.began
    counts, estimated = _counts(x, outcome)
    edge, who = x.edge, x.who
    model = x.entry.name if x.entry is not None else ""
    cost = _cost(x, outcome, counts)
    alike = edge.metrics.alike(model, x.endpoint, outcome, who.scope if who is not None else None)
    alike.ended(duration_s, counts, cost, x.tally.ttft_s)
    if x.tags:
        labels = edge.snapshots.current.policies.tag_labels
        edge.metrics.tagged(labels, x.tags, outcome, counts)
    if model:
        edge.live.of(model).counted(counts)
    saved = _saved(x, counts) if x.look is not None or counts.cached else saving.NOTHING
    if x.look is not None:
        edge.metrics.reused(model, x.look.result)
    if saved is not saving.NOTHING:
        edge.metrics.saved(who.scope.project if who is not None else "", model, saved, _reused(x) is not None)
    if outcome == "ok" and x.tally.ttft_s is not None:
        edge.doors.streamed(x, x.place, counts.completion)
    if who is None:
        return
    if not x.intended:
        try:
            edge.spool.intend(intent(x))
        except SpoolFull:
            return
    replica = x.replica.endpoint if x.replica is not None else None
    ttft_s, look, place = x.tally.ttft_s, x.look, x.place
    settlement = Settlement(
        id=x.id,
        outcome=outcome,
        status=status,
        duration_ms=_ms(duration_s),
        ttft_ms=None if ttft_s is None else _ms(ttft_s),
        replica=replica.replica if replica is not None else "",
        node=replica.node if replica is not None else "",
        prompt_tokens=counts.prompt,
        completion_tokens=counts.completion,
        cached_tokens=counts.cached,
        estimated=estimated,
        attempts=x.attempts,
        code=code[:60],
        route=x.route,
        cache=look.result if look is not None else "",
        saved_tokens=saved.tokens or None,
        saved=saved.cost if saved.tokens else None,
        served=model if model != x.asked_model else "",
        cost=cost,
        dispatched_ms=None if x.sent_at is None else _ms(x.sent_at - x.began),
        reason=x.reason[:300],
        queued_ms=place.queued_ms if place is not None and place.waiter is not None else None,
        hops=tuple(x.hops) if x.hops else (),
    )
    edge.spool.settle(settlement)
    if x.trace and edge.tracing:
        edge.tracing.send(x.trace, intent(x), settlement, x.raw, x.began)


def _ms(seconds: float) -> float:
    """Milliseconds, to the microsecond."""
    return int(seconds * 1e6) / 1000


def _counts(x: Exchange, outcome: str) -> tuple[usage.Usage, bool]:
    """The engine's counts; ours, marked, where it worked and could not say."""
    found = x.tally.usage
    if x.replica is None or outcome == "refused":
        return found or usage.Usage(), False
    found = found or usage.Usage()
    if found.prompt is not None and (found.completion is not None or x.endpoint == requests.EMBEDDINGS):
        return found, False
    prompt = found.prompt if found.prompt is not None else usage.estimate_prompt(x.raw)
    answered = found.completion if found.completion is not None else x.tally.estimated()
    return usage.Usage(prompt, answered, found.cached), True


def _cost(x: Exchange, outcome: str, counts: usage.Usage) -> int | None:
    """What was held is let go, what was used stays. An answer that failed before it had content costs nothing."""
    if x.hold is None:
        return None
    charged = outcome in ("ok", "client_left") or x.tally.content_sent
    cost = x.edge.till.settle(x.hold, x.request, counts, charged, x.known())
    return cost if x.who is None or x.who.replay is None else 0


def _saved(x: Exchange, counts: usage.Usage) -> saving.Saving:
    reused = _reused(x)
    if reused is None and not counts.cached:
        return saving.NOTHING
    price = x.hold.prices(x.known()) if x.hold is not None else None
    return saving.answer(reused, price) if reused is not None else saving.prefix(counts, price)


def _reused(x: Exchange) -> usage.Usage | None:
    """What the answer counted when it was first given; None where it was not given before."""
    return x.look.saved.usage if x.look is not None and x.look.saved is not None else None
