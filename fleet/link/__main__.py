"""`python -m fleet.link`: the agents' websocket, a process of its own."""

from __future__ import annotations

import os

import django
import uvloop

from llmgw import machine

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "llmgw.settings")
django.setup()

from fleet.link.server import serve  # noqa: E402 - models need the settings first

if __name__ == "__main__":
    uvloop.run(serve(machine.require()))
