"""Who answers in a model's place, and who may not."""

from __future__ import annotations

import pytest
from msgspec import structs

from gateway.core.chain import MOST, Step, next_after, refused
from gateway.core.principal import Principal
from gateway.core.request import CHAT, EMBEDDINGS, Request
from gateway.core.snapshot import External, ModelEntry, Scope

ASK = Request(CHAT, "a", False, False, False, 10, False)
ANYBODY = Principal(Scope("o", "t", "p"))
AWAY = External("https://x", "y")


def world(**fallbacks: str) -> dict[str, ModelEntry]:
    return {name: ModelEntry(name, fallbacks=tuple(found.split())) for name, found in fallbacks.items()}


def walk(models: dict[str, ModelEntry], who: Principal = ANYBODY, request: Request = ASK) -> list[str]:
    tried = ["a"]
    while (entry := next_after(models["a"], tried, models.get, who, request).entry) is not None:
        tried.append(entry.name)
    return tried[1:]


def test_its_own_come_before_theirs_and_each_once() -> None:
    assert walk(world(a="b c", b="d a c", c="d", d="")) == ["b", "c", "d"]


def test_a_ring_and_a_long_chain_end() -> None:
    assert walk(world(a="b", b="a")) == ["b"]
    assert walk(world(a="a")) == []
    names = "abcdefgh"
    long = world(**{name: names[i + 1 : i + 2] for i, name in enumerate(names)})
    assert walk(long) == ["b", "c", "d", "e"]
    assert len(walk(world(a="b c d e f g", b="", c="", d="", e="", f="", g=""))) == MOST


def test_a_name_that_is_gone_is_passed_by() -> None:
    models = world(a="gone b", b="")
    assert next_after(models["a"], ["a"], models.get, ANYBODY, ASK) == Step(
        models["b"], ("gone: there is no such model",)
    )


@pytest.mark.parametrize(
    ("who", "why"),
    [
        (Principal(Scope("o", "t", "p", allow=("a", "c"))), "model_forbidden"),
        (Principal(Scope("o", "t", "p"), allow=("a", "c")), "model_forbidden"),
        (Principal(Scope("o", "t", "p", in_cluster=True)), "residency"),
        (Principal(Scope("o", "t", "p", no_store=True)), "residency"),
    ],
)
def test_every_hop_is_judged_by_its_own_name(who: Principal, why: str) -> None:
    models = {**world(a="b c", c=""), "b": ModelEntry("b", external=AWAY)}
    found = next_after(models["a"], ["a"], models.get, who, ASK)
    assert found == Step(models["c"], (f"b: {why}",))
    refusal = refused(models["b"], who, ASK)
    assert refusal is not None
    assert (refusal.status, refusal.name) == (403, why)
    assert refused(models["c"], who, ASK) is None


def test_a_fallback_that_may_not_answer_still_leads_on() -> None:
    who = Principal(Scope("o", "t", "p", in_cluster=True))
    models = {**world(a="b", c=""), "b": ModelEntry("b", external=AWAY, fallbacks=("c",))}
    assert walk(models, who) == ["c"]


def test_what_it_cannot_do_counts() -> None:
    models = world(a="b", b="")
    models["b"] = ModelEntry("b", kinds=("chat",), vision=False, context_length=100)
    assert walk(models, request=Request(EMBEDDINGS, "a", False, False, False, None, False)) == []
    assert walk(models, request=Request(CHAT, "a", False, False, False, None, images=True)) == []
    for tokens, fits in ((90, True), (91, False)):
        found = next_after(models["a"], ["a"], models.get, ANYBODY, structs.replace(ASK, prompt_tokens=tokens))
        assert (found.entry is not None) is fits
    models["a"] = ModelEntry("a", fallbacks=("b",), context_length=50)
    long = structs.replace(ASK, prompt_tokens=500)
    assert next_after(models["a"], ["a"], models.get, ANYBODY, long).entry is not None, "no less room than asked"
