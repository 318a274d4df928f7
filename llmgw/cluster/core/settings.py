"""The cluster's settings: one typed document with a default for everything. Pure.

A document holds only what differs from the defaults; `read` checks it whole and names every unknown key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import msgspec

from agent.plans import DEFAULTS, INSTALLABLE, version_problem
from agent.wire.reason import Reason
from llmgw.cluster.core import notices
from llmgw.price import Price
from llmgw.zones import zone

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
Address = Annotated[str, msgspec.Meta(pattern=r"^(https?://\S+)?$")]
Digest = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}$")]
Port = Annotated[int, msgspec.Meta(ge=1, le=65535)]


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


@dataclass(frozen=True, slots=True)
class EngineVersions:
    """What nodes install by themselves; empty: nothing, it is left to whoever runs the node (docs/engines-install.md).
    llama.cpp everywhere, vLLM where a node's cards run it, SGLang only where it is named here."""

    llamacpp: str = DEFAULTS["llamacpp"]
    vllm: str = DEFAULTS["vllm"]
    sglang: str = DEFAULTS["sglang"]


@dataclass(frozen=True, slots=True)
class EngineOverride:
    """Other versions for some nodes: those that have a card of this class (`a10g`, `a10g-22g`), this id, and these
    labels; what is not given is not asked."""

    engines: dict[str, str]
    gpu_class: str = ""
    id: str = ""
    labels: Labels = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class OfflineSettings:
    """Where nodes get engines instead of the internet: `mirror` the files, `index` Python packages (else the
    mirror's), `sha256` what each file on the mirror must be, by its name."""

    mirror: Address = ""
    index: Address = ""
    sha256: dict[str, Digest] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Webhook:
    """Who is told of what goes wrong (docs/notices.md): at `url`, or at what `url_file` holds, for Slack's addresses
    are secrets. `format` empty: as the address looks. `events`: kinds; empty: all. `secret_file` signs the body. `name`
    is what people see; empty: the host's."""

    url: str = ""
    url_file: str = ""
    format: Literal["", "json", "slack"] = ""
    events: list[str] = field(default_factory=list)
    secret_file: str = ""
    name: Annotated[str, msgspec.Meta(max_length=60)] = ""


@dataclass(frozen=True, slots=True)
class NotifySettings:
    webhooks: list[Webhook] = field(default_factory=list, metadata={"each": Webhook})


@dataclass(frozen=True, slots=True)
class ClusterSettings:
    gateway: GatewaySettings = field(default_factory=GatewaySettings)
    cache: CacheSettings = field(default_factory=CacheSettings)
    fleet: FleetSettings = field(default_factory=FleetSettings)
    serving: ServingSettings = field(default_factory=ServingSettings)
    facility: FacilitySettings = field(default_factory=FacilitySettings)
    keys: KeySettings = field(default_factory=KeySettings)
    limits: LimitSettings = field(default_factory=LimitSettings)
    keep: KeepSettings = field(default_factory=KeepSettings)
    usage: UsageSettings = field(default_factory=UsageSettings)
    notify: NotifySettings = field(default_factory=NotifySettings)
    agents: AgentSettings = field(default_factory=AgentSettings)
    engines: EngineVersions = field(default_factory=EngineVersions)
    engine_overrides: list[EngineOverride] = field(default_factory=list, metadata={"each": EngineOverride})
    """Laid over `engines`, and over one another in their order."""
    offline: OfflineSettings = field(default_factory=OfflineSettings)
    models: list[dict[str, Any]] = field(default_factory=list)
    """Declared models: definitions as in `model add -f`."""
    time_zone: str = ""
    """By whose clock budgets and prices begin, where a project says nothing: `Europe/Istanbul`. Empty: the portal's
    (`time_zone` in config.yaml)."""


class Default(Enum):
    """`DEFAULT` as a value takes a key out of the document. None is a value: it may mean "no limit"."""

    DEFAULT = "default"


DEFAULT = Default.DEFAULT


_WRITTEN_S = 5.0
"""As long a heartbeat may wait until it is written (`fleet.link`)."""


class BadSettings(ValueError):
    """The document would not load; the sentence names the key."""


def read(document: dict[str, Any]) -> ClusterSettings:
    """The settings that `document` gives, defaults filled in; raises `BadSettings`."""
    unknown = [*_unknown(document, ClusterSettings, "")]
    if unknown:
        raise BadSettings(f"there is no setting {', '.join(unknown)}")
    try:
        found = msgspec.convert(document, ClusterSettings)
    except msgspec.ValidationError as e:
        raise BadSettings(str(e).replace("`$.", "`").replace(" - at ", ", at ")) from None
    if found.time_zone and isinstance(bad := zone(found.time_zone), Reason):
        raise BadSettings(f"time_zone: {bad.sentence}")
    _check_engines(found)
    _check_webhooks(found.notify.webhooks)
    slowest = max((s for s in _heartbeats(found) if s is not None), default=0.0)
    if found.fleet.node_lost_s < 2 * slowest + _WRITTEN_S:
        raise BadSettings(
            f"a node that is heard every {slowest:g} s would be lost between two heartbeats: fleet.node_lost_s is "
            f"{found.fleet.node_lost_s:g}, and must be at least {2 * slowest + _WRITTEN_S:g}"
        )
    return found


