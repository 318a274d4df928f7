"""Providers for tests of external models: files of keys, a world with such models, a server's certificate."""

from __future__ import annotations

import ssl
import time
from pathlib import Path
from typing import Any

from gateway.core import snapshot
from tests.agent.pki import Authority
from tests.gateway.edges import MODEL, EdgeProcess, catalog, tenancy

NAME = "cloud-mini"
THEIRS = "provider-mini-1"
"""What the provider calls it."""
SECRET = "sk-canary-7f3d9a1c5e"


class Keys:
    """Files of keys in a folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def write(self, number: int, key: str) -> str:
        """By replacement, as tools rotate files."""
        path, new = self.folder / f"{number}.key", self.folder / f"{number}.new"
        new.touch(0o600)
        new.write_text(f"{key}\n")
        new.replace(path)
        return str(path)


def external(
    url: str, *files: str, weights: tuple[float, ...] = (), name: str = NAME, **fields: Any
) -> snapshot.ModelEntry:
    shares = weights or (1.0,) * len(files)
    keys = tuple(snapshot.ExternalKey(file, weight) for file, weight in zip(files, shares, strict=True))
    kinds = ("chat", "completions", "embeddings")
    return snapshot.ModelEntry(
        name, (), "serving", kinds=kinds, external=snapshot.External(url, THEIRS, keys), developer_role=True, **fields
    )


def serve(
    edge: EdgeProcess,
    *models: snapshot.ModelEntry,
    endpoints: tuple[snapshot.Endpoint, ...] = (),
    wait: bool = True,
    scope: snapshot.Scope | None = None,
    **policies: Any,
) -> None:
    """A world with these models beside the usual one; returns when their keys have been read."""
    who = tenancy()
    if scope is not None:
        who = snapshot.Tenancy(keys=who.keys, projects={**who.projects, "p1": scope}, people=who.people)
    edge.publish(
        tenancy=who,
        catalog=catalog(**{m.name: m for m in models}),
        endpoints=snapshot.Endpoints(endpoints=endpoints),
        policies=snapshot.Policies(**policies),
    )
    if wait:
        for model in models:
            if model.external is not None:
                wait_for_standing(edge, model.name, [""] * len(model.external.keys))


def standing(edge: EdgeProcess, name: str = NAME) -> list[str]:
    """The codes of the model's keys, as the edge tells them."""
    return [key["code"] for key in edge.live().get("external", {}).get(name, [])]


def wait_for_standing(edge: EdgeProcess, name: str, codes: list[str], timeout_s: float = 5) -> None:
    deadline = time.monotonic() + timeout_s
    while standing(edge, name) != codes:
        assert time.monotonic() < deadline, f"{standing(edge, name)}\n{edge.words()}"
        time.sleep(0.02)


def own(model: str = MODEL, **fields: Any) -> snapshot.ModelEntry:
    """A model that runs here."""
    kinds = ("chat", "completions", "embeddings")
    return snapshot.ModelEntry(model, ("helper",) if model == MODEL else (), "serving", kinds=kinds, **fields)


def server_tls(authority: Authority) -> ssl.SSLContext:
    pair = authority.server()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pair.cert, pair.key)
    return context
