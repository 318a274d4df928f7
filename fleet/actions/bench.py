"""Finding what a replica carries, and keeping it with its model."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from catalog import selectors as catalog
from catalog.actions import life
from catalog.core.slo import Slo
from fleet import measuring, models
from fleet.core.capacity import Level
from fleet.measuring import Shape, Target
from fleet.selectors.serving import ServingReplica, endpoints
from fleet.selectors.world import engine_key
from llmgw.cluster.errors import Conflict, Invalid, NotFound
from llmgw.durations import seconds as read_seconds


@dataclass(frozen=True, slots=True)
class Prepared:
    """What would be measured, against which promise, and of which profile."""

    target: Target
    node: str
    profile: str
    promised: Slo


def bench(
    *,
    name: str,
    actor: str,
    replica: str | None = None,
    slo: Slo | None = None,
    shape: Shape | None = None,
    save: bool = False,
    told: Callable[[Level], None] = lambda _: None,
    stopped: Callable[[], bool] = lambda: False,
) -> dict[str, Any]:
    """Real requests at one replica, more and more at once, until what is promised is missed. What was `stopped` is
    not kept."""
    prepared = prepare(name=name, replica=replica, slo=slo)
    target, promised = prepared.target, prepared.promised
    done = measuring.measure(target, promised, shape or Shape(), told, stopped)
    best = done.capacity.best
    told_all = {
        "model": target.model,
        "replica": target.replica,
        "node": prepared.node,
        "profile": prepared.profile,
        "ttft_p99_s": promised.ttft_p99_s,
        "tpot_p99_s": promised.tpot_p99_s,
        "concurrency": best.concurrency if best is not None else None,
        "tokens_per_s": best.tokens_per_s if best is not None else None,
        "requests_per_s": best.requests_per_s if best is not None else None,
        "weight": done.capacity.weight,
        "climbs_on": done.capacity.climbs_on,
        "metrics": done.told,
        "saved": False,
        "levels": [asdict(level) for level in done.capacity.levels],
    }
    if save and best is not None and not stopped():
        kept = {k: told_all[k] for k in ("concurrency", "tokens_per_s", "requests_per_s", "weight", "node", *_PROMISE)}
        life.measured(name=target.model, profile=prepared.profile, figures={**kept, "at": time.time()}, actor=actor)
        told_all["saved"] = True
    return told_all


def prepare(*, name: str, replica: str | None = None, slo: Slo | None = None) -> Prepared:
    """Refused where nothing could be measured: no chat, no promise, no replica that serves."""
    found = catalog.entry(name)
    definition = life.readable(found)
    if "chat" not in definition.kinds:
        raise Conflict("not_chat", f"{found.name} answers no chats, and a bench asks for nothing else")
    promised = slo or definition.slo
    if promised is None or promised == Slo():
        raise Invalid(
            "no_slo",
            f"nothing is promised for {found.name}, so nothing can be missed: say --ttft 2s, --tpot 80ms, or both, or "
            "give its definition an slo",
            f"llmgw bench {found.name} --ttft 2s --tpot 80ms",
        )
    endpoint = _replica(found.name, replica)
    row = models.Replica.objects.get(public_id=endpoint.replica)
    target = Target(
        endpoint.replica,
        found.name,
        f"http://{endpoint.host}:{endpoint.port}",
        endpoint.engine,
        engine_key(endpoint.replica),
    )
    return Prepared(target, endpoint.node, row.profile, promised)


def promise(ttft: str | None, tpot: str | None) -> Slo | None:
    """As people write it, `2s` and `80ms`; None: what the model's definition says."""
    return Slo(_duration("ttft", ttft), _duration("tpot", tpot)) if ttft or tpot else None


def shaped(*, seconds: float = 10.0, words: int = 200, tokens: int = 64, most: int = 256) -> Shape:
    """Of the requests, within bounds."""
    if not (0 < seconds <= 3600 and 1 <= words <= 100_000 and 2 <= tokens <= 100_000 and 1 <= most <= 4096):
        raise Invalid("bad_shape", "seconds are above 0, words at least 1, tokens at least 2, and most 1 to 4096")
    return Shape(words, tokens, seconds, most)


_PROMISE = ("ttft_p99_s", "tpot_p99_s")


def _duration(name: str, written: str | None) -> float | None:
    if not written:
        return None
    found = read_seconds(written)
    if found is None or found <= 0:
        raise Invalid("bad_duration", f"--{name} is a duration like 2s or 80ms, and not {written!r}")
    return found


def _replica(model: str, asked: str | None) -> ServingReplica:
    """The one that was asked for; else one on a cordoned node, where it disturbs least, else the first."""
    of = [e for e in endpoints() if e.model == model]
    if asked is not None:
        one = next((e for e in of if e.replica == asked), None)
        if one is None:
            raise NotFound(
                "no_such_replica",
                f"{asked} is no replica of {model} that serves",
                f"llmgw replica list --model {model}",
            )
        return one
    serving = [e for e in of if not e.draining]
    if not serving:
        raise Conflict("nothing_serves", f"no replica of {model} serves, so none can be measured", f"llmgw why {model}")
    cordoned = set(models.Node.objects.filter(cordoned=True).values_list("node_id", flat=True))
    return min(serving, key=lambda e: (e.node not in cordoned, e.replica))
