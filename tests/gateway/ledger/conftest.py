"""A Redis of the ledger's tests' own, empty for each."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis


@pytest.fixture
def store(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(f"{redis_url}?db=13") as client:
        client.flushdb()
        yield client
