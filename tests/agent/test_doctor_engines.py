"""The doctor's findings about engines: one test a finding."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.core.doctor import Level, Seen, findings
from agent.wire.facts import EngineFacts, GpuFacts, NodeFacts

GOOD = EngineFacts("llamacpp", "b10991", "cpu", "/e/llama-server")
CARD = GpuFacts(0, compute_capability="8.6")


def seen(*engines: EngineFacts, gpus: tuple[GpuFacts, ...] = (), driver: str | None = "580", **more: object) -> Seen:
    facts = NodeFacts(arch="x86_64", engines=engines, gpus=gpus, driver=driver)
    return replace(Seen(facts, installs=True), **more)  # type: ignore[arg-type]


def found(of: Seen) -> list[tuple[str, Level]]:
    made = [f for f in findings(of) if f.check in ("engines", "vLLM")]
    return [(f.reason.code, f.level) for f in made]


W, P, OK = Level.WARNING, Level.PROBLEM, Level.OK


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        (seen(GOOD), [("ok", OK)]),
        (seen(), [("no_engine", W)]),
        (seen(installs=False), [("no_engine", P)]),
        (seen(EngineFacts("llamacpp", problem="installing: x", installing="x")), [("engine_installing", W)]),
        (seen(replace(GOOD, problem="libgomp.so.1 is gone")), [("engine_unusable", P)]),
        (seen(EngineFacts("llamacpp", problem="there is no release")), [("engine_unusable", P)]),
        (seen(GOOD, EngineFacts("vllm", problem="the driver is too old")), [("engine_not_here", W), ("ok", OK)]),
        (seen(GOOD, gpus=(CARD,), driver="470"), [("driver_too_old", W), ("ok", OK)]),
        (seen(GOOD, gpus=(replace(CARD, compute_capability="6.1"),)), [("card_too_old", W), ("ok", OK)]),
        (seen(GOOD, gpus=(CARD,), driver=None), [("cards_unknown", W), ("ok", OK)]),
        (seen(GOOD, gpus=(CARD,), engines_free_bytes=2**30), [("no_room", W), ("ok", OK)]),
        (seen(GOOD, gpus=(CARD,), programs_missing=frozenset({"gcc"})), [("missing_program", W), ("ok", OK)]),
        (seen(GOOD, gpus=(CARD,)), [("ok", OK), ("ok", OK)]),
        (seen(GOOD, gpus=(CARD,), driver="470", left_out=frozenset({"vllm"})), [("ok", OK)]),
        (seen(GOOD, gpus=(CARD,), driver="470", installs=False), [("ok", OK)]),
    ],
)
def test_each_finding(of: Seen, expected: list[tuple[str, Level]]) -> None:
    assert found(of) == expected
