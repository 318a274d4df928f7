"""Another context, other cards: what is refused, with its figures, and what becomes of what is served."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from django.core.management import call_command

from agent import starter
from agent.engine import ModelFacts
from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts
from agent.wire.reason import Reason
from agent.wire.shard import Profile
from catalog import selectors as catalog
from catalog import sources
from catalog.core.definition import Definition, ProfileDefinition
from fleet import models, passes
from fleet.actions import resize as actions
from fleet.core import resize
from fleet.core.world import NodeView
from llmgw.cluster.errors import Conflict, Invalid
from tests.fleet import rows
from tests.fleet.agents import FACTS
from tests.fleet.test_life import ready

GIB = 1024**3
LLAMA = ModelFacts(
    kv_heads=8, attention_heads=32, layers=32, trained_context=131072, size_bytes=15 * GIB, kv_token_bytes=131072
)
"""As an 8B model at 16 bits: 16 GiB of cache for its 131 072 tokens."""


def node(name: str, cards: int, memory: int = 24, kind: str = "l4-24g") -> NodeView:
    gpus = tuple(GpuFacts(i, gpu_class=kind, memory_bytes=memory * GIB) for i in range(cards))
    return NodeView(name, NodeFacts(gpus=gpus))


def served(**run: Any) -> Definition:
    run = {"engine": "vllm", "gpus": 1, "gpu_class": "l4-24g", "context_length": 8192, **run}
    return Definition("m", "hf:a/b/c", (ProfileDefinition(Profile("p", **run)),), context_length=8192)


NODES = [node("n1", 1), node("n2", 4)]


def gpus(definition: Definition, count: int, profile: str | None = None) -> str | Definition:
    found = resize.with_gpus(definition, profile, count, NODES)
    if isinstance(found, Reason):
        return found.sentence
    said = resize.problems(definition, found, {"p": LLAMA}, NODES)
    return "; ".join(r.sentence for r in said) or found


def context(definition: Definition, tokens: int, slots: int | None = None) -> str | Definition:
    found = resize.with_context(definition, tokens, slots, {"p": LLAMA})
    if isinstance(found, Reason):
        return found.sentence
    said = resize.problems(definition, found, {"p": LLAMA}, NODES)
    return "; ".join(r.sentence for r in said) or found


def test_more_cards_where_heads_split_and_a_node_has_them() -> None:
    found = gpus(served(), 4)
    assert isinstance(found, Definition)
    assert found.profiles[0].run.gpus == 4
    found = gpus(served(engine="llamacpp", args=("--tensor-split", "1,1", "--mlock"), gpus=2), 4)
    assert isinstance(found, Definition)
    assert found.profiles[0].run.args == ("--mlock",)


@pytest.mark.parametrize(
    ("definition", "count", "said"),
    [
        (served(), 3, "splits 2, 4, 8 or 16 ways, and not 3"),
        (served(), 8, "no node has 8 cards of l4-24g: the most is 4, on n2"),
        (served(), 1, "uses 1 card already"),
        (served(), 0, "at least 1 card"),
        (served(nodes=2), 2, "spread over 2 nodes: it is laid out by hand"),
        (served(gpus=0, gpu_class=None), 2, "no profile of m runs on cards"),
        (served(gpu_class="h100-80g"), 2, "no node has any"),
        (
            served(gpus=4, context_length=400_000),
            1,
            "KV cache 48.8 GiB for 400000 tokens), and its 1 card has",
        ),
    ],
)
def test_cards_that_cannot_be(definition: Definition, count: int, said: str) -> None:
    assert said in str(gpus(definition, count))


def test_several_profiles_on_cards_are_asked_about() -> None:
    two = served()
    two = replace(two, profiles=(*two.profiles, ProfileDefinition(replace(two.profiles[0].run, name="q"))))
    assert "several profiles on cards (p, q): say which by --profile" in str(gpus(two, 2))
    assert "no profile x on cards; there are: p, q" in str(gpus(two, 2, "x"))
    found = gpus(two, 2, "q")
    assert isinstance(found, Definition)
    assert [p.run.gpus for p in found.profiles] == [1, 2]


@pytest.mark.parametrize(
    ("definition", "tokens", "slots", "said"),
    [
        (served(), 200_000, None, "200000 is more than the 131072 tokens that the model was trained for"),
        (
            served(),
            65_536,
            None,
            "KV cache 8 GiB for 65536 tokens), and its 1 card has 21.6 GiB to use",
        ),
        (served(engine="llamacpp"), 16_384, 4, "KV cache 8 GiB for 4 × 16384 tokens"),
        (served(), 0, None, "at least 1 token"),
        (served(), 4096, 2, "slots are llama.cpp's"),
        (replace(served(), max_output=5000), 4096, None, "may answer with 5000 tokens"),
    ],
)
def test_a_context_that_cannot_be(definition: Definition, tokens: int, slots: int | None, said: str) -> None:
    assert said in str(context(definition, tokens, slots))


def test_how_far_it_can_go_is_said_and_true() -> None:
    said = str(context(served(), 65_536))
    most = int(said.rpartition("at most ")[2].split()[0])
    assert isinstance(context(served(), most), Definition)
    assert isinstance(context(served(), most + 10), str)


def test_what_is_reserved_of_memory_moves_with_the_cache() -> None:
    cpu = served(engine="llamacpp", gpus=0, gpu_class=None, memory_bytes=20 * GIB, cpu_cores=4)
    found = context(cpu, 16_384, 2)
    assert isinstance(found, Definition)
    run = found.profiles[0].run
    assert (run.context_length, run.parallel, run.memory_bytes) == (16_384, 2, 23 * GIB)
    assert found.context_length == 16_384


def tiny_file() -> str:
    return f"path:{starter.path('tiny')}"


def test_the_tiny_model_says_what_it_is() -> None:
    facts = sources.facts_of(tiny_file())
    assert facts is not None
    assert facts.trained_context
    assert facts.kv_token_bytes


@pytest.mark.django_db
def test_a_served_model_s_context_by_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    rows.link_is_up()
    rows.joined()
    rows.tiny(source=tiny_file(), context_length=256)
    passes.run()
    ready()
    call_command("model", "context", "tiny", "512", "--slots", "2")
    assert "each new one ready before the old one stops" in capsys.readouterr().out
    run = catalog.entry("tiny").definition.profiles[0].run  # type: ignore[union-attr]
    assert (run.context_length, run.parallel) == (512, 2)
    passes.run()
    assert sorted(models.Replica.objects.values_list("state", "stale")) == [("ready", True), ("starting", False)]
    with pytest.raises(Invalid, match=r"than the .* tokens that the model was trained for"):
        actions.context(name="tiny", tokens=1_000_000, actor="test")


@pytest.mark.django_db
def test_cards_that_are_not_free_beside_it_are_told_and_taken_in_place() -> None:
    cards = tuple(GpuFacts(i, gpu_class="l4-24g", memory_bytes=24 * GIB) for i in range(2))
    facts = replace(FACTS, gpus=cards, engines=(EngineFacts("llamacpp"),))
    rows.link_is_up()
    rows.joined(facts=facts)
    rows.tiny(gpus=1, gpu_class="l4-24g")
    passes.run()
    ready()
    with pytest.raises(Conflict, match="no room beside the running replica of tiny") as refused:
        actions.gpus(name="tiny", count=2, actor="test")
    assert refused.value.reason.command == "llmgw model gpus tiny 2 --in-place"
    begun = actions.gpus(name="tiny", count=2, actor="test", in_place=True)
    assert begun.sentence == "its replica is stopped and started anew, one at a time: it does not answer meanwhile"
    passes.run()
    old = models.Replica.objects.get()
    assert old.state == "draining"
    rows.back_in_time(old, 60)
    passes.run()
    rows.beat()
    passes.run()
    passes.run()
    assert rows.told()[0].devices == (0, 1)
