"""What the control side publishes and every edge process answers from: immutable parts, each with a version.

Redis holds part `P` as JSON under `llmgw:snapshot:P` and announces `P` on the channel `llmgw:snapshot`; edges
also poll the versions (`llmgw:snapshot:versions`, a hash of part → version) and keep the last good parts on
disk. No secret is in a snapshot: keys by their hash, engines' keys derived by the edge itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from llmgw.price import Dated, Price
from tenancy.core.limits import Limits

PARTS = ("tenancy", "catalog", "endpoints", "policies")
PREFIX = "llmgw:snapshot:"
CHANNEL = "llmgw:snapshot"
VERSIONS = "llmgw:snapshot:versions"


@dataclass(frozen=True, slots=True)
class LevelLimits:
    """What one level of the tree allows. `since`, `until`: when its budget's period began and ends (Unix seconds), 0
    without one; `period` names the period that is running, `2026-11`."""

    level: str
    """organisation | team | project | key."""
    id: str
    limits: Limits
    period: str = ""
    until: float = 0.0
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Reuse:
    """A project's answer cache. `any`: sampled answers too. `similar`: cosine similarity from which a question counts
    as the same; None: only the same request. `since`: answers kept before (Unix seconds) are not given again."""

    ttl_s: float
    any: bool = False
    similar: float | None = None
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class Keep:
    """A share of a project's requests is kept for some hours."""

    hours: float
    sample: float = 1.0


@dataclass(frozen=True, slots=True)
class Scope:
    """The project that a request is for, and its place in the tree; ids are the rows' public ids."""

    organisation: str
    team: str
    project: str
    allow: tuple[str, ...] | None = None
    """Model names that may be used, already narrowed from every level above; None: all."""
    limits: tuple[LevelLimits, ...] = ()
    """Of organisation, team and project, those that say anything: each binds by itself."""
    in_cluster: bool = False
    """Nothing of it may leave the cluster, said at any level above."""
    no_store: bool = False
    """Nothing that it says or is answered is kept, said at any level above."""
    weight: float = 1.0
    """Its share against the other projects' when requests wait."""
    when_spent: str = ""
    """The model that answers once the budget is spent; empty: priced models are refused."""
    reuse: Reuse | None = None
    """Whether answers are given again."""
    keep: Keep | None = None
    """Whether requests are kept."""


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """One live key. Revoked keys are absent."""

    id: str
    name: str
    project: str
    person: str | None = None
    expires_at: float | None = None
    allow: tuple[str, ...] | None = None
    limits: LevelLimits | None = None
    """Its own, with the cluster's defaults for what no level of its tree says."""
    band: str = "normal"
    """interactive | normal | batch: who goes first when requests wait."""


@dataclass(frozen=True, slots=True)
class Tenancy:
    version: int = 0
    keys: dict[str, KeyEntry] = field(default_factory=dict)
    """By the SHA-256 of the key, in hex."""
    projects: dict[str, Scope] = field(default_factory=dict)
    people: frozenset[str] = frozenset()
    """Public ids of active people: a chat token of anybody else is refused."""
    chat_limits: Limits = field(default_factory=Limits)
    """Of each person who chats without a key, over all projects: the cluster's defaults."""


@dataclass(frozen=True, slots=True)
class ExternalKey:
    """A provider's key: the file that the edge reads it from (never the key), and its share against the others'."""

    file: str
    weight: float = 1.0


@dataclass(frozen=True, slots=True)
class External:
    """A model served outside the cluster, at an OpenAI-compatible API. `url` is without /v1."""

    url: str
    model: str
    keys: tuple[ExternalKey, ...] = ()


