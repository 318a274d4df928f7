"""A snapshot whose projects reuse answers, and what a test asks of it."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import httpx

from gateway.core import snapshot
from llmgw.keys import key_hash
from tests.gateway.edges import AUTH, MODEL, EdgeProcess, catalog, endpoint, tenancy

SECOND_KEY = "llmgw_" + "s" * 43
"""Of project p3, which reuses answers too."""
SECOND = {"authorization": f"Bearer {SECOND_KEY}"}


def scopes(reuse: snapshot.Reuse | None, **fields: Any) -> snapshot.Tenancy:
    """Projects p1 and p3 with `reuse`."""
    usual = tenancy()
    projects = {name: replace(usual.projects["p1"], project=name, reuse=reuse, **fields) for name in ("p1", "p3")}
    second = {key_hash(SECOND_KEY): snapshot.KeyEntry("k3", "second", "p3")}
    return replace(usual, projects={**usual.projects, **projects}, keys={**usual.keys, **second})


def serve(edge: EdgeProcess, port: int, reuse: snapshot.Reuse | None = None, cache: Any = None, **scope: Any) -> None:
    edge.publish(
        tenancy=scopes(reuse or snapshot.Reuse(3600.0, since=now()), **scope),
        catalog=catalog(),
        endpoints=snapshot.Endpoints(endpoints=(endpoint(port),)),
        policies=snapshot.Policies(cache=cache or snapshot.CachePolicy()),
    )


def now() -> float:
    """Now: what another test had answered is not found."""
    return time.time()


def ask(edge: EdgeProcess, body: dict[str, Any], path: str = "/v1/chat/completions", **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return httpx.post(f"{edge.url}{path}", json=body, headers={**AUTH, **named}, timeout=15, verify=False)


def said(answer: httpx.Response) -> str:
    return answer.headers.get("x-llmgw-cache", "")


def zero(**fields: Any) -> dict[str, Any]:
    """A chat that is answered the same each time."""
    return {"model": MODEL, "messages": [{"role": "user", "content": "hi"}], "temperature": 0, **fields}
