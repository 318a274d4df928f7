"""What runs and no row knows, held against what is wanted."""

from __future__ import annotations

from dataclasses import replace

import pytest

from agent.wire.facts import GpuFacts, NodeFacts
from agent.wire.shard import Profile, ShardSpec, ShardState, Source
from catalog.core.definition import Definition, ProfileDefinition
from fleet.core.adoption import adopt
from fleet.core.fabrics import Fabrics
from fleet.core.world import NodeView, StrayView, WantedModel


@pytest.mark.parametrize("devices", [(0,), (1, 3), (0, 1, 2, 3)])
def test_the_cards_of_an_engine_are_found_by_its_fingerprint(devices: tuple[int, ...]) -> None:
    run = Profile("p", "vllm", gpus=len(devices), gpu_class="h100-80g")
    spec = ShardSpec("r-1.0", "r-1", "m", run, Source("path:/m"), 18100, "key", devices=devices, incarnation=3)
    wanted = WantedModel(Definition("m", "path:/m", profiles=(ProfileDefinition(run),)))
    facts = NodeFacts(gpus=tuple(GpuFacts(n, gpu_class="h100-80g") for n in range(4)))
    stray = StrayView("n1", "r-1.0", "r-1", "m", ShardState.READY, 18100, spec.fingerprint, 3, key="key")
    step = adopt([stray], wanted, {"n1": NodeView("n1", facts)}, Fabrics)
    assert step is not None
    assert (step.seats[0].devices, step.incarnation) == (devices, 3)
    assert adopt([replace(stray, fingerprint="unlike")], wanted, {"n1": NodeView("n1", facts)}, Fabrics) is None
