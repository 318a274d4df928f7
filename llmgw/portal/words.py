"""Words for what rows call by a code: states, outcomes. One place, so that every page says the same."""

from __future__ import annotations

from django.utils.functional import Promise
from django.utils.translation import gettext_lazy as _
from django.utils.translation import gettext_noop, pgettext_lazy

UNITS: dict[str, str | Promise] = {
    "min": pgettext_lazy("unit of time", "min"),
    "h": pgettext_lazy("unit of time", "h"),
    "d": pgettext_lazy("unit of time", "d"),
}
"""What a time is measured in, as sentences of the cores write it."""
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
    "ended": _("ended"),
    "scaled": _("scaled"),
    "rank": _("one of its nodes"),
    "no_capacity": _("no capacity"),
    "idle": _("loads when asked"),
    "waiting": _("waits for a card"),
    "not running": _("not running"),
    "away": _("away"),
    "refused": _("refused"),
    "revoked": _("revoked"),
    "expired": _("expired"),
    "active": _("active"),
    "stopped": _("stopped"),
    "no usable key": _("no usable key"),
    "client_left": _("the client left"),
    "chosen": _("chosen"),
    "fits": _("fits"),
    "unfit": _("does not fit"),
    "fine": _("fine"),
    "problem": _("problem"),
    "warning": _("warning"),
    "standing": _("still so"),
    "invalid": _("cannot be read"),
    "unsettled": _("undecided engines"),
    "installing": _("being installed"),
    "absent": _("not there"),
    "queued": _("waits for a worker"),
    "measuring": _("measuring"),
    "reckoning": _("reckoning"),
    "done": _("done"),
    "kept": _("promise kept"),
    "missed": _("promise missed"),
    "unknown": _("unknown"),
}

NOTICES: dict[str, str | Promise] = {
    "model_parked": _("model parked"),
    "model_served": _("model serves again"),
    "node_lost": _("node lost"),
    "node_back": _("node is back"),
    "budget_spent": _("budget spent"),
    "external_key_refused": _("provider’s key refused"),
    "external_key_accepted": _("provider’s key accepted again"),
}

SAID_BY_ALLAUTH = (
    # Its Turkish has another word for a password than Django's and ours: our catalogue goes before it.
    gettext_noop("Forgot your password?"),
    gettext_noop("The email address and/or password you specified are not correct."),
    gettext_noop("Please type your current password."),
    gettext_noop("Incorrect password."),
    gettext_noop("You must type the same password each time."),
    gettext_noop("Current Password"),
    gettext_noop("New Password"),
    gettext_noop("New Password (again)"),
    gettext_noop("Password Reset"),
    gettext_noop("Change Password"),
    gettext_noop("Password successfully changed."),
    gettext_noop(
        "Forgotten your password? Enter your email address below, and we'll send you an email allowing you to reset it."
    ),
    gettext_noop("Reset My Password"),
    gettext_noop("Please contact us if you have any trouble resetting your password."),
    gettext_noop("Your password is now changed."),
    gettext_noop("Enter your password:"),
    gettext_noop("Use your password"),
)
