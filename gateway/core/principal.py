"""Who asks: from a key's hash or a chat token and the snapshot to whom the request is for. Pure."""

from __future__ import annotations

from dataclasses import replace

from gateway.core.errors import GatewayError, NotAllowed, WrongKey
from gateway.core.snapshot import KeyEntry, LevelLimits, ModelEntry, Scope, Tenancy
from gateway.core.value import Value
from llmgw.fold import fold
from llmgw.keys import CHAT_PREFIX, REPLAY_PREFIX, ReplayToken, key_hash, verify_chat, verify_replay


class Principal(Value, frozen=True):
    """`key` is empty where a chat page speaks for `person`."""

    scope: Scope
    key: str = ""
    person: str = ""
    allow: tuple[str, ...] | None = None
    limits: LevelLimits | None = None
    """The key's own, or those of a person who chats; those of its project's levels are the scope's."""
    replay: ReplayToken | None = None
    """The gateway itself sends a kept request once more: nobody is charged for it."""
    band: str = "normal"
    """Who goes first when requests wait; a chat page's somebody who looks on."""

    def may_use(self, model: str) -> bool:
        """Allowlists are published folded."""
        allow, scope = self.allow, self.scope.allow
        if allow is None and scope is None:
            return True
        if (allow is None or model in allow) and (scope is None or model in scope):
            return True  # written there, it is folded
        name = fold(model)
        return (allow is None or name in allow) and (scope is None or name in scope)


def token_of(authorization: bytes | None, api_key: bytes | None) -> str:
    """The key as it was sent (`Authorization: Bearer …`, else `x-api-key`); raises `WrongKey`."""
    if authorization is not None:
        scheme, _, token = authorization.partition(b" ")
        if scheme.lower() != b"bearer" or not token.strip():
            raise WrongKey("the Authorization header must read: Bearer YOUR_KEY")
        return token.strip().decode("latin-1")
    if api_key:
        return api_key.strip().decode("latin-1")
    raise WrongKey("no API key was sent: send the header Authorization: Bearer YOUR_KEY")


def resolve(token: str, tenancy: Tenancy, chat_secret: str, now: float) -> Principal:
    """Whom `token` speaks for at `now` (Unix seconds); raises `WrongKey`. Expiry is checked on every call."""
    if token.startswith(CHAT_PREFIX):
        return _chat(token, tenancy, chat_secret, now)
    if token.startswith(REPLAY_PREFIX):
        return _replay(token, tenancy, chat_secret, now)
    return of_key(tenancy.keys.get(key_hash(token)), tenancy, now, token)


def of_key(entry: KeyEntry | None, tenancy: Tenancy, now: float, token: str = "") -> Principal:
    """Whom a key speaks for that was found by its hash, or not; raises `WrongKey`."""
    scope = tenancy.projects.get(entry.project) if entry is not None else None
    if entry is None or scope is None:
        raise _wrong(token)
    if entry.expires_at is not None and entry.expires_at <= now:
        raise WrongKey("this API key has expired: create a new one on the account page")
    return Principal(scope, entry.id, entry.person or "", entry.allow, entry.limits, band=entry.band)


def check_model(principal: Principal, model: str) -> GatewayError | None:
    """Why this principal may not use `model`, if so."""
    if principal.may_use(model):
        return None
    return NotAllowed(f"this key may not use the model '{model}': ask the owner of its project", param="model")


def check_leaving(principal: Principal, model: ModelEntry) -> GatewayError | None:
    """Why this principal's requests may not be answered by `model`, where that is outside the cluster."""
    if model.external is None:
        return None
    if principal.scope.in_cluster:
        why = "this project's requests may not leave the cluster"
    elif principal.scope.no_store:
        why = "nothing of this project's requests may be kept, which nobody can promise outside the cluster"
    else:
        return None
    return NotAllowed(
        f"{why}, and the model '{model.name}' is served outside it: ask for another model",
        code="residency",
        param="model",
    )


def _chat(token: str, tenancy: Tenancy, secret: str, now: float) -> Principal:
    found = verify_chat(secret, token, now)
    if found is None:
        raise WrongKey("the chat page's session has expired: reload the page")
    scope = tenancy.projects.get(found.project)
    if scope is None or found.person not in tenancy.people:
        raise WrongKey("this account or its project is no longer active")
    own = LevelLimits("person", found.person, tenancy.chat_limits) if tenancy.chat_limits else None
    return Principal(scope, "", found.person, limits=own, band="interactive")


def _replay(token: str, tenancy: Tenancy, secret: str, now: float) -> Principal:
    """For no level of the tree, and so past what they allow; but what must stay in the cluster stays."""
    found = verify_replay(secret, token, now)
    if found is None:
        raise WrongKey("the leave to send this request again has expired: ask anew")
    scope = tenancy.projects.get(found.project)
    if scope is None or scope.keep is None or scope.no_store:
        raise WrongKey("the project keeps no requests any more")
    kept = replace(scope.keep, sample=1.0)
    open_scope = Scope("", "", "", in_cluster=scope.in_cluster, keep=kept)
    return Principal(open_scope, replay=found)


def _wrong(token: str) -> WrongKey:
    shown = f"{token[:12]}…" if token.startswith("llmgw_") and token.isascii() and token.isprintable() else "it"
    what = f"the API key {shown}" if shown != "it" else "the API key"
    return WrongKey(f"{what} is not known here: it may be mistyped, revoked or of another cluster")
