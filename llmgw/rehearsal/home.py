"""A rehearsal's own state directory, and how it is told from a real one: by its file and by its store's id."""

from __future__ import annotations

import secrets
import uuid
from pathlib import Path

import yaml

from llmgw.cluster.errors import Conflict

_SIGN = "07ea75a1"
"""Store ids of rehearsals begin so; a real one is random, and begins so once in four thousand million."""


def new_store_id() -> uuid.UUID:
    return uuid.UUID(_SIGN + secrets.token_hex(12))


def is_rehearsal(store_id: object) -> bool:
    return str(store_id).replace("-", "").startswith(_SIGN)


def prepare(home: Path) -> None:
    """Makes the directory and its sign; refuses one that holds something else."""
    path = home / "config.yaml"
    if home.exists() and any(home.iterdir()) and not marked(home):
        raise Conflict(
            "not_a_rehearsal",
            f"{home} holds something that is no rehearsal; a rehearsal never touches a real cluster",
            "llmgw rehearse WORLD.yaml --home NEW-FOLDER",
        )
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    present = yaml.safe_load(path.read_text()) or {} if path.exists() else {}
    path.write_text(yaml.safe_dump({**present, "rehearsal": True}))


def marked(home: Path) -> bool:
    """Whether its file says that it is a rehearsal's."""
    try:
        found = yaml.safe_load((home / "config.yaml").read_text())
    except (OSError, yaml.YAMLError):
        return False
    return isinstance(found, dict) and found.get("rehearsal") is True
