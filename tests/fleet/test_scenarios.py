"""Scenarios as text: a world, what happens, and the plan that is expected. `scenarios/*.txt`, each told by its title.

world / then   one line a thing:  node N [words] [cpus= memory= free= labels=a:b cards=CLASS,CLASS! links=0-1:4,2-3:4
                                  numa=0,0,1,1 switch taken=PORT]
                                  model M [min= max= cores= memory= label= gpus= gpu=CLASS window=FROM-TO:MIN prewarm=]
                                  model M stopped | model M removed | load M REPLICAS
                                  restart M [in-place]
                                  asked M [waiting=] [busy=] [refused] [nobody] | unheard
                                  quiet R | busy R | starts M SECONDS
                                  took M GIB on CLASS (of each card)
                                  system stopped [note] | system started | at WEEKDAY HH:MM
                                  facility rack|row|pdu NAME [held] [cap=WATTS]
                                  replica R of M on N[+N] STATE | rank N of R gone | replica R STATE | replica R gone
                                  replica R parked CODE
                                  stray R of M on N STATE [foreign] | unsynced | synced | after SECONDS
                                  ran R of M at ADDRESS,ADDRESS meeting PORT (what its ranks were told)
                                  rank N of R reported by NODE | rank N of R reported by NODE, untold
plan           one line a step, in order; `nothing` for an empty one. It is carried out before the next `then`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from agent.wire.facts import (
    INSTANCES,
    DomainFacts,
    EngineFacts,
    FabricFacts,
    GpuFacts,
    NodeFacts,
    NvLink,
    PortFacts,
    RankFacts,
)
from agent.wire.shard import Fabric, Gang, Profile, ShardSpec, ShardState, Source
from catalog.core.definition import Definition, ProfileDefinition, Scaling, Window
from catalog.core.scaling import DAYS
from fleet.core import plan as steps
from fleet.core.learned import Known, key
from fleet.core.reconcile import plan
from fleet.core.replica import State
from fleet.core.simulate import apply
from fleet.core.world import Demand, NodeView, ReplicaView, ShardView, StrayView, WantedModel, World
from llmgw.cluster.core.sections import PlaceOptions, ServingSettings

FOLDER = Path(__file__).parent / "scenarios"
GIB = 1024**3
CAPABILITIES = {"h100": "9.0", "l40s": "8.9", "a100": "8.0", "a40": "8.6", "t4": "7.5", "b200": "10.0"}
MONDAY = datetime(2026, 3, 2, tzinfo=UTC)


def _cards(words: str) -> Iterator[GpuFacts]:
    for n, word in enumerate(words.split(",")):
        kind, bad, _ = word.partition("!")
        _, cut, profile = kind.partition("-mig-")
        index = INSTANCES + 100 * n if cut else n
        size = re.search(r"-(\d+)g", kind)
        yield GpuFacts(
            index,
            gpu_class=kind,
            mig_profile=profile or None,
            memory_bytes=int(size[1]) * GIB if size else None,
            compute_capability=CAPABILITIES.get(kind.partition("-")[0]),
            problem="it is cut anew" if bad else None,
        )


def fabric(facts: NodeFacts, how: str, words: str) -> NodeFacts:
    """The facts of a node on one more fabric."""
    words, bad, _ = words.partition("!")
    said, _, name = words.partition(":")
    if how == "domain":
        cluster, _, clique = said.partition("/")
        domain = DomainFacts("Completed", cluster, int(clique))
        gpus = tuple(replace(c, domain=domain) for c in facts.gpus or ())
        return replace(facts, gpus=gpus, imex=not bad)
    kind = "infiniband" if how == "ib" else "roce"
    adapter = f"mlx5_{len(facts.rdma_ports or ())}"
    port = PortFacts(adapter, 1, kind, active=not bad, rate_gbps=200.0, gid_index=3 if how == "roce" else None)
    port = replace(port, subnet_manager=said if how == "ib" and said else None)
    named = name if how == "ib" else said
    fabrics = (*(facts.fabrics or ()), FabricFacts(named, (adapter,))) if named else facts.fabrics
    others = [p for p in facts.rdma_ports or () if p.subnet_manager != said] if how == "ib" else facts.rdma_ports or ()
    if how == "ib" and len(others) < len(facts.rdma_ports or ()):  # told anew
        return replace(facts, rdma_ports=(*others, replace(port, adapter="mlx5_0")))
    return replace(facts, rdma_ports=(*others, port), fabrics=fabrics)


def joined(cards: Sequence[GpuFacts], how: str, words: str) -> tuple[GpuFacts, ...]:
    """The cards with `links` (0-1:4: four between them), on their `numa` nodes, or at a `switch`."""
    found = {c.index: replace(c, nvlinks=c.nvlinks or ()) for c in cards}
    if how == "numa":
        found = {c.index: replace(c, numa_node=int(n)) for c, n in zip(cards, words.split(","), strict=True)}
    elif how == "switch":
        found = {c.index: replace(c, switched=True) for c in found.values()}
    else:
        for word in filter(None, words.split(",")):
            pair, _, count = word.partition(":")
            one, other = map(int, pair.split("-"))
            for at, peer in ((one, other), (other, one)):
                found[at] = replace(found[at], nvlinks=(*(found[at].nvlinks or ()), NvLink(peer, int(count))))
    return tuple(found.values())


def _window(words: str) -> Window:
    """08:00-18:00:3 holds every day."""
    start, end = ((int(clock[:2]) * 60 + int(clock[3:])) for clock in (words[:5], words[6:11]))
    return Window(DAYS, start, end, int(words[12:]))


class Stage:
    """The world while a scenario plays."""

    def __init__(self) -> None:
        self.now = 1_000_000.0
        self.world = World(())
        self.models: dict[str, WantedModel] = {}
        self.gangs: dict[str, tuple[str, Gang]] = {}
        self.names: Iterator[str] = (f"new{i}" for i in range(1, 1000))

    def say(self, line: str) -> None:
        words = line.split()
        match words:
            case ["node", name, *rest]:
                self._node(name, rest)
            case ["model", name, *rest]:
                self._model(name, rest)
            case ["replica", name, "of", model, "on", node, state]:
                self._replica(name, model, node, State(state))
            case ["rank", node, "of", name, "gone"]:
                left = [
                    replace(r, shards=tuple(s for s in r.shards if (r.id, s.node) != (name, node)))
                    for r in self.world.replicas
                ]
                self._replicas(left)
            case ["replica", name, "gone"]:
                self._replicas([r for r in self.world.replicas if r.id != name])
            case ["replica", name, "parked", code]:
                rows = [replace(r, reason_code=code) if r.id == name else r for r in self.world.replicas]
                self._replicas([self._seen(r, State.PARKED) if r.id == name else r for r in rows])
            case ["replica", name, state]:
                self._replicas([self._seen(r, State(state)) if r.id == name else r for r in self.world.replicas])
            case ["stray", name, "of", model, "on", node, state, *rest]:
                self._stray(name, model, node, ShardState(state), "foreign" in rest)
            case ["ran", name, "of", model, "at", addresses, "meeting", port]:
                self.gangs[name] = (model, Gang(tuple(addresses.split(",")), int(port), Fabric("east", "ethernet")))
            case ["rank", rank, "of", name, "reported", "by", node, *rest]:
                self._reported(name, int(rank), node, told="untold" not in rest)
            case ["load", name, count]:
                self.world = replace(self.world, targets={**self.world.targets, name: int(count)})
            case ["restart", name, *rest]:
                self.now += 1
                self.models[name] = replace(self.models[name], restarted_at=self.now, in_place="in-place" in rest)
            case ["asked", name, *rest]:
                self._asked(name, rest)
            case ["unheard" | "heard" as word]:
                self.world = replace(self.world, heard=word == "heard")
            case ["quiet", name]:
                self.world = replace(self.world, quiet=self.world.quiet | {name}, busy=self.world.busy - {name})
            case ["busy", name]:
                self.world = replace(self.world, busy=self.world.busy | {name})
            case ["starts", name, seconds]:
                self.world = replace(self.world, starts={**self.world.starts, name: float(seconds)})
            case ["took", name, gib, "on", gpu_class]:
                self._took(name, int(gib) * GIB, gpu_class)
            case ["system", word, *note]:
                self.world = replace(self.world, serving=ServingSettings(word == "stopped", " ".join(note)))
            case ["at", day, clock]:
                moment = MONDAY + timedelta(days=DAYS.index(day), hours=int(clock[:2]), minutes=int(clock[3:]))
                self.now = moment.timestamp()
            case ["facility", kind, place, *rest]:
                said = PlaceOptions(
                    "held" in rest, power_cap_w=next((int(w[4:]) for w in rest if w.startswith("cap=")), None)
                )
                places = {**getattr(self.world.facility, f"{kind}s"), place: said}
                facility = replace(self.world.facility, **{f"{kind}s": places})
                self.world = replace(self.world, facility=facility)
            case ["unsynced" | "synced" as word]:
                self.world = replace(self.world, synced=word == "synced")
            case ["after", seconds]:
                self.now += float(seconds)
            case _:
                raise AssertionError(f"a scenario cannot say {line!r}")

    def _asked(self, name: str, words: list[str]) -> None:
        options = dict(w.split("=") for w in words if "=" in w)
        before = self.world.demand.get(name, Demand())
        waiting, busy = int(options.get("waiting", 0)), int(options.get("busy", 0))
        since = before.waiting_since if before.waiting_since is not None else self.now
        demand = Demand(waiting, busy, since if waiting or "refused" in words else None, self.now)
        if "nobody" in words:
            demand = Demand(last_asked=before.last_asked)
        self.world = replace(self.world, demand={**self.world.demand, name: demand})

    def _took(self, name: str, held: int, gpu_class: str) -> None:
        kind = key(self.models[name].definition.profiles[0].run, "starter:tiny", "")
        classes = {**self.world.shown.get(kind, {}), gpu_class: Known(card_bytes=held, runs=3)}
        self.world = replace(self.world, shown={**self.world.shown, kind: classes})

    def play(self) -> list[str]:
        found = plan(self.world, self.models.values(), self.now)
        self.world = apply(self.world, found, self.now, self.names)
        return [told(s) for s in found.steps] or ["nothing"]

    def _node(self, name: str, words: list[str]) -> None:
        known = {n.id: n for n in self.world.nodes}
        node = known.get(name) or NodeView(
            name,
            NodeFacts(
                cpu_count=8,
                memory_bytes=32 * GIB,
                engines=(EngineFacts("llamacpp"), EngineFacts("vllm")),
                arch="x86_64",
                os="Linux",
                vector_extensions=("avx", "avx2"),
                gpus=(),
                address=f"10.0.0.{len(known) + 1}",
            ),
        )
        for word in words:
            key, _, value = word.partition("=")
            match key:
                case "cpus":
                    node = replace(node, facts=replace(node.facts, cpu_count=int(value)))
                case "memory":
                    node = replace(node, facts=replace(node.facts, memory_bytes=int(value) * GIB))
                case "free":
                    node = replace(node, memory_free_bytes=int(value) * GIB)
                case "labels":
                    node = replace(node, labels=node.labels | dict(pair.split(":") for pair in value.split(",")))
                case "cards":  # `!` cannot be used; a class with -mig- is the first instance of its card
                    node = replace(node, facts=replace(node.facts, gpus=tuple(_cards(value))))
                case "links" | "numa" | "switch":
                    node = replace(node, facts=replace(node.facts, gpus=joined(node.facts.gpus or (), key, value)))
                case "ib" | "roce" | "domain":
                    node = replace(node, facts=fabric(node.facts, key, value))
                case "rack" | "row" | "pdu":
                    node = replace(node, labels={**node.labels, f"llmgw.io/{key}": value})
                case "watts":  # of each card: MEASURED/LIMIT
                    drawn, limit = map(float, value.split("/"))
                    gpus = tuple(replace(c, power_w=drawn, power_limit_w=limit) for c in node.facts.gpus or ())
                    node = replace(node, facts=replace(node.facts, gpus=gpus))
                case "ethernet":
                    node = replace(node, labels={**node.labels, "llmgw.io/ethernet": value})
                case "foreign":
                    held = dict([map(int, value.split(":"))]) if value else {}
                    node = replace(node, foreign={d: n * GIB for d, n in held.items()})
                case "weights":
                    node = replace(node, facts=replace(node.facts, weights=(value,)))
                case "disk":
                    node = replace(node, disk_free_bytes=int(value) * GIB)
                case "taken":
                    node = replace(node, facts=replace(node.facts, ports_taken=(int(value),)))
                case "engines":
                    node = replace(node, facts=replace(node.facts, engines=()))
                case "back":
                    node = replace(node, lost=False, connected=True, reported=True)
                case "address":
                    node = replace(node, facts=replace(node.facts, address=value))
                case "away":
                    node = replace(node, connected=False)
                case "unsettled":
                    node = replace(node, settled=False)
                case "uncordoned":
                    node = replace(node, cordoned=False, draining=False)
                case "draining":
                    node = replace(node, cordoned=True, draining=True)
                case "gone":
                    self.world = replace(self.world, nodes=tuple(n for n in self.world.nodes if n.id != name))
                    self._replicas(
                        [replace(r, shards=tuple(s for s in r.shards if s.node != name)) for r in self.world.replicas]
                    )
                    return
                case _:
                    node = replace(node, **{key: True})
        known[name] = node
        self.world = replace(self.world, nodes=tuple(known.values()))

    def _model(self, name: str, words: list[str]) -> None:
        options = dict(w.split("=") for w in words if "=" in w)
        if "removed" in words:
            del self.models[name]
        elif name in self.models and not options:
            self.models[name] = replace(self.models[name], stopped="stopped" in words)
        else:
            run = Profile(
                "cpu",
                options.get("engine", "vllm" if int(options.get("nodes", 1)) > 1 else "llamacpp"),
                cpu_cores=int(options.get("cores", 1)) or None,
                memory_bytes=int(options.get("memory", 1)) * GIB,
                gpus=int(options.get("gpus", 0)),
                gpu_class=options.get("gpu"),
                nodes=int(options.get("nodes", 1)),
                gpu_min_capability=float(options["capability"]) if "capability" in options else None,
                gpu_min_memory_bytes=int(options["each"]) * GIB if "each" in options else None,
                context_length=int(options.get("context", 2048)),
            )
            labels = dict([options["label"].split(":")]) if "label" in options else {}
            count = int(options.get("min", 1))
            disk = int(options["disk"]) * GIB if "disk" in options else None
            profile = ProfileDefinition(run, labels=labels, min_disk_bytes=disk)
            most = int(options.get("max", count))
            windows = tuple(_window(w[7:]) for w in words if w.startswith("window="))
            scaling = Scaling(count, most, schedule=windows, prewarm_s=60.0 * float(options.get("prewarm", 0)))
            self.models[name] = WantedModel(Definition(name, "starter:tiny", (profile,), scaling=scaling))

    def _replica(self, name: str, model: str, node: str, state: State) -> None:
        run = self.models[model].definition.profiles[0].run if model in self.models else Profile("cpu", "llamacpp")
        shards = []
        for rank, place in enumerate(node.split("+")):
            ports = {s.port for r in self.world.replicas for s in r.shards} | {s.port for s in shards}
            port = next(p for p in range(18100, 19000) if p not in ports)
            devices = tuple(range(run.gpus))
            shards.append(
                ShardView(
                    rank, place, port, devices, run.cpu_cores or 0, run.memory_bytes or 0, observed=ShardState.READY
                )
            )
        made = ReplicaView(
            name,
            model,
            state,
            self.now,
            "cpu",
            run,
            Source("starter:tiny"),
            tuple(shards),
            meeting_port=18900 if len(shards) > 1 else None,
            created=self.now,
        )
        self._replicas([*self.world.replicas, made])

    def _seen(self, replica: ReplicaView, state: State) -> ReplicaView:
        return replace(replica, state=state, since=self.now)

    def _replicas(self, rows: list[ReplicaView]) -> None:
        self.world = replace(self.world, replicas=tuple(rows))

    def _reported(self, name: str, rank: int, node: str, *, told: bool) -> None:
        model, gang = self.gangs[name]
        run, shard_id = self.models[model].definition.profiles[0].run, f"{name}.{rank}"
        devices, world_size = tuple(range(run.gpus)), len(gang.addresses)
        spec = ShardSpec(
            shard_id, name, model, run, Source("starter:tiny"), 18500, "key", rank, world_size, devices, gang=gang
        )
        stray = StrayView(
            node, shard_id, name, model, ShardState.READY, 18500, spec.fingerprint, 1, seen=self.now, key="key"
        )
        self.world = replace(self.world, strays=(*self.world.strays, stray))
        if told:
            facts = (RankFacts(shard_id, devices, gang),)
            nodes = [replace(n, facts=replace(n.facts, ranks=facts)) if n.id == node else n for n in self.world.nodes]
            self.world = replace(self.world, nodes=tuple(nodes))

    def _stray(self, name: str, model: str, node: str, state: ShardState, foreign: bool) -> None:
        fingerprint = "unlike"
        if model in self.models:
            run = self.models[model].definition.profiles[0].run
            spec = ShardSpec(f"{name}.0", name, model, run, Source("starter:tiny"), 18500, "key")
            fingerprint = spec.fingerprint
        stray = StrayView(node, f"{name}.0", name, model, state, 18500, fingerprint, 1, foreign, key="key")
        self.world = replace(self.world, strays=(*self.world.strays, stray))


def told(step: steps.Step) -> str:
    """A step as scenarios write it."""
    match step:
        case steps.Place():
            told = f"place {step.replica or 'a'} {step.model} on ".replace(" a ", " ", 1)
            told += " and ".join(
                f"{s.node} port {s.port}" + (f" devices {', '.join(map(str, s.devices))}" if s.devices else "")
                for s in step.seats
            )
            if step.fabric:
                told += f" over {step.fabric} meeting at {step.meeting_port}"
            return told
        case steps.Want():
            return f"want {step.model}: {step.reason}"
        case steps.Hold() | steps.Lose() | steps.Drain() | steps.Stop():
            return f"{type(step).__name__.lower()} {step.replica}: {step.reason}"
        case steps.Flag():
            return f"flag {step.replica} {'stale' if step.stale else 'fresh'}"
        case steps.Adopt():
            told = f"adopt {step.replica} of {step.model} on "
            told += " and ".join(
                s.node + (f" devices {', '.join(map(str, s.devices))}" if s.devices else "") for s in step.seats
            )
            return told + f" {step.state}" + (f" meeting at {step.meeting_port}" if step.meeting_port else "")
        case steps.Settle():
            return f"settle {step.node}"
        case steps.Retry():
            told = f"retry {step.replica} port {', '.join(map(str, step.ports))}"
            return told + (f" meeting at {step.meeting_port}" if step.meeting_port else "")
        case steps.Forget():
            return f"forget {step.replica}"


def scenarios() -> Iterator[tuple[str, list[tuple[str, list[str]]]]]:
    for path in sorted(FOLDER.glob("*.txt")):
        title, sections = "", []
        for line in path.read_text().splitlines():
            if line.startswith("# "):
                if title:
                    yield title, sections
                title, sections = f"{path.stem}: {line[2:]}", []
            elif line and not line.startswith(" "):
                sections.append((line.strip(), []))
            elif line.strip():
                sections[-1][1].append(line.strip())
        yield title, sections


@pytest.mark.parametrize(("title", "sections"), [pytest.param(t, s, id=t) for t, s in scenarios()])
def test_scenario(title: str, sections: list[tuple[str, list[str]]]) -> None:
    stage = Stage()
    for kind, lines in sections:
        if kind == "plan":
            assert stage.play() == lines
        else:
            for line in lines:
                stage.say(line)
