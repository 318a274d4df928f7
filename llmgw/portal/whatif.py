"""A change that is tried before it is made: `llmgw rehearse change` in a process beside a worker, for whoever watches.

One at a time; the newest stays in Redis for a week. A process of its own, for it reckons for minutes, and a worker's
other threads have a cluster to keep.
"""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
import tempfile
import threading
import time
from typing import Any, cast

import msgspec
import redis
import yaml
from django.conf import settings

from agent.wire.reason import Reason
from fleet import heart, nudges
from llmgw.cluster.actions import audit
from llmgw.cluster.errors import Conflict, Invalid

KEY, NOW = "llmgw:whatif", "llmgw:whatif-now"
KEPT_S = 7 * 86400
LONGEST = 65536
"""Characters of a change."""


class Run(heart.Work, frozen=True, kw_only=True):
    """`told`: as the command prints it."""

    change: str
    days: float
    said: tuple[str, ...] = ()
    """How far it is, in the command's words."""
    told: dict[str, Any] | None = None


def begin(*, change: str, days: float, actor: str) -> Run:
    """Hands it to a worker. Refused for what is no YAML mapping, and while another is tried."""
    if len(change) > LONGEST:
        raise Invalid("bad_change", f"a change has at most {LONGEST} characters, and this one has {len(change)}")
    if not 0 < days <= 31:
        raise Invalid("bad_days", f"days are above 0 and at most 31, and not {days:g}")
    try:
        raw = yaml.safe_load(change)
    except yaml.YAMLError as e:
        raise Invalid("bad_change", f"the change cannot be read: {' '.join(str(e).split())[:300]}") from None
    if not isinstance(raw, dict):
        raise Invalid("bad_change", "a change is names with their values (settings: …, models: …)")
    run = Run(id=secrets.token_hex(8), change=change, days=days, actor=actor, begun_at=time.time())
    try:
        if not heart.claim(NOW, run.id):
            raise Conflict("whatif_runs", "another change is tried just now: wait for it, or stop it")
        _keep(run)
        nudges.work("portal.whatif", run.id)
    except redis.RedisError as e:
        raise Conflict("redis_down", f"a worker is told by way of Redis, which cannot be reached: {e}") from None
    audit.record(actor=actor, action="change.rehearse", subject=str(raw.get("name") or "")[:200], days=days)
    return run


def stop() -> None:
    run = newest()
    if run is not None and run.runs:
        heart.ask_to_stop(NOW, run.id)


def newest() -> Run | None:
    """As it stands. None: none in the last week, or Redis is away."""
    try:
        data = cast(bytes | None, nudges.client().get(KEY))
        run = msgspec.json.decode(data, type=Run) if data is not None else None
        return run and heart.as_it_stands(NOW, run, "whatif")
    except (redis.RedisError, OSError, msgspec.MsgspecError):  # the last: another version's
        return None


def carry_out(run_id: str) -> None:
    """In a worker, until the command has ended."""
    run = newest()
    if run is not None and run.id == run_id:
        heart.carry_out(NOW, run, "whatif", _keep, _rehearsed)


def _rehearsed(run: Run, beats: heart.Heart) -> Run:
    with tempfile.NamedTemporaryFile("w", suffix=".yaml", encoding="utf-8") as file, tempfile.TemporaryFile() as out:
        file.write(run.change)
        file.flush()
        words = ["rehearse", "change", file.name, "--days", f"{run.days:g}", "--json"]
        environment = {
            **os.environ,
            "DJANGO_SETTINGS_MODULE": "llmgw.settings",
            "LLMGW_HOME": str(settings.MACHINE.home),
        }
        argv = [sys.executable, "-m", "django", *words]
        with subprocess.Popen(
            argv, env=environment, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.PIPE, text=True
        ) as process:
            over = threading.Event()
            threading.Thread(target=_end_when_asked, args=(process, beats, over), daemon=True).start()
            said: list[str] = []
            for line in process.stderr or ():
                said.append(line.strip()[:500])
                run = msgspec.structs.replace(run, said=tuple(said[-20:]))
                _keep(run)
            status = process.wait()
            over.set()
        out.seek(0)
        answer = out.read().decode(errors="replace")
    if beats.stopped.is_set():
        return msgspec.structs.replace(run, state="stopped")
    try:
        told = json.loads(answer)
    except ValueError:
        told = None
    if status or not isinstance(told, dict):
        return msgspec.structs.replace(run, state="failed", reason=_refusal(told, said, status))
    return msgspec.structs.replace(run, state="done", told=told)


def _refusal(told: Any, said: list[str], status: int) -> Reason:
    error = told.get("error") if isinstance(told, dict) else None
    if isinstance(error, dict) and error.get("message"):
        return Reason(str(error.get("code") or "refused"), str(error["message"]), str(error.get("command") or ""))
    return Reason("whatif_failed", said[-1] if said else f"the command ended with status {status}")


def _end_when_asked(process: subprocess.Popen[str], beats: heart.Heart, over: threading.Event) -> None:
    while not over.wait(0.3):
        if beats.stopped.is_set():
            process.terminate()
            return


def _keep(run: Run) -> None:
    nudges.client().set(KEY, msgspec.json.encode(run), ex=KEPT_S)
