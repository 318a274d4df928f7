"""How long a model's starts take here, by what its runs have shown. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from catalog.core.definition import Definition, ProfileDefinition, source_of
from fleet.core.learned import Known, Shown, key


def starts(shown: Shown, definitions: Iterable[Definition]) -> dict[str, float]:
    """By model, in seconds, the weights being there; without those that nobody has seen start."""
    if not shown:
        return {}
    return {d.name: found for d in definitions if (found := start_s(shown, d)) is not None}


def start_s(shown: Shown, definition: Definition) -> float | None:
    """Under the first of its profiles that was seen to start; on the slowest of the classes that it may get."""
    for profile in sorted(definition.profiles, key=lambda p: -p.priority):
        took = [known.start_s for known in _of(shown, definition, profile) if known.start_s is not None]
        if took:
            return max(took)
    return None


def fetch_s(shown: Shown, definition: Definition) -> float | None:
    """Bringing its weights to a node that has not got them."""
    found = (k.fetch_s for p in definition.profiles for k in _of(shown, definition, p) if k.fetch_s is not None)
    return max(found, default=None)


def _of(shown: Shown, definition: Definition, profile: ProfileDefinition) -> list[Known]:
    run = profile.run
    classes = shown.get(key(run, source_of(definition, profile)[0], ""), {})
    return [known for name, known in classes.items() if run.gpu_class in (None, name)]
