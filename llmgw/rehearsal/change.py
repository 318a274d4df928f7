"""Rehearsal of a change: the shape of the traffic that there was (times, tokens, models; not a word) through the
cluster as it is and as it would be, and the difference."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from statistics import median
from typing import Any

from agent.rehearsal import figures
from agent.rehearsal.values import SMALL
from fleet.core import starting
from fleet.core.world import WantedModel, World
from fleet.selectors.world import load_wanted, load_world
from gateway.models import Usage
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.core.settings import ClusterSettings
from llmgw.cluster.errors import Conflict
from llmgw.rehearsal import overlay as overlays
from llmgw.rehearsal.overlay import Overlay
from llmgw.rehearsal.pure import measured
from llmgw.rehearsal.pure.measured import Timed
from llmgw.rehearsal.pure.queue import Pace
from llmgw.rehearsal.pure.report import Report, by_model, percentile, report
from llmgw.rehearsal.pure.shape import Ask
from llmgw.rehearsal.pure.week import Found, PaceOf, Rules, Week

LEAD_S = 1800.0
"""Before the first request: what is to run runs by then."""
MOST_ROWS = 3_000_000
_COLUMNS: tuple[str, ...] = (
    *("at", "model", "served", "outcome", "status", "stream", "cache"),
    *("prompt_tokens", "completion_tokens", "dispatched_ms", "ttft_ms", "duration_ms"),
)


@dataclass
class Past:
    """What the rows of usage say: the shape, how each model answered, and what became of it."""

    asks: list[Ask] = field(default_factory=list)
    timed: dict[str, list[Timed]] = field(default_factory=lambda: defaultdict(list))
    refused: int = 0
    ttft_s: list[float] = field(default_factory=list)


def past(begin: datetime, end: datetime, models: frozenset[str]) -> Past:
    """Of models that are served here. Limits and budgets refuse before a model is reached, and are left out."""
    found = Past()
    unknown: list[tuple[float, str, int | None, int | None]] = []
    lengths: dict[str, list[tuple[int, int]]] = defaultdict(list)
    rows = Usage.objects.filter(at__gte=begin, at__lt=end).order_by("at")
    if rows.count() > MOST_ROWS:
        raise Conflict("too_many_rows", f"there are more than {MOST_ROWS} requests: ask for fewer days with --days")
    for row in rows.values(*_COLUMNS).iterator(chunk_size=5000):
        model = row["served"] or row["model"]
        if model not in models or row["cache"] in ("hit", "similar"):
            continue
        refused = row["outcome"] == Usage.Outcome.REFUSED
        if refused and row["status"] != 503:
            continue
        found.refused += refused
        prompt, answer = row["prompt_tokens"], row["completion_tokens"]
        unknown.append((row["at"].timestamp(), model, prompt, answer))
        if prompt is None or answer is None:
            continue
        lengths[model].append((prompt, answer))
        ttft, sent, whole = row["ttft_ms"], row["dispatched_ms"] or 0.0, row["duration_ms"]
        if row["stream"] and row["outcome"] == Usage.Outcome.OK and ttft is not None and whole is not None:
            found.ttft_s.append(ttft / 1000)
            found.timed[model].append(Timed(prompt, answer, (ttft - sent) / 1000, (whole - ttft) / 1000))
    usual = {m: (int(median(p for p, _ in n)), int(median(a for _, a in n))) for m, n in lengths.items()}
    for at, model, prompt, answer in unknown:
        standing = usual.get(model, (100, 100))
        found.asks.append(
            Ask(at, model, standing[0] if prompt is None else prompt, standing[1] if answer is None else answer)
        )
    return found


def rehearse(
    raw: Any, *, days: float = 7.0, now: float, say: Callable[[str], None] = lambda said: None
) -> dict[str, Any]:
    """The table: as it was measured, as it would have been by the same model of queues, and as it would be."""
    version, document = cluster_settings.current()
    # A restart that was asked for lies ahead of every pretended replica: each would be replaced without end.
    world, wanted = load_world(now), tuple(replace(w, restarted_at=None) for w in load_wanted())
    world = replace(world, starts=starting.starts(world.shown, (w.definition for w in wanted)))
    present = {w.name: w.definition for w in wanted if w.definition.profiles}
    change = overlays.read(raw, document, present, frozenset(n.id for n in world.nodes))
    begin = now - days * 86400
    names = frozenset({*present, *change.models})
    seen = past(datetime.fromtimestamp(begin, UTC), datetime.fromtimestamp(now, UTC), names)
    if not seen.asks:
        raise Conflict("no_traffic", f"no request of the last {days:g} days was for a model that is served here")
    say(f"{len(seen.asks)} requests of {days:g} days; as it is …")
    paces = Paces(world, seen.timed, change.weights)
    before = _run(
        world, tuple(w for w in wanted if w.definition.profiles), cluster_settings.in_force(), seen, paces, begin, now
    )
    say("… and as it would be …")
    after = _run(_changed(world, change), _wanted(wanted, change), change.settings, seen, paces, begin, now)
    one, other = report(before, change.hour_costs), report(after, change.hour_costs)
    return {
        "change": change.name,
        "settings_version": version,
        "days": days,
        "measured": {
            "requests": len(seen.asks),
            "refused": seen.refused,
            "ttft_p50_s": _short(percentile(sorted(seen.ttft_s), 0.5)),
            "ttft_p95_s": _short(percentile(sorted(seen.ttft_s), 0.95)),
        },
        "as_it_is": one.told(),
        "as_it_would_be": other.told(),
        "difference": difference(one, other),
        "models_as_it_is": by_model(before),
        "models_as_it_would_be": by_model(after),
        "sureness": sureness(paces, names, seen, one),
        "broken": [*before.broken, *after.broken],
    }


class Paces:
    """How fast each model's replicas are: measured where enough was answered here, else from data sheets."""

    def __init__(self, world: World, timed: Mapping[str, list[Timed]], weights: Mapping[str, figures.Weights]) -> None:
        self._classes = {(n.id, c.index): c.gpu_class for n in world.nodes for c in n.facts.gpus or ()}
        self._weights = weights
        self._starts = world.starts
        self._measured = {m: p for m, found in timed.items() if (p := measured.pace(found, 0.0)) is not None}
        self._made: dict[tuple[str, str | None, int], Pace] = {}

    def measured(self, model: str) -> bool:
        return model in self._measured

    def of(self, model: str, node: str, devices: tuple[int, ...]) -> Pace:
        gpu_class = self._classes.get((node, devices[0])) if devices else None
        key = (model, gpu_class, len(devices))
        if key not in self._made:
            speed = figures.speed(self._weights.get(model, SMALL), gpu_class, len(devices))
            start_s = self._starts.get(model, speed.load_s)
            known = self._measured.get(model)
            self._made[key] = (
                replace(known, start_s=start_s)
                if known is not None
                else Pace(start_s, speed.prompt_token_s, speed.step_s)
            )
        return self._made[key]


