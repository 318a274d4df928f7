"""The registry of engines: a name in a profile to what can be known of that engine without touching a machine."""

from __future__ import annotations

from agent.engine import Engine
from agent.engines.llamacpp import LlamaCpp

ENGINES: dict[str, Engine] = {engine.name: engine for engine in (LlamaCpp(),)}
