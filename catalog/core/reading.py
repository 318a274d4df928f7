"""From what people wrote to a `Definition`, or every problem that it has. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from agent.engines import ENGINES
from agent.wire.reason import Reason
from agent.wire.shard import Profile
from catalog.core import outside, prices, scaling, slo
from catalog.core import source as sources
from catalog.core.definition import EXTERNAL, Definition, ProfileDefinition, Scaling
from catalog.core.fields import Fields
from llmgw.cluster.errors import Invalid
from llmgw.fold import fold

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,118}[A-Za-z0-9]|[A-Za-z0-9]")
_PROFILE_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,39}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/-]{0,119}")
KINDS = ("chat", "completions", "embeddings")
ROUTING_PROFILES = ("chat", "long-context", "batch")
LONGEST_START_S = 24 * 3600.0

_LATER = {
    "adapters": "LoRA adapters",
    "max_loaded_adapters": "LoRA adapters",
    "eval": "quality gates",
}
_LATER_PROFILE = {
    "kv_events": "routing by cache events",
}


def read(raw: Any) -> Definition:
    problems: list[Reason] = []
    if not isinstance(raw, Mapping):
        found = "nothing" if raw is None else f"a {type(raw).__name__}"
        raise Invalid(
            "bad_definition", f"a model's definition is names with their values (name: …), and this is {found}"
        )
    name = raw.get("name")
    fields = Fields(raw, f"model {name}: " if isinstance(name, str) and name else "model: ", problems)
    definition = _definition(fields, problems)
    fields.done(_LATER)
    if problems:
        raise Invalid.several(tuple(problems))
    return definition


def _definition(fields: Fields, problems: list[Reason]) -> Definition:
    name = _name(fields, fields.text("name", required=True), "name")
    aliases = tuple(_name(fields, alias, "alias") for alias in fields.texts("aliases"))
    taken = {fold(name)}
    for alias in aliases:
        if fold(alias) in taken:
            fields.problem(f"the alias {alias} stands twice, or is the model's own name", "bad_name")
        taken.add(fold(alias))
    capabilities = fields.table("capabilities")
    developer_role = capabilities.flag("developer_role")
    kinds, tools, json_schema, vision = _capabilities(capabilities)
    external = outside.external(fields, problems) if fields.take("source") == EXTERNAL else None
    if external is None and fields.take("external") is not None:
        fields.problem(f"external is for a model with source: {EXTERNAL}")
    source, sha256 = (EXTERNAL, None) if external else _source(fields, required=True)
    context_length = fields.whole("context_length", None, 1)
    max_output = fields.whole("max_output", None, 1)
    if context_length and max_output and max_output > context_length:
        fields.problem(f"max_output ({max_output}) cannot pass context_length ({context_length})")
    return Definition(
        name=name,
        aliases=aliases,
        source=source or "",
        sha256=sha256,
        kinds=kinds,
        tools=tools,
        json_schema=json_schema,
        vision=vision,
        developer_role=developer_role,
        context_length=context_length,
        max_output=max_output,
        scaling=Scaling(0, 0) if external else scaling.read(fields),
        routing_profile=_routing_profile(fields),
        description=fields.text("description"),
        licence=fields.text("licence") or fields.text("license"),
        prices=prices.read(fields),
        slo=slo.read(fields),
        profiles=(
            () if external else _profiles(fields, problems, f"model {name}", context_length, "embeddings" in kinds)
        ),
        external=external,
        fallbacks=outside.fallbacks(fields, taken),
    )


def _name(fields: Fields, name: str, what: str) -> str:
    if name and not NAME.fullmatch(name):
        fields.problem(
            f"the {what} {name!r} must be 1 to 120 ASCII letters, digits, . _ : or -, and no sign at its ends",
            "bad_name",
        )
    return name


def _capabilities(fields: Fields) -> tuple[tuple[str, ...], bool | None, bool | None, bool | None]:
    asked = {kind: fields.flag(kind) for kind in KINDS}
    tools, json_schema, vision = fields.flag("tools"), fields.flag("json_schema"), fields.flag("vision")
    fields.done()
    kinds = tuple(kind for kind, wanted in asked.items() if wanted)
    if not kinds:
        kinds = tuple(kind for kind in ("chat", "completions") if asked[kind] is not False)
    if not kinds:
        fields.problem("a model answers at least one of chat, completions, embeddings")
    return kinds, tools, json_schema, vision


def _routing_profile(fields: Fields) -> str:
    found = fields.text("routing_profile", "chat")
    if found not in ROUTING_PROFILES:
        fields.problem(f"routing_profile is one of {', '.join(ROUTING_PROFILES)}, and not {found!r}")
    return found


def _source(fields: Fields, required: bool = False) -> tuple[str | None, str | None]:
    """(source, sha256)."""
    written, sha256 = fields.text("source", required=required), _sha256(fields)
    if not written:
        return None, sha256
    found = sources.normal(written)
    bad = found if isinstance(found, Reason) else sources.unproven(found, sha256)
    if bad is not None:
        fields.problem(bad.sentence, bad.code)
    return (written if isinstance(found, Reason) else found), sha256


def _sha256(fields: Fields) -> str | None:
    written = fold(fields.text("sha256"))
    if written and not _SHA256.fullmatch(written):
        fields.problem("sha256 must be 64 hexadecimal digits")
    return written or None


def _profiles(
    fields: Fields, problems: list[Reason], where: str, context_length: int | None, embeddings: bool
) -> tuple[ProfileDefinition, ...]:
    raw = fields.take("profiles")
    if not isinstance(raw, list) or not raw:
        fields.problem("profiles must be a list of at least one way to run the model", "missing")
        return ()
    found: list[ProfileDefinition] = []
    for number, entry in enumerate(raw, 1):
        if not isinstance(entry, Mapping):
            fields.problem(f"profile {number} must be names with their values (name: …, engine: …)")
            continue
        label = entry.get("name")
        inner = Fields(entry, f"{where}, profile {label if isinstance(label, str) and label else number}: ", problems)
        profile = _profile(inner, context_length, embeddings)
        inner.done(_LATER_PROFILE)
        if profile.run.name in {p.run.name for p in found}:
            inner.problem("there is another profile of that name", "bad_name")
        found.append(profile)
    return tuple(found)


def _profile(fields: Fields, context_length: int | None, embeddings: bool) -> ProfileDefinition:
    name = fields.text("name", required=True)
    if name and not _PROFILE_NAME.fullmatch(name):
        fields.problem("the name must be 1 to 40 small ASCII letters, digits, . _ or -", "bad_name")
    engine = fields.text("engine", required=True)
    gpu_class = fields.text("gpu_class") or None
    capability, card_bytes = _requirement(fields, gpu_class)
    tp, pp = fields.whole("tp", None, 1, 1024), fields.whole("pp", None, 1, 1024)
    nodes = fields.whole("nodes", 1, 1, 64) or 1
    gpus = _gpus(fields, bool(gpu_class or capability or card_bytes), (tp or 1) * (pp or 1), nodes)
    run = Profile(
        name=name,
        engine=engine,
        args=fields.texts("args"),
        env=fields.pairs("env"),
        context_length=context_length,
        parallel=fields.whole("parallel", parallel(engine), 1, 1024) or 1,
        cpu_cores=fields.whole("cpu_cores", None, 1, 4096),
        memory_bytes=fields.gib("min_memory_gb"),
        gpus=gpus,
        gpu_class=gpu_class,
        embeddings=embeddings,
        startup_timeout_s=fields.duration("startup_timeout", 300.0, LONGEST_START_S),
        stop_grace_s=fields.duration("stop_grace", 10.0, 600.0),
        tp=tp,
        pp=pp,
        nodes=nodes,
        executor=fields.text("executor") or None,
        gpu_min_capability=capability,
        gpu_min_memory_bytes=card_bytes,
    )
    if gpu_class and not run.gpus:
        fields.problem(f"gpu_class {gpu_class} needs gpus: 1 or more")
    if engine and engine not in ENGINES:
        fields.problem(f"there is no engine {engine}; there are {', '.join(sorted(ENGINES))}", "unknown_engine")
    elif engine:
        for problem in ENGINES[engine].problems(run, None):
            fields.problem(problem.sentence, problem.code)
    source, sha256 = _source(fields)
    return ProfileDefinition(
        run=run,
        source=source,
        sha256=sha256,
        priority=fields.whole("priority", 100, 0, 1000) or 0,
        weight=fields.number("weight", 1.0, 0.001, 1000.0),
        labels=_labels(fields),
        min_disk_bytes=fields.gib("min_disk_gb"),
    )


def parallel(engine: str) -> int:
    """Requests at once where a profile does not say: what its engine is made for."""
    return ENGINES[engine].capabilities.parallel if engine in ENGINES else 1


def default_gpus(wanted: bool, ways: int, nodes: int) -> int:
    """Cards of each node where a profile does not say: as many as its ways need, and one where cards are wanted at all.
    Ways that do not divide are rounded up, for the engine to refuse with the figures."""
    return -(-ways // nodes) if wanted or ways > 1 else 0


def _gpus(fields: Fields, wanted: bool, ways: int, nodes: int) -> int:
    gpus, per_node = fields.whole("gpus", None, 0, 64), fields.whole("gpus_per_node", None, 0, 64)
    if gpus is not None and per_node is not None and gpus != per_node:
        fields.problem(f"gpus ({gpus}) and gpus_per_node ({per_node}) are one figure, the cards of each node: say one")
    found = per_node if gpus is None else gpus
    return default_gpus(wanted, ways, nodes) if found is None else found


def _requirement(fields: Fields, gpu_class: str | None) -> tuple[float | None, int | None]:
    """(least compute capability, least bytes) of each card: `gpu: {min_compute_capability: 8.9, min_memory_gb: 40}`."""
    written = fields.take("gpu") is not None
    gpu = fields.table("gpu")
    capability = gpu.number("min_compute_capability", 0.0, 1.0, 99.0) or None
    memory = gpu.gib("min_memory_gb")
    gpu.done()
    if written and gpu_class:
        fields.problem("cards are asked for by gpu_class or by gpu, not by both")
    elif written and capability is None and memory is None:
        fields.problem("gpu says what a card must have: min_compute_capability, min_memory_gb or both")
    return capability, memory


def _labels(fields: Fields) -> dict[str, str]:
    labels = fields.pairs("labels")
    for name in labels:
        if not _LABEL.fullmatch(name):
            fields.problem(f"the label {name!r} must be ASCII letters, digits, . _ / or -", "bad_name")
    return labels
