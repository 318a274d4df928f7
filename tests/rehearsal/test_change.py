"""A change tried on the traffic there was: rows of usage through the cluster as it is and as it would be."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from agent.rehearsal.hardware import TEMPLATES, Wish, facts
from catalog.actions import life
from catalog.actions import models as model_actions
from fleet.models import Node
from gateway.models import Usage
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.rehearsal.change import rehearse

pytestmark = pytest.mark.django_db
NOW = time.time()
MODEL = {
    "name": "chat",
    "source": "path:/pretended/chat",
    "scaling": {"min": 1, "max": 1},
    "profiles": [{"name": "l40s", "engine": "vllm", "gpu_class": "l40s-45g", "gpus": 1, "parallel": 2}],
}


@pytest.fixture
def cluster() -> None:
    for n in range(2):
        wish = Wish(f"n{n}", f"127.64.0.{n + 1}", {}, engines=("vllm",))
        told = msgspec.to_builtins(facts(TEMPLATES["l40sx4"], wish))
        Node.objects.create(node_id=wish.id, facts={k: v for k, v in told.items() if v is not None})
    model_actions.add_all(raws=[MODEL], actor="test", check_sources=False)


def traffic(count: int = 400, every_s: float = 1.0, **fields: Any) -> None:
    """A busy hour of yesterday: prompts of 100 to 200 tokens, 60 of an answer at 50 a second."""
    begin = datetime.fromtimestamp(NOW, UTC) - timedelta(days=1)
    rows = []
    for n in range(count):
        prompt = 100 + n % 100
        rows.append(
            Usage(
                request_id=f"req_{n:06}",
                at=begin + timedelta(seconds=n * every_s),
                endpoint="chat",
                **{
                    "model": "chat",
                    "asked": "chat",
                    "stream": True,
                    "outcome": "ok",
                    "status": 200,
                    "prompt_tokens": prompt,
                    "completion_tokens": 60,
                    "dispatched_ms": 1.0,
                    "ttft_ms": 21.0 + prompt,
                    "duration_ms": 21.0 + prompt + 59 * 20,
                    **fields,
                },
            )
        )
    Usage.objects.bulk_create(rows)


def test_more_replicas_refuse_fewer_and_cost_more(cluster: None) -> None:
    traffic(900, every_s=0.4)
    change = {"models": {"chat": {"scaling": {"min": 4, "max": 4}}}, "gpu_hour": {"l40s": 1.0}}
    told = rehearse(change, days=1.05, now=NOW)
    assert told["measured"]["requests"] == 900
    assert told["as_it_is"]["refused"] > 0
    assert told["as_it_would_be"]["refused"] == 0
    assert told["difference"]["refused"] < 0
    assert told["difference"]["gpu_hours"] == pytest.approx(3 * 25.2, rel=0.02)
    assert told["difference"]["cost"] == pytest.approx(3 * 25.2, rel=0.02)
    assert told["as_it_would_be"]["ttft_p50_s"] == pytest.approx(0.17, abs=0.05)
    assert not told["broken"]
    assert any("TTFT that was measured" in s for s in told["sureness"])


def test_a_restart_that_was_asked_for_is_not_played_again_and_again(cluster: None) -> None:
    traffic(20)
    life.restart(name="chat", actor="test")
    told = rehearse({"models": {"chat": {"scaling": {"min": 1, "max": 1}}}}, days=1.01, now=NOW)
    assert told["as_it_is"]["starts"] < 5


def test_what_was_not_measured_is_said_to_be_assumed(cluster: None) -> None:
    traffic(10)
    told = rehearse({}, days=1.05, now=NOW)
    assert any("from data sheets" in s for s in told["sureness"])
    assert all(v in (0, None) for v in told["difference"].values())


def test_limits_and_caches_are_no_traffic_of_a_model(cluster: None) -> None:
    traffic(30, outcome="refused", status=429)
    with pytest.raises(Conflict, match="no request of the last"):
        rehearse({}, days=1.05, now=NOW)


def test_every_problem_of_a_change_is_named(cluster: None) -> None:
    change = {
        "settings": {"fleet.no_such": 1, "limits.default_rpm": 5},
        "models": {"chat": {"scaling": {"min": 3, "max": 1}}, "other": {"profiles": []}},
        "nodes_out": ["n9"],
        "gpu_hour": {"l40s": "much"},
        "speed": 1,
    }
    with pytest.raises(Invalid) as refused:
        rehearse(change, days=1, now=NOW)
    told = "\n".join(p.sentence for p in refused.value.problems)
    for said in (
        "there is no setting fleet.no_such",
        "limits.default_rpm changes nothing in a rehearsal",
        "max (1) is below min (3)",
        "source is missing",
        "there is no node n9",
        "gpu_hour must be",
        "there is no key speed",
    ):
        assert said in told, said


def test_a_stopped_model_and_a_node_less(cluster: None) -> None:
    traffic(50)
    told = rehearse({"models": {"chat": {"stopped": True}}, "nodes_out": ["n0"]}, days=1.05, now=NOW)
    assert told["as_it_would_be"]["refused"] == 50
    assert told["as_it_would_be"]["gpu_hours"] == 0
