"""The control side's Redis: one client a process, every call bounded."""

from __future__ import annotations

import functools

import redis
from django.conf import settings


@functools.cache
def client() -> redis.Redis:
    return redis.Redis.from_url(settings.MACHINE.redis_url, socket_connect_timeout=2, socket_timeout=5)
