"""A budget from its command to a refusal, and through a Redis that has lost everything."""

from __future__ import annotations

from decimal import Decimal

import pytest
import redis

from tests.e2e.conftest import Cluster

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]
LEFT = "x-llmgw-budget-remaining"


def test_a_budget_binds_and_survives_an_emptied_redis(cluster: Cluster) -> None:
    place = cluster.command("project", "list")[0]["path"]
    cluster.command("limits", "set", place, "--budget", "5", "--period", "month")
    try:
        cluster.until(lambda: LEFT in cluster.chat(max_tokens=20).headers, 15)
        answer = cluster.chat(max_tokens=20)
        cluster.until(lambda: cluster.usage(answer.headers["x-request-id"]), 15)
        left = Decimal(cluster.chat(max_tokens=20).headers[LEFT])
        assert 0 < left < 5

        with redis.Redis(unix_socket_path=str(cluster.home / "run" / "redis.sock")) as client:
            client.flushall()
        found = cluster.until(lambda: cluster.chat(max_tokens=20).headers.get(LEFT), 30)
        assert Decimal(found) < left  # what was spent before is known from the rows

        cluster.command("limits", "set", place, "--budget", "0.000001")
        refused = cluster.until(lambda: (a := cluster.chat(max_tokens=20)).status_code == 429 and a, 15)
        assert refused.json()["error"]["code"] == "insufficient_quota"
    finally:
        cluster.command("limits", "set", place, "--none", "budget")
    cluster.until(cluster.serves, 15)
