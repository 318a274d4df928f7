"""Requests for a model that starts when somebody asks, at a real edge: who waits, who is told what, what is told on."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any

import httpx
import pytest

from gateway.core import snapshot
from llmgw import demand
from tests.gateway.admission.test_door import CHAT, Gate, auth, http, said, tenancy, until
from tests.gateway.edges import EdgeProcess, catalog, endpoint, events
from tests.gateway.upstreams import DONE, Call, answer, delta, engine, finish, usage

__all__ = ["http"]


def entry(name: str, state: str = "idle", **fields: Any) -> snapshot.ModelEntry:
    return snapshot.ModelEntry(name, (), state, on_demand=True, **fields)


def serve(edge: EdgeProcess, *models: snapshot.ModelEntry, up: int = 0, **policies: Any) -> None:
    """The first model's engine is at the port `up`, where there is one."""
    edge.publish(
        tenancy=tenancy(),
        catalog=catalog(**{m.name: m for m in models}),
        endpoints=snapshot.Endpoints(endpoints=(endpoint(up, model=models[0].name, parallel=1),) if up else ()),
        policies=snapshot.Policies(**policies),
    )


def comes(edge: EdgeProcess, model: snapshot.ModelEntry, up: int) -> None:
    ready = endpoint(up, model=model.name, parallel=1)
    edge.publish(
        endpoints=snapshot.Endpoints(endpoints=(ready,)),
        catalog=catalog(**{model.name: replace(model, state="serving")}),
    )


def told(edge: EdgeProcess, model: str) -> demand.Asked:
    with edge.client() as client:
        words = [client.get(key) for key in client.scan_iter(f"{demand.KEY}*")]
    found = [said for w in words if w and (said := demand.decode(w).models.get(model)) is not None]
    return found[0] if found else demand.Asked()


def leaving(edge: EdgeProcess) -> dict[str, int]:
    with edge.client() as client:
        words = [demand.decode(w) for key in client.scan_iter(f"{demand.KEY}*") if (w := client.get(key))]
    return {replica: count for word in words for replica, count in word.leaving.items()}


