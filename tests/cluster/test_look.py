"""A request reads the settings once, sees its own changes, and leaves nothing behind."""

from __future__ import annotations

import contextvars
import threading

import pytest
from django.db import connection
from django.http import HttpRequest, HttpResponse
from django.test.utils import CaptureQueriesContext

from llmgw.cluster import look
from llmgw.cluster.actions import settings
from llmgw.portal.once import OneLook

pytestmark = pytest.mark.django_db


def read() -> float:
    return settings.in_force().fleet.drain_s


def test_a_request_reads_them_once_and_sees_its_own_change() -> None:
    seen: list[float] = []

    def page(request: HttpRequest) -> HttpResponse:
        with CaptureQueriesContext(connection) as found:
            seen.extend(read() for _ in range(5))
        assert len(found) == 1
        settings.put(path="fleet.drain_s", value=seen[0] + 5, actor="test")
        seen.append(read())
        return HttpResponse()

    OneLook(page)(HttpRequest())
    assert seen[-1] == seen[0] + 5
    settings.put(path="fleet.drain_s", value=1, actor="test")
    assert read() == 1, "what is no request reads them each time"


def test_a_change_from_elsewhere_waits_for_the_next_request() -> None:
    look.begin()
    before = read()
    elsewhere = threading.Thread(target=look.changed)  # another thread is no part of this request
    elsewhere.start()
    elsewhere.join()
    with CaptureQueriesContext(connection) as found:
        assert read() == before
    assert not found.captured_queries
    look.end()
    with CaptureQueriesContext(connection) as found:
        read()
        read()
    assert len(found) == 2


def test_what_goes_on_after_the_answer_reads_them_each_time() -> None:
    look.begin()
    later = contextvars.copy_context()
    read()
    look.end()
    with CaptureQueriesContext(connection) as found:
        later.run(read)
        later.run(read)
    assert len(found) == 2
