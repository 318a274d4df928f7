"""What must be there before the processes start: folders, store, authority, first account, starter model, agent's home.

Every step looks before it acts: run again it changes nothing.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

from django.core.management import call_command

from llmgw.cluster.errors import Conflict
from llmgw.machine import Machine

ACTOR = "up"
ADMINISTRATOR = "admin@localhost"
TINY = "tiny"


@dataclass(frozen=True, slots=True)
class Prepared:
    """Whom and what `up` speaks for. `password` and `key` are None unless they were made just now."""

    email: str
    password: str | None
    key: str | None
    person: str
    project: str
    model: str
    """Whom to ask first; empty where no model is served."""


def folders(machine: Machine) -> None:
    """The state directory's folders, closed to everybody else; one sentence where they cannot be made."""
    for folder in (
        machine.home,
        machine.run_dir,
        machine.logs_dir,
        machine.secrets_dir,
        machine.spool_dir,
        machine.snapshot_dir,
        machine.home / "redis",
    ):
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as e:
            raise Conflict(
                "no_state_directory",
                f"{folder} cannot be made: {e.strerror}; choose another place with LLMGW_HOME=…",
            ) from None
    if not os.access(machine.home, os.W_OK):
        raise Conflict("no_state_directory", f"{machine.home} cannot be written; choose another with LLMGW_HOME=…")


def store(machine: Machine, starter: str, node: bool = True) -> Prepared:
    """The store at this version, with everything a first answer needs; without `node` nobody is asked one."""
    from fleet import bootstrap as fleet
    from fleet.actions import certificates
    from gateway.control import publishing
    from gateway.core.snapshot import PARTS
    from tenancy import bootstrap as tenancy

    call_command("migrate", verbosity=0, interactive=False)
    fleet.ensure(machine)
    first = tenancy.first(os.environ.get("ADMIN") or ADMINISTRATOR)
    model = _starter(starter) if node else ""
    if node:
        certificates.enrol_local(
            node_id=machine.node_id or os.uname().nodename,
            home=machine.agent_dir,
            server_url=f"wss://{machine.local_host}:{machine.link_port}/agent/link",
            actor=ACTOR,
        )
    publishing.publish_quietly(*PARTS)  # an edge that knows keys must know limits and prices too
    return Prepared(
        email=first.email,
        password=first.password,
        key=first.key,
        person=first.person,
        project=first.project,
        model=model,
    )


def _starter(name: str) -> str:
    """The model to ask: the starter that was named, else one that is served, else the tiny one on a new store.

    Empty where people took every model away: theirs is the last word.
    """
    from catalog import selectors
    from catalog.actions import models
    from catalog.core import starter
    from llmgw.cluster.models import AuditEntry

    if not name:
        served = [d.name for d, stopped in selectors.wanted() if not stopped and d.scaling.min and "chat" in d.kinds]
        if served:
            return TINY if TINY in served else served[0]
        if AuditEntry.objects.filter(action="model.add").exists():
            return ""
    definition = starter.starter(name or TINY)
    if definition.name not in {d.name for d, _ in selectors.wanted()}:
        models.add(definition=definition, actor=ACTOR)
    return definition.name
