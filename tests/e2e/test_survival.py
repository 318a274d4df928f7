"""Kill each process under load and watch it come back: no usage row lost or doubled, no key lost, engines untouched."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import httpx
import pytest

from tests.e2e.conftest import Cluster

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(240),
    # A client whose server was killed leaves its socket to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


class Load:
    """Eight clients that ask and remember which requests were answered whole."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._stop = threading.Event()
        self.answered: list[str] = []
        self.failed: list[str] = []
        self._threads = [threading.Thread(target=self._ask, args=(n,)) for n in range(8)]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)

    def _ask(self, number: int) -> None:
        while not self._stop.is_set():
            try:
                answer = self._cluster.chat(f"count to {number + 3}", stream=number % 2 == 0)
            except httpx.HTTPError as e:
                self.failed.append(type(e).__name__)
                time.sleep(0.05)
                continue
            whole = answer.status_code == 200 and ("[DONE]" in answer.text or number % 2 != 0)
            if whole and '"error"' not in answer.text:
                self.answered.append(answer.headers["x-request-id"])
            else:
                self.failed.append(f"{answer.status_code} {answer.text[-200:]}")
                time.sleep(0.05)

    def more(self, count: int, seconds: float = 45) -> None:
        """Until `count` more requests were answered."""
        wanted = len(self.answered) + count
        self._cluster.until(lambda: len(self.answered) >= wanted, seconds, f"failures: {self.failed[-3:]}")


def booked(cluster: Cluster, ids: list[str]) -> None:
    """Every one of `ids` is in the books exactly once, as answered, with the engine's counts."""

    def missing() -> set[str]:
        rows = cluster.rows("SELECT request_id FROM gateway_usage")
        return set(ids) - {r[0] for r in rows}

    cluster.until(lambda: not missing(), 20, "requests without a usage row")
    rows = cluster.rows("SELECT request_id, outcome, completion_tokens, estimated FROM gateway_usage")
    mine = [r for r in rows if r[0] in set(ids)]
    assert len(mine) == len(set(ids)) == len(ids)
    assert {r[1] for r in mine} == {"ok"}
    assert all(r[2] and not r[3] for r in mine)


@pytest.mark.parametrize("component", ["edge", "web", "worker", "beat", "link", "metrics", "redis"])
def test_killed_under_load_it_is_back_by_itself(cluster: Cluster, component: str) -> None:
    engine = cluster.engine_pid()
    with Load(cluster) as load:
        load.more(20)
        dead = cluster.kill(component)
        cluster.until(lambda: cluster.pid(component) not in (None, dead), 10)
        load.more(40)
    booked(cluster, load.answered)
    if component != "edge":
        assert not load.failed, "only the edge is on the path of a request"
    assert cluster.engine_pid() == engine
    cluster.until(lambda: httpx.get(f"{cluster.url}/", timeout=10).status_code == 200, 20)


def test_the_agent_killed_leaves_the_engine_serving_and_takes_it_over(cluster: Cluster) -> None:
    engine = cluster.engine_pid()
    with Load(cluster) as load:
        load.more(10)
        dead = cluster.kill("agent")
        load.more(20)
        cluster.until(lambda: cluster.pid("agent") not in (None, dead), 10)
        load.more(20)
    assert not load.failed
    cluster.until(lambda: cluster.command("node", "list")[0]["state"] == "ready", 20)
    assert cluster.engine_pid() == engine
    assert Path(f"/proc/{engine}").exists()
    booked(cluster, load.answered)


def test_the_engine_killed_in_mid_stream_is_told_booked_and_back(cluster: Cluster) -> None:
    engine = cluster.engine_pid()
    body = {
        "model": "tiny",
        "stream": True,
        "messages": [{"role": "user", "content": "hello"}],
        "max_tokens": 1900,
        "logit_bias": {"<|im_end|>": False},
        "ignore_eos": True,
    }
    with httpx.stream(
        "POST",
        f"{cluster.url}/v1/chat/completions",
        json=body,
        headers={"Authorization": f"Bearer {cluster.key}"},
        timeout=30,
    ) as answer:
        assert answer.status_code == 200
        lines = answer.iter_lines()
        for _ in range(6):
            next(lines)
        os.kill(engine, signal.SIGKILL)
        rest = "\n".join(lines)
    assert '"error"' in rest, rest[-500:]
    request_id = answer.headers["x-request-id"]
    row = cluster.until(lambda: cluster.usage(request_id), 10)
    assert len(row) == 1
    assert row[0]["outcome"] == "engine_failed"
    cluster.until(cluster.serves, 30)
    assert cluster.engine_pid() != engine


def test_stopped_and_started_everything_is_still_there(tmp_path: Path) -> None:
    one = Cluster(tmp_path)
    try:
        one.start()
        first = one.chat("count to 5")
        assert first.status_code == 200
        one.command("org", "create", "acme")
        assert one.stop() == 0
        assert not [p for p in ("edge", "web", "link", "worker", "beat", "metrics", "agent", "redis") if one.pid(p)]
        assert len(one.usage(first.headers["x-request-id"])) <= 1
        began = time.monotonic()
        one.start()
        assert time.monotonic() - began < 30
        assert "password" not in one.text.split("sign in")[1].splitlines()[0]
        one.until(one.serves, 10)
        one.until(lambda: len(one.usage(first.headers["x-request-id"])) == 1, 10)
        assert "acme" in [o["name"] for o in one.command("org", "list")]
        # And killed outright, with all its children left behind.
        engine = one.engine_pid()
        assert one.process is not None
        one.process.kill()
        one.process.wait()
        assert one.serves(), "its processes go on without it"
        one.start()
        one.until(one.serves, 10)
        assert "ending what an earlier run left" in one.text
        assert one.engine_pid() == engine, "the engine was adopted, not started again"
    finally:
        one.close()
