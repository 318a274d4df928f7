"""Models on three machines with systemd take turns, are restarted, stopped and started, and lose a machine, under
clients that ask all the time. Run by hand, as `tests/nodes/test_three_machines.py`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import httpx
import openai
import pytest

from tests.e2e.conftest import Cluster
from tests.nodes.house import RESIDENT, House, Stream, ask

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(600)]

ROOM = "llmgw.io/room"
LOST_S = 10.0
"""`fleet.node_lost_s` while a machine is taken away."""


class Clients:
    """Clients of one model that ask one thing after another, every second one of them by streams; `failed` is what was
    refused or broke, with when it began and how long it took."""

    def __init__(self, cluster: Cluster, model: str, count: int = 4) -> None:
        self._cluster, self._model = cluster, model
        self._over = threading.Event()
        self.answered: list[tuple[float, float]] = []
        self.failed: list[tuple[float, float, str]] = []
        self._threads = [threading.Thread(target=self._run, args=(n,), daemon=True) for n in range(count)]

    def __enter__(self) -> Clients:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join(60)
        assert not any(t.is_alive() for t in self._threads), "a request hangs"

    def _run(self, number: int) -> None:
        stream = number % 2 == 0
        said = [{"role": "user", "content": f"count to {30 + number}"}]
        body = {"model": self._model, "temperature": 0, "stream": stream, "messages": said}
        headers = {"Authorization": f"Bearer {self._cluster.key}"}
        with httpx.Client(base_url=self._cluster.url, headers=headers, timeout=55) as client:
            while not self._over.is_set():
                began = time.monotonic()
                try:
                    answer = client.post("/v1/chat/completions", json=body)
                    whole = answer.status_code == 200 and (not stream or answer.text.rstrip().endswith("data: [DONE]"))
                    problem = (
                        "" if whole and '"error"' not in answer.text else f"{answer.status_code} {answer.text[-300:]}"
                    )
                except httpx.HTTPError as e:
                    problem = repr(e)
                took = time.monotonic() - began
                if problem:
                    self.failed.append((began, took, problem))
                else:
                    self.answered.append((began, took))
                time.sleep(0.3)

    def more(self, count: int, seconds: float = 60) -> None:
        wanted = len(self.answered) + count
        self._cluster.until(lambda: len(self.answered) >= wanted, seconds, f"failed: {self.failed[-3:]}")

    def longest(self, since: float = 0.0) -> float:
        return max((took for began, took in self.answered if began >= since), default=0.0)


class Watch(threading.Thread):
    """Looks again and again; `least` is the least that it saw."""

    def __init__(self, look: Callable[[], int]) -> None:
        super().__init__(daemon=True)
        self._look, self._over, self.least = look, threading.Event(), 1 << 30

    def __enter__(self) -> Watch:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self.join()

    def run(self) -> None:
        while not self._over.is_set():
            self.least = min(self.least, self._look())
            time.sleep(0.1)


def ask_until_served(cluster: Cluster, model: str) -> tuple[str, list[openai.InternalServerError]]:
    """As a person with the official SDK, who comes again when told to: the answer, and the refusals before it."""
    client, refused = cluster.client(timeout=90), []
    for _ in range(20):
        try:
            said: Any = [{"role": "user", "content": "3+4=?"}]
            done = client.chat.completions.create(model=model, temperature=0, messages=said)
            return str(done.choices[0].message.content).strip(), refused
        except openai.InternalServerError as e:  # 503
            refused.append(e)
            time.sleep(min(int(e.response.headers["retry-after"]), 15))
    raise AssertionError(f"{model} was never served: {refused}")


def told(cluster: Cluster, *what: str) -> str:
    found = cluster.command("why", *what)
    return " | ".join([str(found.get("answer")), *(r["sentence"] for r in found["reasons"])])


def test_two_models_take_turns_on_one_machine(house: House) -> None:
    cluster, last = house.cluster, house.machines[-1]
    resident = house.spread()
    cluster.command("node", "label", last.name, f"{ROOM}=turns")
    turns = {"scaling": {"min": 0, "max": 1, "idle_timeout": "10m"}, "labels": {ROOM: "turns"}}
    quick = house.settings(
        fleet__swap_min_residence_s=4, fleet__swap_idle_s=3, fleet__swap_max_wait_s=30, gateway__start_wait_s=1
    )
    try:
        with quick, house.model("turn-a", **turns), house.model("turn-b", **turns):
            took, refusals = [], []
            for name in ("turn-a", "turn-b", "turn-a"):
                began = time.monotonic()
                answer, refused = ask_until_served(cluster, name)
                took.append(round(time.monotonic() - began, 1))
                refusals.append(refused)
                assert answer == "7"
                assert set(house.engines(name)) == {last.name}
                assert len(house.running()[last.name]) == 2, "the resident model's engine, and one of the two"
            for other, refused in zip(("turn-a", "turn-b"), refusals[1:], strict=True):
                waiting = [e for e in refused if e.code == "model_waiting"]
                assert waiting, refused
                assert waiting[0].response.headers["x-llmgw-held-by"] == other
                assert waiting[0].body["held_by"] == other  # type: ignore[index]
            assert house.engines() == resident, "nothing else was restarted"
            print(f"A B A: {took} s, refused {[len(r) for r in refusals]} times")
    finally:
        cluster.command("node", "label", last.name, f"{ROOM}-")


def test_a_rolling_restart_over_two_machines_loses_no_request(house: House) -> None:
    cluster = house.cluster
    resident = house.spread()
    with house.model("pair", scaling={"min": 2}):
        cluster.until(lambda: len(house.served("pair")) == 2, 60)
        before = house.served("pair")
        assert len({node for _, node, _ in before}) == 2
        with Watch(lambda: len(house.served("pair"))) as ready, Clients(cluster, "pair") as clients:
            clients.more(10)
            streams = [Stream(cluster, "pair") for _ in range(6)]
            for stream in streams:
                stream.start()
            cluster.until(lambda: all('"content"' in s.text for s in streams), 20)
            began = time.monotonic()
            sentence = cluster.command("model", "restart", "pair")["sentence"]
            assert "each new one ready before the old one stops" in sentence

            def replaced() -> bool:
                now = house.served("pair")
                return len(now) == len(house.states("pair")) == 2 and not {r for r, _, _ in now} & {
                    r for r, _, _ in before
                }

            cluster.until(replaced, 120)
            took = time.monotonic() - began
            clients.more(20)
            for stream in streams:
                stream.join(100)
        assert {s.over for s in streams} == {"[DONE]"}
        after = house.served("pair")
        assert clients.failed == [], clients.failed[:3]
        assert ready.least >= 2, ready.least
        assert not {(n, p) for _, n, p in after} & {(n, p) for _, n, p in before}
        assert len({node for _, node, _ in after}) == 2, after
        assert house.engines() == resident
        print(f"restart: {took:.1f} s, {len(clients.answered)} answers, longest {clients.longest():.1f} s")


def test_a_model_with_room_for_one_is_replaced_in_place_and_stopped_and_started(house: House) -> None:
    cluster, last = house.cluster, house.machines[-1]
    resident = house.spread()
    cluster.command("node", "label", last.name, f"{ROOM}=alone")
    try:
        with house.model("alone", scaling={"min": 1}, labels={ROOM: "alone"}):
            cluster.until(lambda: house.served("alone"), 60)
            first = house.served("alone")
            began = time.monotonic()
            sentence = cluster.command("model", "restart", "alone")["sentence"]
            assert "in place, since nothing fits beside" in sentence
            cluster.until(lambda: (now := house.served("alone")) and now != first, 60)
            replaced_s = time.monotonic() - began
            answer, _ = ask_until_served(cluster, "alone")
            assert answer == "7"
            assert house.served("alone")[0][2] != first[0][2]

            began = time.monotonic()
            cluster.command("model", "stop", "alone")
            cluster.until(lambda: not house.states("alone"), 40)
            stopped_s = time.monotonic() - began
            assert len(house.running()[last.name]) == 1
            refused = httpx.post(
                f"{cluster.url}/v1/chat/completions",
                headers={"Authorization": f"Bearer {cluster.key}"},
                json={"model": "alone", "messages": [{"role": "user", "content": "3+4=?"}]},
                timeout=30,
            )
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "model_stopped")
            began = time.monotonic()
            cluster.command("model", "start", "alone")
            answer, _ = ask_until_served(cluster, "alone")
            assert answer == "7"
            started_s = time.monotonic() - began
            print(f"in place: {replaced_s:.1f} s, stop: {stopped_s:.1f} s, start to answer: {started_s:.1f} s")
        assert house.engines() == resident
    finally:
        cluster.command("node", "label", last.name, f"{ROOM}-")


@pytest.mark.parametrize("how", ["power", "cable"])
def test_a_machine_is_lost_under_load_and_comes_back(house: House, how: str) -> None:
    cluster, before, gone = house.cluster, house.spread(), house.machines[-1]
    others = {m.name for m in house.machines} - {gone.name}
    with house.settings(fleet__node_lost_s=LOST_S), Clients(cluster, RESIDENT, 6) as clients:
        clients.more(30)
        streams = [Stream(cluster) for _ in range(12)]
        for stream in streams:
            stream.start()
        cluster.until(lambda: all('"content"' in s.text for s in streams), 20)
        lost_at = time.monotonic()
        gone.power_off() if how == "power" else gone.unplug()
        gone_at = time.monotonic()
        cluster.until(lambda: "lost" in house.states(RESIDENT).values(), LOST_S + 10)
        noticed_s = time.monotonic() - lost_at
        cluster.until(lambda: sum(n in others for _, n, _ in house.served(RESIDENT)) == 3, 30)
        replaced_s = time.monotonic() - lost_at
        node, model = told(cluster, gone.name), told(cluster, RESIDENT)
        assert "has not been heard" in node, node
        clients.more(60)
        cluster.until(lambda: not any(s.is_alive() for s in streams), 60)
        streams_s = time.monotonic() - lost_at
        elsewhere = {(n, p) for _, n, p in house.served(RESIDENT) if n in others}
        failures = list(clients.failed)
        print(
            f"{how}: lost after {noticed_s:.1f} s, replaced after {replaced_s:.1f} s, streams over by {streams_s:.1f}"
        )
        broke = [(round(at - lost_at, 1), round(took, 1), why[-160:]) for at, took, why in failures]
        print(f"streams: {sorted(s.over for s in streams)}; failed: {broke}")
        print(f"longest answer {clients.longest():.1f} s of {len(clients.answered)}\n{node}\n{model}")

        gone.power_on() if how == "power" else gone.plug_in()
        back_at = time.monotonic()
        cluster.until(lambda: gone.name in house.ready_nodes(), 60)
        back_s = time.monotonic() - back_at
        cluster.until(lambda: len(house.states(RESIDENT)) == 3 == len(house.served(RESIDENT)), 60)
        settled_s = time.monotonic() - back_at
        clients.more(30)
        time.sleep(4)
    after = {(n, p) for _, n, p in house.served(RESIDENT)}
    running = house.running()
    print(f"back after {back_s:.1f} s, settled after {settled_s:.1f} s; {before} -> {elsewhere} -> {after}; {running}")
    assert {(n, p) for n, p in before.items() if n in others} <= after, "what need not be restarted was not"
    assert {(m, p) for m, pids in running.items() for p in pids} == after, "nothing runs twice"
    assert {s.over for s in streams} <= {"[DONE]", "error"}
    assert all(at < gone_at and "engine_failed" in why for at, _, why in failures), "what began later was answered"
    assert ask(cluster) == "7"
