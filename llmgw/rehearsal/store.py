"""The store of a rehearsal, with its settings, its models and a key."""

from __future__ import annotations

import logging
import time

from django.core.management import call_command
from django.db import connections

from catalog.actions import models as model_actions
from fleet import bootstrap
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.errors import Conflict
from llmgw.cluster.models import Store
from llmgw.machine import Machine
from llmgw.rehearsal import home
from llmgw.rehearsal.worldfile import World
from tenancy import bootstrap as tenancy
from tenancy.actions import keys
from tenancy.models import Person, Project

ACTOR = "rehearsal"


def prepare(world: World, machine: Machine) -> str:
    """What is there already stays; the key for its clients. Raises `Conflict` where the store is a real cluster's."""
    # Its Redis is not up yet: what is changed here is published when it is.
    logging.getLogger("gateway.control.publishing").setLevel(logging.ERROR)
    call_command("migrate", verbosity=0, interactive=False)
    store = Store.objects.filter(id=1).first()
    if store is None:
        Store.objects.create(id=1, store_id=home.new_store_id())
    elif not home.is_rehearsal(store.store_id):
        raise Conflict(
            "not_a_rehearsal",
            f"the store of {machine.home} is a real cluster's; a rehearsal never touches one",
            "llmgw rehearse WORLD.yaml",
        )
    bootstrap.ensure(machine)
    for path, value in world.settings.items():
        cluster_settings.put(path=path, value=value, actor=ACTOR)
    if world.models:
        model_actions.add_all(raws=[m.raw for m in world.models], actor=ACTOR, check_sources=False)
    first = tenancy.first("admin@localhost")
    made = keys.create(
        project=Project.objects.get(public_id=first.project),
        name=f"rehearsal {time.time():.0f}",
        person=Person.objects.get(public_id=first.person),
        actor=ACTOR,
    )
    connections.close_all()
    return made.secret
