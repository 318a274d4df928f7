"""The store that real processes share with a test: the machine's own, not pytest-django's private one."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management import call_command
from django.db import connections

from llmgw import settings

_migrated = False


@contextmanager
def shared() -> Iterator[None]:
    """Points this process at the machine's store, migrated and empty of what tests write."""
    global _migrated
    previous = connections["default"]
    described = connections.databases["default"]
    changed = copy.deepcopy(described)
    changed["NAME"] = settings._database(settings.MACHINE.store)["NAME"]
    connections.databases["default"] = changed
    del connections["default"]
    try:
        if not _migrated:
            call_command("migrate", verbosity=0, interactive=False)
            _migrated = True
        _empty()
        yield
    finally:
        connections["default"].close()
        connections.databases["default"] = described
        connections["default"] = previous


def _empty() -> None:
    from django.apps import apps

    for label in ("fleet", "cluster", "catalog"):
        for model in reversed(list(apps.get_app_config(label).get_models())):
            model.objects.all().delete()