@dataclass(frozen=True, slots=True)
class Slo:
    """What the model promises, as the 99th percentile over five minutes. Seconds."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None


@dataclass(frozen=True, slots=True)
class ModelEntry:
    """A model by its name. `state` and `reason` say why it does not serve, when it does not."""

    name: str
    aliases: tuple[str, ...] = ()
    state: str = "loading"
    """serving | idle | starting | loading | waiting | parked | stopped | not_running | no_capacity: see
    `fleet.core.states`."""
    reason: str = ""
    retry_after_s: int = 5
    kinds: tuple[str, ...] = ("chat", "completions")
    """Of chat, completions, embeddings."""
    context_length: int | None = None
    max_output: int | None = None
    created: int = 0
    owned_by: str = "llmgw"
    origin: str = ""
    """The engine-side model name, where the engine insists on one."""
    vision: bool | None = None
    """False: it does not see pictures. None: nobody said."""
    developer_role: bool = False
    """Its template takes the role `developer`; else such instructions go into the system message."""
    prices: tuple[Dated, ...] = ()
    """Its own; without one in force the cluster's default price holds."""
    fallbacks: tuple[str, ...] = ()
    """Models that answer, in this order, when it has no capacity."""
    external: External | None = None
    slo: Slo | None = None
    on_demand: bool = False
    """It starts when somebody asks for it, who waits for a while."""
    ready_at: float | None = None
    """When it should serve (Unix seconds), while it starts or waits for a card; None: nobody knows."""
    start_s: float | None = None
    """How long its starts take here; None: it has not been started yet."""
    held_by: str = ""
    """The model that holds the card it waits for."""


@dataclass(frozen=True, slots=True)
class Catalog:
    version: int = 0
    models: dict[str, ModelEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A ready (or draining) replica: where it answers and what it can carry."""

    replica: str
    model: str
    host: str
    port: int
    node: str
    engine: str = "llamacpp"
    draining: bool = False
    weight: float = 1.0
    parallel: int = 1


@dataclass(frozen=True, slots=True)
class Endpoints:
    version: int = 0
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class CachePolicy:
    """Of the answers that each edge holds (`cache.*`). `embedding_model`: tells how alike questions are; empty: only
    the same request is answered again. `shared`: edges find each other's answers through Redis."""

    max_bytes: int = 128 * 1024 * 1024
    max_entry_bytes: int = 1024 * 1024
    embedding_model: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Policies:
    """Time-outs in seconds, sizes in bytes; from the cluster's settings (`gateway.*`)."""

    version: int = 0
    connect_timeout_s: float = 3.0
    header_timeout_s: float = 1200.0
    """From the request's dispatch to the answer's first content: a prefill of fifteen minutes fits."""
    idle_timeout_s: float = 120.0
    """Between two reads once the answer has begun."""
    generation_timeout_s: float = 3600.0
    keepalive_s: float = 15.0
    """Silence after which a stream is opened with empty comments."""
    max_body_bytes: int = 32 * 1024 * 1024
    retries: int = 2
    route_by: str = "predicted"
    """predicted | least_load | prefix | round_robin: see `gateway.core.router`."""
    tag_labels: tuple[str, ...] = ()
    """Tags that have series in the metrics."""
    default_price: Price = field(default_factory=Price)
    """Of a model that has none of its own."""
    cache: CachePolicy = field(default_factory=CachePolicy)
    queue_limit: int = 256
    """Requests that wait for one model at one edge."""
    queue_max_wait_s: float = 120.0
    queue_overcommit: float = 1.25
    """Requests at the replicas for each of their places: a few wait in the engine, so that no place is ever empty."""
    queue_share_normal: float = 0.9
    queue_share_batch: float = 0.7
    """Of that room: below it the lower bands are let in."""
    start_wait_s: float = 20.0
    """How long a request waits for a model that it started, unless it says itself."""
    unnamed_tokens: int = 4096
    """What an answer may have, where the client names no max_tokens, in what is reserved for it."""
    ledger_away: str = "allow"
    """allow | refuse: what happens to limited requests while the ledger cannot be asked."""
    ledger_away_s: float = 30.0
    """How long an edge admits by itself then."""
    window_s: float = 60.0
    """What a minute is, for limits: tests cannot wait for one."""
    stopped: bool = False
    """The whole system: every request for a model is answered 503 (`serving.stopped`)."""
    stopped_note: str = ""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """The four parts that one request is answered from."""

    tenancy: Tenancy = field(default_factory=Tenancy)
    catalog: Catalog = field(default_factory=Catalog)
    endpoints: Endpoints = field(default_factory=Endpoints)
    policies: Policies = field(default_factory=Policies)


Part = Tenancy | Catalog | Endpoints | Policies
TYPES: dict[str, type[Part]] = {
    "tenancy": Tenancy,
    "catalog": Catalog,
    "endpoints": Endpoints,
    "policies": Policies,
}


def encode(part: Part) -> bytes:
    return msgspec.json.encode(part)


def decode(name: str, data: bytes) -> Part:
    """The part `name` from its JSON; raises `msgspec.MsgspecError`."""
    return msgspec.json.decode(data, type=TYPES[name])
