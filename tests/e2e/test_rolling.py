"""A model replaced, reshaped and scaled under streams on real engines: no request is lost. The whole system stopped."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Cluster
from tests.e2e.test_survival import Load, booked

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]


class Few(Load):
    """Two clients, of which one streams: engines are started meanwhile on the same two cores."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        self._threads = self._threads[:2]


def replicas(cluster: Cluster) -> dict[str, str]:
    """Of the model, with their states."""
    return dict(cluster.rows("SELECT public_id, state FROM fleet_replica WHERE model = 'tiny'"))


def only_new(cluster: Cluster, old: set[str]) -> bool:
    found = replicas(cluster)
    return bool(found) and not old & set(found) and set(found.values()) == {"ready"}


def test_a_restart_and_another_context_lose_no_request(cluster: Cluster) -> None:
    before = cluster.command("model", "show", "tiny")["definition"]["context_length"]
    refused = cluster.command("model", "context", "tiny", "1000000", code=2)
    assert "trained for" in refused["error"]["message"]
    try:
        with Few(cluster) as load:
            load.more(3)
            first = set(replicas(cluster))
            begun = cluster.command("model", "restart", "tiny")
            assert "each new one ready before the old one stops" in begun["sentence"]
            cluster.until(lambda: only_new(cluster, first), 60, "the restart")
            load.more(3)
            second = set(replicas(cluster))
            cluster.command("model", "context", "tiny", str(before // 2))
            cluster.until(lambda: only_new(cluster, second), 60, "the other context")
            load.more(3)
        assert load.failed == []
        booked(cluster, load.answered)
    finally:
        third = set(replicas(cluster))
        cluster.command("model", "context", "tiny", str(before))
        cluster.until(lambda: only_new(cluster, third), 60)


def test_the_whole_system_is_stopped_and_comes_back(cluster: Cluster) -> None:
    try:
        told = cluster.command("stop", "--note", "maintenance", "--wait")
        assert (told["stopped"], told["replicas"]) == (True, 0)
        answer = cluster.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "system_stopped")
        assert int(answer.headers["retry-after"]) > 0
        assert "maintenance" in answer.json()["error"]["message"]
        assert cluster.command("status")["system"]["note"] == "maintenance"
    finally:
        told = cluster.command("start", "--wait")
    assert told["waits_for"] == []
    cluster.until(cluster.serves, 10)
