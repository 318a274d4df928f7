"""Three models that load when asked on a machine with room for one, asked for by real clients."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import openai
import pytest
import yaml

from tests.e2e.conftest import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]
NAMES = {"A": "swap-a", "B": "swap-b", "C": "swap-c"}
SETTINGS = {
    "fleet.swap_min_residence_s": "2",
    "fleet.swap_idle_s": "1",
    "fleet.swap_max_wait_s": "20",
    "gateway.start_wait_s": "4",
}
IDLE_S = 12


@dataclass
class Asking:
    """A person with the SDK, who comes again when told to."""

    cluster: Cluster
    model: str
    refused: list[tuple[float, int, str | None, str | None]] = field(default_factory=list)
    """(when, Retry-After, the expected time, who holds the card)."""
    wrong: list[str] = field(default_factory=list)
    served_at: float | None = None

    def run(self) -> None:
        client = self.cluster.client(timeout=60)
        while self.served_at is None:
            try:
                client.chat.completions.create(
                    model=self.model, max_tokens=4, messages=[{"role": "user", "content": "3+4=?"}]
                )
                self.served_at = time.monotonic()
            except openai.APIStatusError as e:
                headers = e.response.headers
                if e.status_code != 503 or e.code not in ("model_waiting", "model_loading"):
                    self.wrong.append(str(e))
                wait_s = int(headers["retry-after"])
                eta, holder = headers.get("x-llmgw-eta-seconds"), headers.get("x-llmgw-held-by")
                self.refused.append((time.monotonic(), wait_s, eta, holder))
                time.sleep(min(wait_s, 10))


@pytest.fixture
def swapping(cluster: Cluster, tmp_path: Path) -> Iterator[Cluster]:
    for name, value in SETTINGS.items():
        cluster.command("config", "set", name, value)
    for name in NAMES.values():
        document = {
            "name": name,
            "source": "starter:tiny",
            "context_length": 512,
            "scaling": {"min": 0, "max": 1, "idle_timeout": f"{IDLE_S}s"},
            "profiles": [{"name": "cpu", "engine": "llamacpp", "cpu_cores": os.cpu_count(), "parallel": 2}],
        }
        path = tmp_path / f"{name}.yaml"
        path.write_text(yaml.safe_dump(document))
        cluster.command("model", "add", "-f", str(path))
    yield cluster
    for name in NAMES.values():
        cluster.command("model", "remove", name, "--yes")
    for name in SETTINGS:
        cluster.command("config", "set", name, "default")


def loads(cluster: Cluster) -> list[str]:
    rows = cluster.rows(
        "SELECT model FROM fleet_replicaevent WHERE state = 'starting' AND model LIKE 'swap-%' ORDER BY id"
    )
    return [row[0] for row in rows]


def held(cluster: Cluster) -> list[str]:
    rows = cluster.rows(
        "SELECT model FROM fleet_replica WHERE model LIKE 'swap-%' AND state != 'pending' ORDER BY model"
    )
    return [row[0] for row in rows]


def test_three_models_take_turns_on_one_card(swapping: Cluster) -> None:
    cluster = swapping
    assert {r["state"] for r in cluster.command("model", "list") if r["name"].startswith("swap-")} == {"idle"}
    asked = [Asking(cluster, NAMES[letter]) for letter in "ABAAC"]
    threads = [threading.Thread(target=one.run, daemon=True) for one in asked]
    for thread in threads:
        thread.start()
        time.sleep(0.2)
    cluster.until(lambda: all(asked[n].served_at for n in (0, 2, 3)), 40, "the first model")
    dead = cluster.kill("worker")
    cluster.until(lambda: cluster.pid("worker") not in (None, dead), 30)
    for thread in threads:
        thread.join(90)
    assert all(one.served_at and not one.wrong for one in asked), asked
    for one in asked:
        for at, wait_s, eta, holder in one.refused:
            assert wait_s >= 1
            if eta is not None and holder is not None:
                late_s = one.served_at - (at + int(eta))
                assert late_s < 30, f"{one.model} was promised in {eta} s and came {late_s:.0f} s later"
    found = loads(cluster)
    assert sorted(set(found)) == sorted(NAMES.values())
    assert len(found) <= 4, f"at most once more than the best possible: {found}"

    last = held(cluster)
    time.sleep(4)
    assert loads(cluster) == found, "nobody asks: nothing is loaded again"
    assert len(last) == 1
    told = [r["sentence"] for name in NAMES.values() for r in cluster.command("why", name)["reasons"]]
    assert any("it gives up its card to" in sentence for sentence in told), told

    cluster.until(lambda: not held(cluster), IDLE_S + 20, "what nobody asks for is stopped")
    assert loads(cluster) == found
    ended = cluster.rows("SELECT reason FROM fleet_replicaevent WHERE model = ? AND state = 'ended'", last[0])
    assert f"nobody has asked for {last[0]} in {IDLE_S} s" in ended[-1][0]
