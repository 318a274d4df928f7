"""Measurements that a worker carries out for somebody who watches: begun, told level by level through Redis, stopped.

One at a time in the whole cluster, for one beside another would measure both. What is found is kept with the model by
`fleet.actions.bench`; the levels stay in Redis for a week, and an empty Redis forgets them only.
"""

from __future__ import annotations

import secrets
import time
from dataclasses import asdict
from typing import Any, cast

import msgspec
import redis

from catalog.core.slo import Slo
from fleet import heart, nudges
from fleet.actions import bench
from fleet.core.capacity import Level
from fleet.measuring import Shape
from llmgw.cluster.actions import audit
from llmgw.cluster.errors import Conflict

KEY = "llmgw:bench:"
"""And the model: its newest run."""
NOW = "llmgw:bench-now"
"""The sign of life of the run that is under way."""
KEPT_S = 7 * 86400


class Run(heart.Work, frozen=True, kw_only=True):
    """`found`: as `bench.bench` tells it, without the levels."""

    model: str
    replica: str
    node: str
    profile: str
    ttft_p99_s: float | None
    tpot_p99_s: float | None
    shape: Shape
    save: bool
    levels: tuple[dict[str, Any], ...] = ()
    found: dict[str, Any] | None = None


def begin(
    *,
    name: str,
    actor: str,
    replica: str | None = None,
    slo: Slo | None = None,
    shape: Shape | None = None,
    save: bool = False,
) -> Run:
    """Hands it to a worker. Refused as `bench.bench` would be, and while another is measured."""
    prepared = bench.prepare(name=name, replica=replica, slo=slo)
    run = Run(
        id=secrets.token_hex(8),
        model=prepared.target.model,
        replica=prepared.target.replica,
        node=prepared.node,
        profile=prepared.profile,
        ttft_p99_s=prepared.promised.ttft_p99_s,
        tpot_p99_s=prepared.promised.tpot_p99_s,
        shape=shape or Shape(),
        save=save,
        actor=actor,
        begun_at=time.time(),
    )
    try:
        if not heart.claim(NOW, run.id):
            raise Conflict(
                "bench_runs", "another measurement runs, and one beside it would measure both: wait for it, or stop it"
            )
        _keep(run)
        nudges.work("fleet.bench", run.model, run.id)
    except redis.RedisError as e:
        raise Conflict("redis_down", f"a worker is told by way of Redis, which cannot be reached: {e}") from None
    audit.record(actor=actor, action="model.bench", subject=run.model, replica=run.replica, save=save)
    return run


def stop(*, name: str) -> Run | None:
    """Sends nothing more; what is being answered is waited for. None: nothing to stop."""
    run = of(name)
    if run is None or not run.runs:
        return None
    heart.ask_to_stop(NOW, run.id)
    return of(name)


def of(name: str) -> Run | None:
    """The model's newest run, as it stands. None: none in the last week, or Redis is away."""
    try:
        data = cast(bytes | None, nudges.client().get(KEY + name))
        run = msgspec.json.decode(data, type=Run) if data is not None else None
        return run and heart.as_it_stands(NOW, run, "bench")
    except (redis.RedisError, OSError, msgspec.MsgspecError):  # the last: another version's
        return None


def carry_out(name: str, run_id: str) -> None:
    """In a worker: from the first request to the figure that is kept."""
    run = of(name)
    if run is not None and run.id == run_id:
        heart.carry_out(NOW, run, "bench", _keep, _measured)


def _measured(run: Run, beats: heart.Heart) -> Run:
    levels: list[dict[str, Any]] = []

    def told(level: Level) -> None:
        levels.append(asdict(level))
        _keep(msgspec.structs.replace(run, levels=tuple(levels)))

    found = bench.bench(
        name=run.model,
        replica=run.replica,
        slo=Slo(run.ttft_p99_s, run.tpot_p99_s),
        shape=run.shape,
        save=run.save,
        actor=run.actor,
        told=told,
        stopped=beats.stopped.is_set,
    )
    found.pop("levels")
    stopped = beats.stopped.is_set()
    return msgspec.structs.replace(
        run, state="stopped" if stopped else "done", levels=tuple(levels), found=None if stopped else found
    )


def _keep(run: Run) -> None:
    nudges.client().set(KEY + run.model, msgspec.json.encode(run), ex=KEPT_S)
