"""The parts of a node's page that move by themselves: its cards and what they do now."""

from __future__ import annotations

from django.template.loader import render_to_string
from django.utils import translation

from fleet.core.devices import Device
from fleet.selectors import details
from fleet.selectors.machines import Machines


def render(found: Machines, language: str, node: str) -> dict[str, str]:
    """By id; nothing of a node that is gone or has no card."""
    devices = [d for d in found.devices if d.node == node]
    if not devices:
        return {}
    with translation.override(language):
        return {"part-devices": render_to_string("portal/nodes/devices.html", {"cards": rows(devices)})}


def rows(devices: list[Device]) -> list[dict[str, object]]:
    """A row of the table each."""
    return [{**details.gpu(d.gpu), "device": d.name, "work": d.work, "foreign_bytes": d.foreign_bytes} for d in devices]
