"""What must add up before an engine is started: ways and cards, heads and ways, cards among themselves.

An engine finds most of it by itself, minutes later, in the middle of its log, or not at all: it hangs, or runs on a
slower path than was paid for. Unknown is not wrong: what nobody said is not refused.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from agent.engine import Capabilities, ModelFacts
from agent.engines.rules import flags
from agent.wire.facts import GpuFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile

FP8_CAPABILITY = 8.9
"""Ada and Hopper: the first cards that compute in fp8."""
_FP8 = re.compile(r"fp8|w8a8_float", re.IGNORECASE)
_FP8_FLAGS = ("--quantization", "-q", "--kv-cache-dtype", "--torchao-config", "--modelopt-quant")
_STRETCHED = ("--rope", "--yarn", "--hf-overrides", "--json-model-override-args", "--grp-attn")
"""Flags with which people stretch a model beyond what it was trained for, knowingly."""
MIG = "-mig-"


def ways(profile: Profile) -> tuple[int, int]:
    """(tensor parallel, pipeline parallel), with what was not written made up for: over several nodes tensor parallel
    stays inside a node and the stages lie one a node, as links between nodes are the slowest."""
    cards = max(profile.gpus, 1) * profile.nodes
    if profile.tp is None and profile.pp is None:
        return max(profile.gpus, 1), profile.nodes
    if profile.tp is None:
        return max(cards // (profile.pp or 1), 1), profile.pp or 1
    if profile.pp is None:
        return profile.tp, max(cards // profile.tp, 1)
    return profile.tp, profile.pp


def problems(
    engine: str, can: Capabilities, profile: Profile, facts: NodeFacts | None, model: ModelFacts | None
) -> list[Reason]:
    """Everything of this page that forbids running `profile` with the engine that people call `engine`."""
    found = [*_figures(profile), *_spread(engine, can, profile)]
    if not {"bad_ways", "mig_one"} & {p.code for p in found}:  # else its figures make no sense, or are said already
        found += _several(engine, can, profile, model)
    if model is not None:
        found += _context(profile, model)
    if facts is not None and facts.gpus is not None and profile.gpus:
        found += cards(engine, can, profile, facts.gpus, model)
    return found


def wants_fp8(profile: Profile, model: ModelFacts | None) -> bool:
    """Whether weights or KV cache are kept in fp8."""
    written = [value for flag, value in flags(profile.args) if flag in _FP8_FLAGS]
    if model is not None and model.quantization is not None:
        written.append(model.quantization)
    return any(_FP8.search(value) for value in written)


def cards(
    engine: str, can: Capabilities, profile: Profile, found: Collection[GpuFacts], model: ModelFacts | None
) -> list[Reason]:
    """What forbids every group of `profile.gpus` cards among `found`; empty too where there are no such cards at all,
    which is for placement to say."""
    suiting = [g for g in found if _asked_for(g, profile)]
    if len(suiting) < profile.gpus:
        return []
    weak: list[Reason] = []
    for code, needed, what in (
        ("compute_capability", can.min_compute_capability, f"{engine} has kernels for"),
        ("fp8_unsupported", FP8_CAPABILITY if wants_fp8(profile, model) else None, "fp8 is computed on"),
    ):
        if needed is None:
            continue
        able = [g for g in suiting if (has := _capability(g)) is None or has >= needed]
        if len(able) < profile.gpus:
            best = max((most for g in suiting if (most := _capability(g)) is not None), default=0.0)
            weak.append(Reason(code, f"{what} compute capability {needed:g} or newer, and these cards have {best:g}"))
        suiting = able
    if weak:
        return weak
    kinds = Counter(g.gpu_class or "unknown" for g in suiting)
    if kinds and max(kinds.values()) < profile.gpus:
        there = ", ".join(f"{count} × {name}" for name, count in sorted(kinds.items()))
        return [
            Reason(
                "gpus_mixed",
                f"a replica runs on cards of one class, {profile.gpus} of them were asked for, and there are {there}",
            )
        ]
    return []


def _figures(profile: Profile) -> list[Reason]:
    found = []
    if profile.parallel < 1:
        found.append(Reason("bad_parallel", f"parallel must be at least 1, and is {profile.parallel}"))
    if profile.context_length is not None and profile.context_length < 1:
        found.append(
            Reason("bad_context_length", f"context_length must be at least 1, and is {profile.context_length}")
        )
    for name, value in (("tp", profile.tp), ("pp", profile.pp), ("nodes", profile.nodes)):
        if value is not None and value < 1:
            found.append(Reason("bad_ways", f"{name} must be at least 1, and is {value}"))
    return found


def _spread(engine: str, can: Capabilities, profile: Profile) -> list[Reason]:
    """Nodes, executors and MIG: whether the engine spreads like this at all."""
    found = []
    if profile.nodes > 1 and not can.multi_node:
        found.append(Reason("one_node", f"{engine} runs on one node, and nodes: {profile.nodes} was asked for"))
    if profile.executor is not None and profile.executor not in can.executors:
        there = f"it has {' and '.join(can.executors)}" if can.executors else "it has only one way to run its ranks"
        found.append(Reason("executor_unknown", f"{engine} has no executor {profile.executor!r}: {there}"))
    if profile.embeddings and not can.embeddings:
        found.append(Reason("embeddings_refused", f"{engine} serves no embeddings here"))
    if profile.gpus == 0 and not can.cpu:
        found.append(
            Reason("gpu_needed", f"{engine} runs on GPUs: say which with gpu_class, or what they need with gpu")
        )
    several = max(profile.gpus * profile.nodes, profile.tp or 1, profile.pp or 1)
    if MIG in (profile.gpu_class or "") and several > 1:
        found.append(
            Reason(
                "mig_one",
                f"a replica on MIG runs on one instance, and {_asked(profile)} was asked for: a process can open only "
                "one, and instances have no link between them; choose a larger profile or whole cards",
            )
        )
    return found


def _several(engine: str, can: Capabilities, profile: Profile, model: ModelFacts | None) -> list[Reason]:
    tp, pp = ways(profile)
    if not can.tensor_parallel:
        if profile.tp not in (None, 1) or profile.pp not in (None, 1):
            return [
                Reason(
                    "tensor_parallel_refused",
                    f"{engine} splits a model by layers over the cards of one node: say gpus: N, without tp and pp",
                )
            ]
        return []
    if profile.gpus and tp * pp != profile.gpus * profile.nodes:
        on = f"{profile.gpus} cards on each of {profile.nodes} nodes" if profile.nodes > 1 else f"{profile.gpus} cards"
        return [
            Reason(
                "ways_do_not_add_up",
                f"tp: {tp} times pp: {pp} is {tp * pp}, and the profile has {on}: "
                f"together they must be {profile.gpus * profile.nodes}",
            )
        ]
    found = []
    if model is not None and tp > 1:
        kv, heads = model.kv_heads, model.attention_heads
        if kv is not None and kv % tp and tp % kv:
            found.append(
                Reason(
                    "kv_heads",
                    f"tensor parallel splits {_ways(model)} ways, and not {tp}: "
                    f"its {kv} KV heads must divide tp or be divided by it",
                )
            )
        elif heads is not None and heads % tp:
            found.append(
                Reason("attention_heads", f"the model's {heads} attention heads cannot be split {tp} ways by tp")
            )
    if model is not None and model.layers is not None and pp > model.layers:
        found.append(
            Reason("too_few_layers", f"the model has {model.layers} layers, and pp: {pp} stages were asked for")
        )
    return found


def _ways(model: ModelFacts) -> str:
    """`2, 4, 8 or 16`: the numbers of ways, up to 16, that a model splits."""
    kv, heads = model.kv_heads or 1, model.attention_heads
    fit = [n for n in range(2, 17) if (kv % n == 0 or n % kv == 0) and (heads is None or heads % n == 0)]
    return f"{', '.join(map(str, fit[:-1]))} or {fit[-1]}" if len(fit) > 1 else str(fit[0] if fit else 1)


def _context(profile: Profile, model: ModelFacts) -> list[Reason]:
    wanted, trained = profile.context_length, model.trained_context
    if wanted is None or trained is None or wanted <= trained:
        return []
    if any(flag.startswith(_STRETCHED) for flag, _ in flags(profile.args)):
        return []
    return [
        Reason(
            "context_too_long",
            f"context_length {wanted} is more than the {trained} tokens that the model was trained for",
        )
    ]


def _asked(profile: Profile) -> str:
    names = (("gpus", profile.gpus), ("nodes", profile.nodes), ("tp", profile.tp), ("pp", profile.pp))
    return ", ".join(f"{name}: {value}" for name, value in names if value is not None and value > 1)


def _asked_for(gpu: GpuFacts, profile: Profile) -> bool:
    if gpu.problem is not None:
        return False
    if profile.gpu_class is not None and gpu.gpu_class != profile.gpu_class:
        return False
    if profile.gpu_min_capability is not None and (_capability(gpu) or 0.0) < profile.gpu_min_capability:
        return False
    return profile.gpu_min_memory_bytes is None or (gpu.memory_bytes or 0) >= profile.gpu_min_memory_bytes


def _capability(gpu: GpuFacts) -> float | None:
    """`9.0` → 9.0. Compared as a number: none has a minor version above 9."""
    try:
        return None if gpu.compute_capability is None else float(gpu.compute_capability)
    except ValueError:
        return None
