"""The registry of engines: a name in a profile to what can be known of that engine without touching a machine."""

from __future__ import annotations

from agent.engine import Engine
from agent.engines.llamacpp import LlamaCpp
from agent.engines.sglang import SgLang
from agent.engines.trtllm import TrtLlm
from agent.engines.vllm import Vllm

_ALL: tuple[Engine, ...] = (LlamaCpp(), Vllm(), SgLang(), TrtLlm())

ENGINES: dict[str, Engine] = {engine.name: engine for engine in _ALL}
