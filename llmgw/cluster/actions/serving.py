"""The whole system stopped and started: a setting, so that it survives every restart, with its line in the audit."""

from __future__ import annotations

from django.db import transaction

from llmgw.cluster.actions import audit, settings
from llmgw.cluster.core import settings as core
from llmgw.cluster.errors import Conflict


def stop(*, actor: str, note: str = "") -> bool:
    """Every model is taken down and every request answered 503 until `start`; False: it was stopped already."""
    return _set(True, note.strip(), actor)


def start(*, actor: str) -> bool:
    """Every model comes back as its definition asks; False: nobody had stopped it."""
    return _set(False, "", actor)


def _set(stopped: bool, note: str, actor: str) -> bool:
    for attempt in range(3):
        base, document = settings.current()
        if core.read(document).serving.stopped == stopped:
            return False
        if stopped:
            document = {**document, "serving": {"stopped": True, **({"note": note} if note else {})}}
        else:
            document = {name: value for name, value in document.items() if name != "serving"}
        word = "stop" if stopped else "start"
        try:
            with transaction.atomic():
                settings.save(document=document, base=base, actor=actor, note=note or f"system {word}")
                audit.record(actor=actor, action=f"system.{word}", subject="system", note=note)
                return True
        except Conflict:  # somebody saved another setting just now
            if attempt == 2:
                raise
    return False
