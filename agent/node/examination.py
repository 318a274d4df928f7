"""Looks at what `agent.core.doctor` judges: certificate, engine user, folders. Read-only."""

from __future__ import annotations

import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from agent.core.doctor import Seen
from agent.node import reach, shardfile, surroundings
from agent.node.home import Home
from agent.node.settings import Settings
from agent.wire.facts import NodeFacts


@dataclass(frozen=True, slots=True)
class Noted:
    """What a running agent learned on its link."""

    skew_s: float | None = None
    """The control plane's clock less this node's, at the last welcome."""
    renewal_problem: str | None = None


_NOTHING = Noted()
_FIRST_PORTS = tuple(range(18100, 18108))
"""Where nothing runs yet: from the default of `fleet.first_port` on."""


def look(
    home: Home,
    settings: Settings,
    facts: NodeFacts,
    *,
    noted: Noted = _NOTHING,
    unreachable: str | None = None,
    settings_problem: str | None = None,
) -> Seen:
    return Seen(
        facts=facts,
        certificate_left_s=_certificate_left_s(settings.tls.cert),
        server_skew_s=noted.skew_s,
        renewal_problem=noted.renewal_problem,
        unreachable=unreachable,
        engine_user=settings.engine_user,
        installs=settings.installs.on,
        left_out=frozenset(settings.engines) | frozenset(settings.installs.disabled),
        engines_free_bytes=shutil.disk_usage(home.path).free,
        programs_missing=frozenset(n for n in ("gcc",) if shutil.which(n) is None),
        engine_user_problems=_user_problems(home, settings, facts),
        unknown_settings=settings.unknown,
        settings_problem=settings_problem,
        modules=surroundings.modules(),
        memlock_bytes=surroundings.memlock_bytes(),
        fabric_manager=surroundings.fabric_manager(),
        imex=surroundings.imex(),
        imex_channels=surroundings.imex_channels(),
        nftables=surroundings.nftables(),
        engine_ports=tuple(sorted({r.spec.port for r in shardfile.read_all(home)})) or _FIRST_PORTS,
        home_problem=None if os.access(home.path, os.W_OK) else f"{home.path} cannot be written to by this user",
    )


def _certificate_left_s(path: Path) -> float | None:
    from cryptography import x509

    try:
        ends = x509.load_pem_x509_certificate(path.read_bytes()).not_valid_after_utc
    except (OSError, ValueError):
        return None
    return ends.timestamp() - time.time()


def _user_problems(home: Home, settings: Settings, facts: NodeFacts) -> tuple[str, ...]:
    user = settings.engine_user
    if user is None:
        return ()
    if os.geteuid() != 0:
        return (f"engines are to run as {user}, and only an agent that runs as root can start them so",)
    places = [(home.scratch, "the engines' folder", True), (settings.weights or home.weights, "the weights", True)]
    places += [(Path(e.path), e.name, True) for e in facts.engines or () if e.path]
    found = (reach.problem(user, path, what, execute=execute) for path, what, execute in places)
    return tuple(dict.fromkeys(p for p in found if p is not None))