async def test_those_who_wait_are_served_in_their_order(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    gate, model = Gate(), entry("d-order", start_s=2.0)
    async with engine(gate.script) as up:
        serve(edge, model, queue_overcommit=1)
        tasks = []
        for n in "1234":
            tasks.append(asyncio.ensure_future(http.post(CHAT, json=said(n, model="d-order"), headers=auth("a"))))
            await asyncio.sleep(0.02)
        assert not any(t.done() for t in tasks)
        comes(edge, model, up.port)
        gate.let(4)
        answers = [await t for t in tasks]
    assert [a.status_code for a in answers] == [200] * 4
    assert gate.seen == list("1234")
    assert all(float(a.headers["x-llmgw-queued-ms"]) > 0 for a in answers)


async def test_the_first_request_is_told_at_once(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    serve(edge, entry("d-told"), start_wait_s=0.4)
    with edge.client() as client, client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe(demand.CHANNEL)
        channel.get_message(timeout=1)
        began = time.monotonic()
        task = asyncio.ensure_future(http.post(CHAT, json=said("x", model="d-told"), headers=auth("a")))
        heard = await asyncio.to_thread(channel.get_message, timeout=2)
        assert heard is not None
        assert time.monotonic() - began < 0.5
        first = told(edge, "d-told")
        assert (first.waiting, first.in_flight) == (1, 0)
        assert first.unserved_s is not None
        assert first.unserved_s < 1
        assert (await task).status_code == 503
        await until(lambda: told(edge, "d-told").waiting == 0, 3)
        refused = told(edge, "d-told")
        assert refused.unserved_s is not None, "who was refused may come back"
        assert refused.asked_s is not None


async def test_who_does_not_wait_so_long_hears_who_holds_the_card_and_when(
    edge: EdgeProcess, http: httpx.AsyncClient
) -> None:
    waits = entry("d-held", "waiting", held_by="d-other", ready_at=time.time() + 30)
    serve(
        edge,
        waits,
        entry("d-idle", start_s=50.0),
        entry("d-new"),
        entry("d-load", "loading", ready_at=1.0),
        start_wait_s=0.3,
    )
    refused = await http.post(CHAT, json=said("x", model="d-held"), headers=auth("a"))
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_waiting")
    assert refused.headers["x-llmgw-held-by"] == refused.headers["x-llmgw-waiting-for"] == "d-other"
    assert 28 <= int(refused.headers["x-llmgw-eta-seconds"]) <= 30
    assert refused.headers["retry-after"] == refused.headers["x-llmgw-eta-seconds"]
    assert "waits for a card that 'd-other' holds: it should answer in about" in refused.json()["error"]["message"]
    assert refused.json()["error"]["held_by"] == "d-other"

    began = time.monotonic()
    idle = await http.post(CHAT, json=said("x", model="d-idle"), headers=auth("a"))
    assert time.monotonic() - began < 0.25, "nobody waits for what is known to take longer"
    assert (idle.status_code, idle.json()["error"]["code"]) == (503, "model_loading")
    assert idle.headers["retry-after"] == idle.headers["x-llmgw-eta-seconds"] == "50"

    new = await http.post(CHAT, json=said("x", model="d-new"), headers=auth("a"))
    assert "x-llmgw-eta-seconds" not in new.headers
    assert int(new.headers["retry-after"]) > 0
    assert "not known yet" in new.json()["error"]["message"]

    late = await http.post(CHAT, json=said("x", model="d-load"), headers=auth("a"))
    assert late.headers["retry-after"] == "2"
    assert "any moment" in late.json()["error"]["message"]

    began = time.monotonic()
    longer = await http.post(CHAT, json=said("x", model="d-new"), headers=auth("a", x_llmgw_max_wait="1"))
    assert longer.status_code == 503
    assert 0.9 < time.monotonic() - began < 2, "a client may say that it waits longer"


async def test_a_stream_is_kept_open_and_hears_it_in_band(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.stream(delta("ok"), finish(), usage(), DONE)

    model = entry("d-stream", "waiting", held_by="d-other", ready_at=time.time() + 1)
    async with engine(script) as up:
        serve(edge, model, keepalive_s=0.1, start_wait_s=0.6)
        one = said("x", model="d-stream", stream=True)
        refused = await http.post(CHAT, json=one, headers=auth("a"))
        assert refused.status_code == 200
        assert refused.headers["x-llmgw-held-by"] == "d-other"
        last = events(refused.content)[-1]["error"]
        assert (last["code"], last["held_by"]) == ("model_waiting", "d-other")
        assert last["retry_after_seconds"] >= 1
        task = asyncio.ensure_future(http.post(CHAT, json=one, headers=auth("a")))
        await asyncio.sleep(0.3)
        comes(edge, model, up.port)
        served = await task
    assert served.content.startswith(b": keep-alive")
    assert events(served.content)[-1] == "[DONE]"


async def test_what_does_not_start_for_anybody_is_told_apart(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    serve(
        edge,
        snapshot.ModelEntry("d-off", (), "not_running", reason="d-off is kept and not run"),
        entry("d-parked", "parked"),
        entry("d-stopped", "stopped"),
    )
    for name, code in (("off", "model_not_running"), ("parked", "model_parked"), ("stopped", "model_stopped")):
        found = await http.post(CHAT, json=said("x", model=f"d-{name}"), headers=auth("a"))
        assert (found.status_code, found.json()["error"]["code"]) == (503, code)
        assert int(found.headers["retry-after"]) > 0
    assert told(edge, "d-off") == demand.Asked()


async def test_another_model_answers_while_it_starts(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    async def script(call: Call) -> None:
        await call.whole(answer())

    async with engine(script) as up:
        other = snapshot.ModelEntry("d-there", (), "serving")
        serve(edge, other, entry("d-comes", fallbacks=("d-there",)), up=up.port)
        began = time.monotonic()
        found = await http.post(CHAT, json=said("x", model="d-comes"), headers=auth("a"))
        assert (found.status_code, found.headers["x-llmgw-served-model"]) == (200, "d-there")
        assert time.monotonic() - began < 1
        await until(lambda: told(edge, "d-comes").unserved_s is not None, 3)


async def test_what_it_waits_for_fails_to_start(edge: EdgeProcess, http: httpx.AsyncClient) -> None:
    model = entry("d-fails", "starting")
    serve(edge, model)
    task = asyncio.ensure_future(http.post(CHAT, json=said("x", model="d-fails"), headers=auth("a")))
    await asyncio.sleep(0.1)
    edge.publish(catalog=catalog(**{"d-fails": replace(model, state="parked", reason="its weights are broken")}))
    found = await asyncio.wait_for(task, 2)
    assert (found.status_code, found.json()["error"]["code"]) == (503, "model_parked")


@pytest.mark.parametrize("draining", [True, False])
async def test_a_replica_that_gives_up_its_card_lets_new_ones_wait(
    edge: EdgeProcess, http: httpx.AsyncClient, draining: bool
) -> None:
    gate, model = Gate(), entry("d-gives", "waiting", held_by="d-other")
    async with engine(gate.script) as up:
        here = endpoint(up.port, model="d-gives", parallel=1)
        edge.publish(
            tenancy=tenancy(),
            catalog=catalog(**{"d-gives": replace(model, state="serving")}),
            endpoints=snapshot.Endpoints(endpoints=(here,)),
            policies=snapshot.Policies(start_wait_s=0.3),
        )
        begun = asyncio.ensure_future(http.post(CHAT, json=said("begun", model="d-gives"), headers=auth("a")))
        await until(lambda: gate.seen == ["begun"])
        await until(lambda: told(edge, "d-gives").in_flight == 1, 3)
        left = (replace(here, draining=True),) if draining else ()
        edge.publish(catalog=catalog(**{"d-gives": model}), endpoints=snapshot.Endpoints(endpoints=left))
        new = await http.post(CHAT, json=said("new", model="d-gives"), headers=auth("a"))
        assert (new.status_code, new.json()["error"]["code"]) == (503, "model_waiting")
        if draining:
            assert leaving(edge) == {here.replica: 1}, "the engine must not be ended yet"
        gate.let()
        assert (await begun).status_code == 200
        await until(lambda: told(edge, "d-gives").in_flight == 0, 3)
        assert leaving(edge) == ({here.replica: 0} if draining else {})
    assert gate.seen == ["begun"]