def default_price(settings: ClusterSettings) -> Price:
    """Of a model without a price of its own."""
    said = settings.limits.default_price
    return Price(said.prompt_per_1k, said.completion_per_1k, said.cached_per_1k, said.per_image, said.per_mesh)


def get(document: dict[str, Any], path: str) -> Any:
    """The value in force at a dotted `path`, default or not; raises `BadSettings` for an unknown one."""
    found: Any = msgspec.to_builtins(read(document))
    for name in filter(None, path.split(".")):
        if not isinstance(found, dict) or name not in found:
            raise BadSettings(f"there is no setting {path}")
        found = found[name]
    return found


def put(document: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A copy of `document` with `value` at `path`, checked; `DEFAULT` takes the key out."""
    names = path.split(".")
    if not all(names):
        raise BadSettings(f"a setting is named like gateway.retries, not {path!r}")
    changed: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(document))
    place = changed
    for name in names[:-1]:
        place = place.setdefault(name, {})
        if not isinstance(place, dict):
            raise BadSettings(f"there is no setting {path}")
    if value is DEFAULT:
        place.pop(names[-1], None)
    else:
        place[names[-1]] = value
    read(changed)
    return changed


def _check_engines(settings: ClusterSettings) -> None:
    """Raises `BadSettings`."""
    asked = [("engines", {f.name: getattr(settings.engines, f.name) for f in fields(EngineVersions)})]
    for i, override in enumerate(settings.engine_overrides):
        where = f"engine_overrides[{i}]"
        asked.append((f"{where}.engines", override.engines))
        if not (override.gpu_class or override.id or override.labels):
            raise BadSettings(f"{where} picks no nodes: it needs gpu_class, id or labels (for all nodes set engines)")
        if not override.engines:
            raise BadSettings(f"{where} says no version: it needs engines, like {{vllm: '0.29.0'}}")
    for where, versions in asked:
        for engine, version in versions.items():
            if engine not in INSTALLABLE:
                known = ", ".join(INSTALLABLE)
                raise BadSettings(f"{where}: nodes install {known}, and not {engine}")
            bad = version_problem(engine, version)
            if bad is not None:
                raise BadSettings(f"{where}: {bad.sentence}")


def _check_webhooks(webhooks: list[Webhook]) -> None:
    """Raises `BadSettings`."""
    seen: set[tuple[str, str]] = set()
    for i, webhook in enumerate(webhooks):
        where = f"notify.webhooks[{i}]"
        if bool(webhook.url) == bool(webhook.url_file):
            raise BadSettings(f"{where} needs either url or url_file")
        if webhook.url and (bad := notices.url_problem(webhook.url)):
            raise BadSettings(f"{where}.url: {bad}")
        for name in ("url_file", "secret_file"):
            file = getattr(webhook, name)
            if file and not file.startswith("/"):
                raise BadSettings(f"{where}.{name} is the whole path of a file, and {file!r} does not begin with /")
        if unknown := [kind for kind in webhook.events if kind not in notices.KINDS]:
            raise BadSettings(f"{where}.events: there is no {', '.join(unknown)}, only {', '.join(notices.KINDS)}")
        if (webhook.url, webhook.url_file) in seen:
            raise BadSettings(f"{where} is there twice: put its events into one")
        seen.add((webhook.url, webhook.url_file))


def _heartbeats(settings: ClusterSettings) -> Iterator[float | None]:
    yield settings.fleet.heartbeat_s
    yield settings.agents.default.heartbeat_s
    yield from (options.heartbeat_s for options in settings.agents.nodes.values())


def _unknown(document: dict[str, Any], cls: type, prefix: str) -> Iterator[str]:
    """The dotted names that no field has. A section's type is its default factory; a table of sections names the
    type of each."""
    known = {f.name: f for f in fields(cls)}
    for name, value in document.items():
        if name not in known:
            yield f"{prefix}{name}"
            continue
        section, each = known[name].default_factory, known[name].metadata.get("each")
        if each is not None and isinstance(value, list):
            for i, entry in enumerate(value):
                if isinstance(entry, dict):
                    yield from _unknown(entry, each, f"{prefix}{name}[{i}].")
        if not isinstance(value, dict):
            continue
        if isinstance(section, type) and is_dataclass(section):
            yield from _unknown(value, section, f"{prefix}{name}.")
        elif each is not None:
            for key, entry in value.items():
                if isinstance(entry, dict):
                    yield from _unknown(entry, each, f"{prefix}{name}.{key}.")
