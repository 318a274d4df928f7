"""Asks an engine how far it is, and looks whether it is really ours that answers."""

from __future__ import annotations

import asyncio

from agent.core.readiness import Found, Verdict, off_card, verdict
from agent.node.context import Context
from agent.node.ending import remains
from agent.node.host import Identity
from agent.node.shardfile import ShardFile
from agent.wire.shard import ShardSpec


async def ask(ctx: Context, record: ShardFile, was_ready: bool) -> Found:
    """One question to a shard that runs. Of one that was ready already only its port is looked at: an engine that
    is busy may be slow to answer, and a closed port alone says that it serves no more."""
    spec, host = record.spec, record.host
    engine = ctx.engines.get(spec.profile.engine)
    if engine is None or not engine.serves_http(spec.rank):
        return Found(Verdict.READY) if was_ready else await _worker(ctx, record)
    if was_ready:
        closed = await ctx.host.connects(host, spec.port) is False
        return Found(Verdict.STARTING if closed else Verdict.READY)
    probes = engine.probes(spec)
    alive = await ctx.host.get(host, spec.port, probes.alive, spec.key)
    if alive is None:
        return Found(Verdict.STARTING)
    ready = await ctx.host.get(host, spec.port, probes.ready, spec.key)
    found = verdict(alive, ready, spec.model)
    if found not in (Verdict.READY, Verdict.FOREIGN):
        return Found(found)
    mine = remains(ctx.host, ctx.home.id, spec.shard_id, record.launch, record.processes)
    if ctx.host.listens(spec.port, mine) is False:
        return Found(Verdict.FOREIGN)
    if found is Verdict.FOREIGN:
        return Found(Verdict.LOADING)  # it is ours, and lists another name: it may still be on its way
    return await _on_cards(ctx, spec, mine, serves=True) or Found(found)


async def _worker(ctx: Context, record: ShardFile) -> Found:
    """A rank without HTTP shows nothing but that it lives and holds memory; that the replica serves is the leader's
    to show, which answers only when every worker has joined."""
    if ctx.host.age_s(record.processes[-1]) < ctx.alive_s:
        return Found(Verdict.STARTING)
    spec = record.spec
    mine = remains(ctx.host, ctx.home.id, spec.shard_id, record.launch, record.processes)
    return await _on_cards(ctx, spec, mine, serves=False) or Found(Verdict.READY)


async def _on_cards(ctx: Context, spec: ShardSpec, mine: tuple[Identity, ...], *, serves: bool) -> Found | None:
    """None: it holds memory on each of its cards, or that cannot be told."""
    if not spec.devices:
        return None
    held = await asyncio.to_thread(ctx.host.device_memory, spec.devices, mine)
    sentence = off_card(held, _build(ctx, spec), serves=serves) if held is not None else None
    return Found(Verdict.OFF_CARD, sentence) if sentence is not None else None


def _build(ctx: Context, spec: ShardSpec) -> str:
    return ctx.engine_path(spec.profile.engine) or spec.profile.engine
