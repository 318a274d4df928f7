"""The worker's ear for those who ask: the first request for a model that does not run makes a pass at once.

What is announced is in Redis anyway, and the next pass would read it within two seconds: all of this may be lost.
"""

from __future__ import annotations

import logging
import threading
import time

import redis
from django.conf import settings
from django.db import close_old_connections

from fleet import passes
from llmgw.demand import CHANNEL

log = logging.getLogger(__name__)
_AGAIN_S = 2.0


def start() -> None:
    """In a thread of its own, until the process ends."""
    threading.Thread(target=_run, name="demand", daemon=True).start()


def _run() -> None:
    while True:
        try:
            _listen()
        except (redis.RedisError, OSError) as e:
            log.debug("demand is not heard: %s", e)
        except Exception:  # a store that is away, say: beat's passes tell of it
            log.exception("a pass for somebody who asked has failed")
        time.sleep(_AGAIN_S)


def _listen() -> None:
    client = redis.Redis.from_url(settings.MACHINE.redis_url, socket_connect_timeout=2, health_check_interval=10)
    with client, client.pubsub(ignore_subscribe_messages=True) as channel:  # type: ignore[no-untyped-call]
        channel.subscribe(CHANNEL)
        while True:
            if channel.get_message(timeout=5.0) is None:
                continue
            close_old_connections()
            try:
                passes.run()
            finally:
                close_old_connections()
