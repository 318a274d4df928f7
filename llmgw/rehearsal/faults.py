"""The faults that a rehearsal knows: what each does, what it takes, and which of its engines may end by it. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from agent.wire.reason import Reason
from catalog.core.fields import Fields

LONGEST_S = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class Kind:
    """`order`: what the pretended fleet is told (empty: it is done to the control plane). `nodes`, `model`: what it is
    done to. `held`: it lasts for a while, and is mended then."""

    what: str
    order: str = ""
    nodes: bool = False
    model: bool = False
    held: bool = False


KINDS = {
    "node_loss": Kind("nodes lose their power; with `for` they come back, empty", "lose", nodes=True, held=True),
    "cut": Kind("nodes cannot reach the control plane", "cut", nodes=True, held=True),
    "silence": Kind("nothing passes between nodes and the control plane", "silence", nodes=True, held=True),
    "flap": Kind("the network of nodes goes and comes, again and again", "cut", nodes=True, held=True),
    "agents_restart": Kind("agents end and begin anew; engines serve on", "restart", nodes=True),
    "slow_link": Kind("every message takes its time", "delay", nodes=True, held=True),
    "older_agents": Kind("agents tell only what the first release told", "older", nodes=True, held=True),
    "too_old_agents": Kind("agents of a protocol that is not spoken any more", "too_old", nodes=True, held=True),
    "lie_cards": Kind("nodes tell each card twice", "lie", nodes=True, held=True),
    "lie_shard": Kind("nodes say that they run somebody else's shard", "lie", nodes=True, held=True),
    "lie_memory": Kind("nodes tell absurd amounts of memory", "lie", nodes=True, held=True),
    "crash": Kind("engines die once", "crash", model=True),
    "crash_loop": Kind("engines die soon after each start", "behave", model=True, held=True),
    "hang": Kind("engines take requests and never answer", "behave", model=True, held=True),
    "slow": Kind("engines are twenty times slower", "behave", model=True, held=True),
    "garbage": Kind("engines answer what is no JSON", "behave", model=True, held=True),
    "out_of_memory": Kind("engines run out of GPU memory, at each start too", "out_of_memory", model=True, held=True),
    "rollout": Kind("a model's definition changes: its replicas are replaced", model=True),
    "rollout_kill": Kind("kill -9 of the whole control plane in the midst of a rollout", model=True),
    "control_plane_kill": Kind("kill -9 of the whole control plane"),
    "edge_kill": Kind("kill -9 of the gateway's processes"),
    "redis_restart": Kind("kill -9 of Redis"),
    "store_emptied": Kind(
        "the control plane comes back with a database that knows of no node and no replica; `nodes` come `delay` later"
    ),
    "store_restart": Kind("the database starts anew, by the world's `store_restart` command"),
}


@dataclass(frozen=True, slots=True)
class Fault:
    """One of the world's. Of `nodes`, `count` and `share` one says whom it meets; none: one node."""

    kind: str
    nodes: tuple[str, ...] = ()
    count: int | None = None
    share: float | None = None
    model: str = ""
    for_s: float | None = None
    """None, of a fault that could be mended: it stays until the rehearsal ends."""
    delay_s: float = 1.0
    times: int = 3

    @property
    def title(self) -> str:
        whom = self.model or ", ".join(self.nodes)
        if not whom and KINDS[self.kind].nodes:
            whom = f"{self.share:.0%} of the nodes" if self.share else f"{self.count or 1} nodes"
        return f"{self.kind} {whom}".strip()


def read(fields: Fields, models: set[str], nodes: set[str], has_store_restart: bool) -> Fault | None:
    """None: there was a problem, which `fields` has noted."""
    kind = fields.text("do", required=True)
    known = KINDS.get(kind)
    if known is None:
        if kind:
            fields.problem(f"there is no fault {kind}; there are {', '.join(KINDS)}", "unknown_fault")
        return None
    model = ""
    if known.model:
        model = fields.text("model", required=True)
        if model and model not in models:
            fields.problem(f"the world has no model {model}; it has {', '.join(sorted(models)) or 'none'}", "no_model")
    named: tuple[str, ...] = ()
    count: int | None = None
    share: float | None = None
    if known.nodes or kind == "store_emptied":
        named = fields.texts("nodes")
        for node in named:
            if node not in nodes:
                fields.problem(f"the world has no node {node}", "no_node")
    if known.nodes:
        count = fields.whole("count", None, 1, 100_000)
        share = fields.number("share", 0.0, 0.001, 1.0) if fields.take("share") is not None else None
        if sum(v is not None for v in (named or None, count, share)) > 1:
            fields.problem("nodes, count and share say the same thing: give one of them")
    elif kind == "crash":
        count = fields.whole("count", None, 1, 100_000)
    for_s = None
    if known.held and fields.take("for") is not None:
        for_s = fields.duration("for", 5.0, LONGEST_S)
    delay_s = fields.duration("delay", 1.0, 60.0) if kind in ("slow_link", "store_emptied") else 1.0
    times = fields.whole("times", 3, 1, 1000) or 3 if kind == "flap" else 3
    if kind == "store_restart" and not has_store_restart:
        fields.problem("store_restart needs the world's store_restart: the command that starts the database anew")
    if kind in ("flap", "rollout_kill") and kind == "flap" and for_s is None:
        for_s = 2.0
    return Fault(kind, named, count, share, model, for_s, delay_s, times)


def pick(fault: Fault, nodes: tuple[str, ...], serving: tuple[str, ...]) -> tuple[str, ...]:
    """The nodes that it meets: those named, else the first of those that serve, and then of the others."""
    if fault.nodes:
        return fault.nodes
    if not KINDS[fault.kind].nodes:
        return ()
    count = round(len(nodes) * fault.share) if fault.share else fault.count or 1
    ordered = [*serving, *(n for n in nodes if n not in serving)]
    return tuple(ordered[: max(1, min(count, len(nodes)))])


def problem_of(kind: str) -> Reason:
    return Reason("unknown_fault", f"there is no fault {kind}; there are {', '.join(KINDS)}")
