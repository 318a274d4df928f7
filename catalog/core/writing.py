"""A definition back in the shape that people write: what `model show` prints and `model change -f` takes. Pure."""

from __future__ import annotations

from typing import Any

from agent.wire.shard import Profile
from catalog.core import prices, reading, scaling, slo
from catalog.core.definition import Definition, External, ProfileDefinition
from catalog.core.fields import GIB
from llmgw.durations import written as duration

_CHAT = ("chat", "completions")


def written(definition: Definition) -> dict[str, Any]:
    """The definition in YAML's shape, without what is a default anyway; `reading.read` makes the same value of it."""
    capabilities: dict[str, bool] = {}
    if definition.kinds != _CHAT:
        capabilities = dict.fromkeys(definition.kinds, True)
    for name, value in (
        ("tools", definition.tools),
        ("json_schema", definition.json_schema),
        ("vision", definition.vision),
        ("developer_role", definition.developer_role),
    ):
        if value is not None:
            capabilities[name] = value
    shape: dict[str, Any] = {
        "name": definition.name,
        "aliases": list(definition.aliases),
        "description": definition.description,
        "licence": definition.licence,
        "source": definition.source,
        "sha256": definition.sha256,
        "external": _external(definition.external),
        "fallbacks": list(definition.fallbacks),
        "routing_profile": None if definition.routing_profile == "chat" else definition.routing_profile,
        "context_length": definition.context_length,
        "max_output": definition.max_output,
        "capabilities": capabilities,
        **prices.written(definition.prices),
        "slo": slo.written(definition.slo),
        "scaling": None if definition.external else scaling.written(definition.scaling),
        "profiles": [_profile(p) for p in definition.profiles],
    }
    return _short(shape)


def changed_keys(before: Definition, after: Definition) -> tuple[str, ...]:
    """The top-level keys in which two definitions differ."""
    old, new = written(before), written(after)
    return tuple(key for key in {**old, **new} if old.get(key) != new.get(key))


def _profile(profile: ProfileDefinition) -> dict[str, Any]:
    run = profile.run
    return _short(
        {
            "name": run.name,
            "engine": run.engine,
            "source": profile.source,
            "sha256": profile.sha256,
            "priority": None if profile.priority == 100 else profile.priority,
            "weight": None if profile.weight == 1.0 else profile.weight,
            "parallel": None if run.parallel == reading.parallel(run.engine) else run.parallel,
            "cpu_cores": run.cpu_cores,
            "min_memory_gb": _gib(run.memory_bytes),
            "min_disk_gb": _gib(profile.min_disk_bytes),
            "gpu_class": run.gpu_class,
            "gpu": _requirement(run),
            "tp": run.tp,
            "pp": run.pp,
            "nodes": None if run.nodes == 1 else run.nodes,
            "gpus" if run.nodes == 1 else "gpus_per_node": _gpus(run),
            "executor": run.executor,
            "startup_timeout": None if run.startup_timeout_s == 300.0 else duration(run.startup_timeout_s),
            "stop_grace": None if run.stop_grace_s == 10.0 else duration(run.stop_grace_s),
            "labels": dict(profile.labels),
            "env": dict(run.env),
            "args": list(run.args),
        }
    )


def _requirement(run: Profile) -> dict[str, Any]:
    return _short({"min_compute_capability": run.gpu_min_capability, "min_memory_gb": _gib(run.gpu_min_memory_bytes)})


def _gpus(run: Profile) -> int | None:
    wanted = bool(run.gpu_class or run.gpu_min_capability or run.gpu_min_memory_bytes)
    return None if run.gpus == reading.default_gpus(wanted, (run.tp or 1) * (run.pp or 1), run.nodes) else run.gpus


def _external(external: External | None) -> dict[str, Any] | None:
    if external is None:
        return None
    shape: dict[str, Any] = {"url": external.url, "model": external.model}
    match external.keys:
        case (key,) if key.weight == 1.0:
            return {**shape, "api_key_file": key.file}
        case keys:
            files = [_short({"file": k.file, "weight": None if k.weight == 1.0 else k.weight}) for k in keys]
            return {**shape, "api_key_files": files}


def _short(shape: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in shape.items() if value not in (None, "", [], {})}


def _gib(size: int | None) -> float | int | None:
    if size is None:
        return None
    return size // GIB if size % GIB == 0 else size / GIB