def difference(one: Report, other: Report) -> dict[str, Any]:
    """What the change makes of each figure; None where it is not known."""
    pairs = {
        "refused": (one.refused, other.refused),
        "waited_over_1_s": (one.waited, other.waited),
        "ttft_p50_s": (one.ttft_p50_s, other.ttft_p50_s),
        "ttft_p95_s": (one.ttft_p95_s, other.ttft_p95_s),
        "gpu_hours": (sum(one.gpu_hours.values()), sum(other.gpu_hours.values())),
        "starts": (one.starts, other.starts),
        "cost": (one.cost, other.cost),
    }
    return {name: None if a is None or b is None else round(b - a, 3) for name, (a, b) in pairs.items()}


def sureness(paces: Paces, names: frozenset[str], seen: Past, one: Report) -> list[str]:
    """What the figures rest on, in sentences."""
    said = []
    assumed = sorted(n for n in names if not paces.measured(n) and any(a.model == n for a in seen.asks))
    if assumed:
        said.append(
            f"the pace of {', '.join(assumed)} is from data sheets: fewer than {measured.ENOUGH} streamed answers"
        )
    real = percentile(sorted(seen.ttft_s), 0.5)
    if real and one.ttft_p50_s:
        said.append(f"as it is, this gives {one.ttft_p50_s / real:.2f} × the median TTFT that was measured")
    share = len(seen.asks) and seen.refused / len(seen.asks)
    said.append(f"as it is, {one.refused_share:.2%} are refused here and {share:.2%} were in truth")
    said.append(
        "prefix caches, queues' bands and limits are not in it; a difference smaller than the gap above is none"
    )
    return said


def _run(
    world: World,
    wanted: tuple[WantedModel, ...],
    settings: ClusterSettings,
    seen: Past,
    paces: Paces,
    begin: float,
    now: float,
) -> Found:
    gateway = settings.gateway
    fresh = replace(
        world,
        nodes=tuple(replace(n, connected=True, reported=True, lost=False, settled=True) for n in world.nodes),
        replicas=(),
        strays=(),
        synced=True,
        settings=settings.fleet,
        serving=settings.serving,
        facility=settings.facility,
        time_zone=cluster_settings.time_zone(settings),
        demand={},
        targets={},
        heard=True,
    )
    of: PaceOf = paces.of
    week = Week(fresh, wanted, of, Rules(gateway.queue_max_wait_s, gateway.queue_limit))
    week.run((), begin - LEAD_S, LEAD_S)
    week.found = Found()
    return week.run(iter(seen.asks), begin, now - begin)


def _changed(world: World, change: Overlay) -> World:
    return replace(world, nodes=tuple(n for n in world.nodes if n.id not in change.nodes_out))


def _wanted(wanted: tuple[WantedModel, ...], change: Overlay) -> tuple[WantedModel, ...]:
    found = {w.name: w for w in wanted if w.definition.profiles}
    for name, definition in change.models.items():
        stood = found.get(name)
        found[name] = replace(stood, definition=definition) if stood is not None else WantedModel(definition)
    for name in change.stopped:
        if name in found:
            found[name] = replace(found[name], stopped=True)
    return tuple(found.values())


def _short(value: float | None) -> float | None:
    return None if value is None else round(value, 3)
