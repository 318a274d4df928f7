from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.conf import settings
from django.test.testcases import LiveServerThread

from fleet import bootstrap
from tests.fleet import store
from tests.fleet.links import Link


@pytest.fixture
def shared_store(django_db_blocker: Any) -> Iterator[str]:
    """The store that the real processes use too, empty; gives the store id."""
    with django_db_blocker.unblock(), store.shared():
        yield bootstrap.ensure(settings.MACHINE)


@pytest.fixture
def link(shared_store: str, redis_url: str) -> Iterator[Link]:
    """A running link process."""
    running = Link()
    running.start()
    yield running
    running.close()


@pytest.fixture
def live_portal(shared_store: str) -> Iterator[str]:
    """Django on a socket, over the shared store; its address."""
    server = LiveServerThread("127.0.0.1", lambda application: application)
    server.daemon = True
    server.start()
    server.is_ready.wait(10)
    assert server.error is None
    yield f"http://127.0.0.1:{server.port}"
    server.terminate()
