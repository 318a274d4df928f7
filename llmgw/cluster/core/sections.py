"""The sections of the cluster's settings, with a default for everything. Pure.

Those of engines and of webhooks stand beside their checks (`engines`, `webhooks`); `settings` puts all together.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated, Literal

import msgspec

Seconds = Annotated[float, msgspec.Meta(ge=0)]
Pause = Annotated[float, msgspec.Meta(ge=0.1)]
Count = Annotated[int, msgspec.Meta(ge=0)]
AtLeastOne = Annotated[int, msgspec.Meta(ge=1)]
Share = Annotated[float, msgspec.Meta(gt=0, le=1)]
Factor = Annotated[float, msgspec.Meta(ge=1, le=1000)]
Heartbeat = Annotated[float, msgspec.Meta(ge=0.2, le=60)]
MicroUnits = Annotated[int, msgspec.Meta(ge=0, le=10**9)]
Label = Annotated[str, msgspec.Meta(min_length=1, max_length=63)]
Labels = Annotated[dict[str, Label], msgspec.Meta(max_length=64)]
TagKey = Annotated[str, msgspec.Meta(pattern=r"^[A-Za-z0-9_.-]{1,64}$")]
Note = Annotated[str, msgspec.Meta(max_length=200)]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


class BadSettings(ValueError):
    """The document would not load; the sentence names the key."""


@dataclass(frozen=True, slots=True)
class GatewaySettings:
    """See `gateway.core.snapshot.Policies`; seconds and bytes."""

    connect_timeout_s: Seconds = 3.0
    header_timeout_s: Seconds = 1200.0
    idle_timeout_s: Seconds = 120.0
    generation_timeout_s: Seconds = 3600.0
    keepalive_s: Seconds = 15.0
    max_body_bytes: AtLeastOne = 32 * 1024 * 1024
    retries: Count = 2
    route_by: Literal["predicted", "least_load", "prefix", "round_robin"] = "predicted"
    queue_limit: Count = 256
    queue_max_wait_s: Seconds = 120.0
    queue_overcommit: Factor = 1.25
    queue_share_normal: Share = 0.9
    queue_share_batch: Share = 0.7
    start_wait_s: Seconds = 20.0
    unnamed_tokens: AtLeastOne = 4096
    ledger_away: Literal["allow", "refuse"] = "allow"
    ledger_away_s: Seconds = 30.0


@dataclass(frozen=True, slots=True)
class CacheSettings:
    """Of the answers that are given again (docs/reuse.md): bytes held by each edge process, bytes of one answer, the
    model that tells how alike questions are, and whether edges share their answers through Redis."""

    max_bytes: Count = 128 * 1024 * 1024
    max_entry_bytes: AtLeastOne = 1024 * 1024
    embedding_model: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class FleetSettings:
    """Seconds. A node is lost after `node_lost_s` without a heartbeat; a failed start waits `backoff_first_s`,
    doubled each time up to `backoff_most_s`, and after `park_after` starts in a row the replica is parked. A replica
    that is to go gets no new requests for `drain_s` first, and where its model is served on, for up to `drain_busy_s`
    while it still answers; one that served `healthy_s` starts counting anew. A model
    that loads on demand keeps its card for `swap_min_residence_s` (None: as long as its starts take here); then it goes
    for another when it was not asked for `swap_idle_s`, or when the other has waited for `swap_max_wait_s`. Between its
    min and max a model gets one replica more when requests have waited at all of them for `scale_up_after_s`, at most
    one each `scale_pause_s`, and loses one when for `scale_down_after_s` one less would have been busy to
    `scale_down_share` at most."""

    heartbeat_s: Heartbeat = 2.0
    node_lost_s: Seconds = 20.0
    sync_grace_s: Seconds = 30.0
    backoff_first_s: Seconds = 2.0
    backoff_most_s: Seconds = 300.0
    park_after: AtLeastOne = 5
    healthy_s: Seconds = 60.0
    drain_s: Seconds = 10.0
    drain_busy_s: Seconds = 300.0
    first_port: Port = 18100
    last_port: Port = 18999
    swap_min_residence_s: Seconds | None = None
    swap_idle_s: Seconds = 10.0
    swap_max_wait_s: Seconds = 120.0
    scale_up_after_s: Seconds = 10.0
    scale_pause_s: Seconds = 30.0
    scale_down_after_s: Seconds = 300.0
    scale_down_share: Share = 0.6


@dataclass(frozen=True, slots=True)
class ServingSettings:
    """`stopped`: every model is taken down and every request answered 503, until it is false again; `note` says why."""

    stopped: bool = False
    note: Note = ""


@dataclass(frozen=True, slots=True)
class PlaceOptions:
    """Of a rack, a row of racks, a room, a site or a PDU. `held`: nothing new is placed there, `note` says why;
    `power_cap_w`: what its nodes together may come to draw (None: no cap)."""

    held: bool = False
    note: Note = ""
    power_cap_w: AtLeastOne | None = None


@dataclass(frozen=True, slots=True)
class FacilitySettings:
    """By the names in the nodes' labels `llmgw.io/rack`, `row`, `room`, `site` and `pdu`. `node_w`: watts that a node
    draws besides its cards, for the caps."""

    racks: dict[str, PlaceOptions] = field(default_factory=dict, metadata={"each": PlaceOptions})
    rows: dict[str, PlaceOptions] = field(default_factory=dict, metadata={"each": PlaceOptions})
    pdus: dict[str, PlaceOptions] = field(default_factory=dict, metadata={"each": PlaceOptions})
    rooms: dict[str, PlaceOptions] = field(default_factory=dict, metadata={"each": PlaceOptions})
    sites: dict[str, PlaceOptions] = field(default_factory=dict, metadata={"each": PlaceOptions})
    node_w: Count = 500


@dataclass(frozen=True, slots=True)
class KeySettings:
    """`max_ttl_days` None: a key need not expire."""

    max_ttl_days: AtLeastOne | None = 90


@dataclass(frozen=True, slots=True)
class PriceSettings:
    """Micro-units (0.000001 of the currency's unit) per 1 000 tokens, per picture, per mesh. `cached_per_1k` None:
    prompt tokens read from a cache cost what others do."""

    prompt_per_1k: MicroUnits = 500
    cached_per_1k: MicroUnits | None = None
    completion_per_1k: MicroUnits = 1500
    per_image: MicroUnits = 20_000
    per_mesh: MicroUnits = 200_000


@dataclass(frozen=True, slots=True)
class LimitSettings:
    """What holds where nobody says anything, so that nothing is unmetered: requests and tokens a minute of a key
    (None or 0: none), and the price of a model without one of its own."""

    default_rpm: Count | None = 60
    default_tpm: Count | None = 200_000
    default_price: PriceSettings = field(default_factory=PriceSettings)


@dataclass(frozen=True, slots=True)
class KeepSettings:
    """Days after which replicas' histories, audit entries and usage rows are forgotten. `rollup_days` None: the sums
    of usage by the hour are kept for ever."""

    events_days: AtLeastOne = 90
    audit_days: AtLeastOne = 730
    usage_days: AtLeastOne = 400
    rollup_days: AtLeastOne | None = None


@dataclass(frozen=True, slots=True)
class UsageSettings:
    """`tag_labels`: tags that get a series in the metrics for each of their first hundred values."""

    tag_labels: list[TagKey] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """What an agent is told. `heartbeat_s` None: the fleet's. `labels` lie over those in the node's agent.yaml."""

    heartbeat_s: Heartbeat | None = None
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class AgentSettings:
    """`default` for every node, `nodes.<id>` laid over it, name by name."""

    default: AgentOptions = field(default_factory=AgentOptions)
    nodes: dict[str, AgentOptions] = field(default_factory=dict, metadata={"each": AgentOptions})
