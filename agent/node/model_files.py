"""What the model's files on this node say of it."""

from __future__ import annotations

import mmap
from pathlib import Path

from agent.engine import ModelFacts
from agent.engines import model_facts


def facts(weights: Path) -> ModelFacts | None:
    """None where nothing is known."""
    try:
        if weights.is_dir():
            return model_facts.of_config((weights / "config.json").read_bytes())
        with weights.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return model_facts.of_gguf(data)
    except (OSError, ValueError):
        return None
