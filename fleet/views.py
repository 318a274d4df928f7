"""Enrolment by a join code: the one door for a machine that has no certificate yet."""

from __future__ import annotations

import json
import logging

import msgspec
import redis
from django.http import HttpRequest, JsonResponse
from django.views.decorators.csrf import csrf_exempt
from django.views.decorators.http import require_POST

from fleet import nudges
from fleet.actions import joining
from llmgw.cluster.errors import Invalid, Refusal

log = logging.getLogger(__name__)

TRIES_A_MINUTE = 20
MOST_BYTES = 16 * 1024


class Asked(msgspec.Struct, frozen=True):
    """What a joining machine sends."""

    id: str
    node_id: str
    csr: str
    mac: str


class TooMany(Refusal):
    status = 429


@csrf_exempt  # no session is asked for: the proof in the body is what counts
@require_POST
def join(request: HttpRequest) -> JsonResponse:
    address = str(request.META.get("REMOTE_ADDR", ""))
    try:
        _count(address)
        asked = _read(request)
        joined = joining.use(code_id=asked.id, node_id=asked.node_id, csr=asked.csr, mac=asked.mac, address=address)
    except Refusal as e:
        log.warning("a join from %s was refused: %s", address, e.reason.sentence)
        error = {"code": e.reason.code, "message": e.reason.sentence, "command": e.reason.command}
        return JsonResponse({"error": error}, status=e.status)
    log.info("%s joined from %s", asked.node_id, address)
    return JsonResponse(msgspec.to_builtins(joined))


def _read(request: HttpRequest) -> Asked:
    body = request.body
    if len(body) > MOST_BYTES:
        raise Invalid("too_large", f"a join request has at most {MOST_BYTES} bytes, and this one has {len(body)}")
    try:
        return msgspec.convert(json.loads(body), Asked)
    except (ValueError, msgspec.ValidationError) as e:
        raise Invalid("bad_request", f"not a join request: {e}") from None


def _count(address: str) -> None:
    """At most so many tries a minute from one address. A code is 256 random bits: without Redis joining still works."""
    key = f"llmgw:join:{address}"
    try:
        tries = int(nudges.client().incr(key))
        if tries == 1:
            nudges.client().expire(key, 60)
    except redis.RedisError:
        return
    if tries > TRIES_A_MINUTE:
        raise TooMany("too_many_tries", "too many joins from this address: try again in a minute")
