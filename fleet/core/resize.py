"""Another context or other cards for a model that is served: the definition that comes of it, or why it cannot. Pure.

What the engine knows (heads that do not split, a context beyond what was trained for) it says itself; here the figures
are added up: weights and KV cache against what a replica has.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from agent.engine import ModelFacts
from agent.engines import ENGINES
from agent.wire.reason import Reason
from agent.wire.shard import Profile
from catalog.core.definition import Definition, ProfileDefinition
from fleet.core.sizes import gib
from fleet.core.world import NodeView

USABLE = 0.9
"""Of a card: the rest is the engine's own, its graphs and its activations. vLLM's default is the same."""
Facts = dict[str, ModelFacts]
"""By profile; a profile of which nothing is known is not in it."""


def with_context(definition: Definition, tokens: int, slots: int | None, facts: Facts) -> Definition | Reason:
    """`tokens` for one request in every profile, `slots` requests at once in llama.cpp's."""
    name = definition.name
    if tokens < 1:
        return Reason("bad_context_length", f"a context has at least 1 token, and {tokens} were asked for")
    if slots is not None and not 1 <= slots <= 1024:
        return Reason("bad_parallel", f"slots must be between 1 and 1024, and are {slots}")
    if definition.max_output is not None and definition.max_output > tokens:
        return Reason(
            "max_output",
            f"{name} may answer with {definition.max_output} tokens (max_output), which {tokens} tokens would not hold",
            f"llmgw model show {name}",
        )
    if slots is not None and not any(p.run.engine == "llamacpp" for p in definition.profiles):
        return Reason("no_slots", f"slots are llama.cpp's, and no profile of {name} runs it")
    profiles = tuple(_in_context(p, tokens, slots, facts.get(p.run.name)) for p in definition.profiles)
    return replace(definition, context_length=tokens, profiles=profiles)


def with_gpus(
    definition: Definition, profile: str | None, count: int, nodes: Iterable[NodeView]
) -> Definition | Reason:
    """`count` cards for each replica of one profile."""
    name = definition.name
    on_cards = [p for p in definition.profiles if p.run.gpus]
    names = ", ".join(p.run.name for p in on_cards)
    if not on_cards:
        return Reason("not_on_cards", f"no profile of {name} runs on cards", f"llmgw model show {name}")
    if profile is None and len(on_cards) > 1:
        again = f"llmgw model gpus {name} {count} --profile {on_cards[0].run.name}"
        return Reason("which_profile", f"{name} has several profiles on cards ({names}): say which by --profile", again)
    chosen = on_cards[0] if profile is None else next((p for p in on_cards if p.run.name == profile), None)
    if chosen is None:
        return Reason("no_such_profile", f"{name} has no profile {profile} on cards; there are: {names}")
    run = chosen.run
    if run.nodes > 1:
        return Reason(
            "several_nodes",
            f"a replica of {name} is spread over {run.nodes} nodes: it is laid out by hand, in nodes and gpus_per_node",
            f"llmgw model show {name}",
        )
    if count == run.gpus:
        return Reason("unchanged", f"a replica of {name} uses {count} card{'' if count == 1 else 's'} already")
    if count < 1:
        return Reason("bad_gpus", f"a replica uses at least 1 card, and {count} were asked for")
    most, where = max(((_cards(n, run), n.id) for n in nodes), default=(0, ""))
    if count > most:
        kind = f" of {run.gpu_class}" if run.gpu_class else ""
        has = f"the most is {most}, on {where}" if most else "no node has any"
        return Reason("no_such_node", f"no node has {count} cards{kind}: {has}", "llmgw node list")
    contract = ENGINES.get(run.engine)
    spread = contract.on_cards(run, count) if contract is not None else replace(run, gpus=count)
    changed = tuple(replace(p, run=spread) if p is chosen else p for p in definition.profiles)
    return replace(definition, profiles=changed)


def problems(before: Definition, after: Definition, facts: Facts, nodes: Iterable[NodeView]) -> tuple[Reason, ...]:
    """What speaks against the profiles that differ: the engines' own word, and whether their cards hold them."""
    found: list[Reason] = []
    known = list(nodes)
    old = {p.run.name: p for p in before.profiles}
    for profile in after.profiles:
        if profile == old.get(profile.run.name):
            continue
        model, contract = facts.get(profile.run.name), ENGINES.get(profile.run.engine)
        if contract is not None:
            found += contract.problems(profile.run, None, model)
        if model is not None and (reason := _holds(after.name, profile.run, model, known)) is not None:
            found.append(reason)
    return tuple(found)


def _in_context(
    profile: ProfileDefinition, tokens: int, slots: int | None, model: ModelFacts | None
) -> ProfileDefinition:
    run = profile.run
    parallel = slots if slots is not None and run.engine == "llamacpp" else run.parallel
    changed = replace(run, context_length=tokens, parallel=parallel)
    if run.memory_bytes is None or model is None or model.kv_token_bytes is None or run.gpus:
        return replace(profile, run=changed)
    # What is reserved of the node moves with the KV cache.
    before = (run.context_length or 0) * run.parallel * model.kv_token_bytes
    after = tokens * parallel * model.kv_token_bytes
    least = (model.size_bytes or 0) + after
    return replace(profile, run=replace(changed, memory_bytes=max(run.memory_bytes + after - before, least)))


def _holds(name: str, run: Profile, model: ModelFacts, nodes: list[NodeView]) -> Reason | None:
    """Whether the cards of one replica hold weights and KV cache; unknown figures refuse nothing."""
    if not run.gpus or model.size_bytes is None or model.kv_token_bytes is None or run.context_length is None:
        return None
    cards = [
        g.memory_bytes
        for n in nodes
        for g in n.facts.gpus or ()
        if g.memory_bytes is not None and run.gpu_class in (None, g.gpu_class)
    ]
    if not cards:
        return None
    # vLLM and its like share one cache among their requests: one of full length must fit. llama.cpp keeps a part each.
    at_once = run.parallel if run.engine == "llamacpp" else 1
    cache = model.kv_token_bytes * run.context_length * at_once
    has = int(max(cards) * USABLE) * run.gpus * run.nodes
    if model.size_bytes + cache <= has:
        return None
    fits = max((has - model.size_bytes) // (model.kv_token_bytes * at_once), 0)
    of = f"{at_once} × {run.context_length}" if at_once > 1 else str(run.context_length)
    whole = "1 card has" if run.gpus * run.nodes == 1 else f"{run.gpus * run.nodes} cards have"
    hint = f"at most {fits} tokens fit" if fits else "its weights alone do not fit"
    return Reason(
        "cards_too_small",
        f"a replica of {name} needs {gib(model.size_bytes + cache)} (weights {gib(model.size_bytes)}, KV cache "
        f"{gib(cache)} for {of} tokens), and its {whole} {gib(has)} to use: {hint}",
        f"llmgw model context {name} {fits}" if fits else f"llmgw model gpus {name} {run.gpus + 1}",
    )


def _cards(node: NodeView, run: Profile) -> int:
    """Usable cards of one class on the node."""
    kinds = Counter(
        g.gpu_class for g in node.facts.gpus or () if g.problem is None and run.gpu_class in (None, g.gpu_class)
    )
    return max(kinds.values(), default=0)
