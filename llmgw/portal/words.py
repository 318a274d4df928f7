"""Words for what rows call by a code: states, outcomes. One place, so that every page says the same."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _

STATES: dict[str, str | Promise] = {
    "ready": _("ready"),
    "serving": _("serving"),
    "connected": _("connected"),
    "ok": _("answered"),
    "pending": _("pending"),
    "fetching": _("fetching weights"),
    "starting": _("starting"),
    "loading": _("loading"),
    "backoff": _("waiting to try again"),
    "draining": _("draining"),
    "stopping": _("stopping"),
    "cordoned": _("cordoned"),
    "parked": _("parked"),
    "failed": _("failed"),
    "engine_failed": _("the engine failed"),
    "timed_out": _("timed out"),
    "lost": _("lost"),
    "no_capacity": _("no capacity"),
    "away": _("away"),
    "refused": _("refused"),
    "revoked": _("revoked"),
    "expired": _("expired"),
    "active": _("active"),
    "stopped": _("stopped"),
    "client_left": _("the client left"),
    "unsettled": _("undecided engines"),
    "unknown": _("unknown"),
}
