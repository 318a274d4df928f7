"""Asks an engine how far it is, and looks whether it is really ours that answers."""

from __future__ import annotations

import asyncio

from agent.core.readiness import Verdict, verdict
from agent.node.context import Context
from agent.node.ending import remains
from agent.node.shardfile import ShardFile


async def ask(ctx: Context, record: ShardFile, was_ready: bool) -> Verdict:
    """One question to a shard that runs. Of one that was ready already only its port is looked at: an engine that
    is busy may be slow to answer, and a closed port alone says that it serves no more."""
    spec, host = record.spec, record.host
    engine = ctx.engines.get(spec.profile.engine)
    if engine is None or not engine.serves_http(spec.rank):
        return Verdict.READY  # staying alive is all that a rank without HTTP can show
    if was_ready:
        closed = await ctx.host.connects(host, spec.port) is False
        return Verdict.STARTING if closed else Verdict.READY
    probes = engine.probes(spec)
    alive = await ctx.host.get(host, spec.port, probes.alive, spec.key)
    if alive is None:
        return Verdict.STARTING
    ready = await ctx.host.get(host, spec.port, probes.ready, spec.key)
    found = verdict(alive, ready, spec.model)
    if found not in (Verdict.READY, Verdict.FOREIGN):
        return found
    mine = remains(ctx.host, ctx.home.id, spec.shard_id, record.launch, record.processes)
    if ctx.host.listens(spec.port, mine) is False:
        return Verdict.FOREIGN
    if found is Verdict.FOREIGN:
        return Verdict.LOADING  # it is ours, and lists another name: it may still be on its way
    if spec.devices and await asyncio.to_thread(ctx.host.holds_cards, spec.devices, mine) is False:
        return Verdict.OFF_CARD
    return found
