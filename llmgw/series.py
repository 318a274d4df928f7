"""Every metric there is, in one place: its name, its labels, who pushes it. Needs no Django.

A figure that nobody knows is absent, never zero.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

_LATENCY = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
_RATE = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, 50.0, 80.0, 120.0, 200.0, 500.0, 1000.0)
_TOKEN = (0.001, 0.0025, 0.005, 0.01, 0.02, 0.03, 0.05, 0.08, 0.12, 0.2, 0.5, 1.0)


@dataclass(frozen=True, slots=True)
class Metric:
    """`source`: who pushes it (a component), or `fleet`, or `exporter`."""

    name: str
    kind: Literal["counter", "gauge", "histogram"]
    help: str
    labels: tuple[str, ...] = ()
    buckets: tuple[float, ...] = ()
    source: str = "edge"
    passing: bool = False
    """Its labels come and go with replicas: what a process that is gone counted under them goes with it."""


REQUESTS = Metric(
    "llmgw_requests_total",
    "counter",
    "Requests answered or given up, by how they ended.",
    ("model", "endpoint", "outcome"),
)
REQUEST_SECONDS = Metric(
    "llmgw_request_seconds",
    "histogram",
    "From a request's first byte to the end of its answer.",
    ("model", "endpoint"),
    _LATENCY,
)
TTFT = Metric(
    "llmgw_ttft_seconds",
    "histogram",
    "From a request's first byte to the first content of a stream.",
    ("model",),
    _LATENCY,
)
TPOT = Metric(
    "llmgw_tpot_seconds", "histogram", "Mean time of each output token after the first, a stream.", ("model",), _TOKEN
)
INTER_TOKEN = Metric(
    "llmgw_inter_token_seconds",
    "histogram",
    "Between two pieces of a stream: the stalls that a mean hides.",
    ("model",),
    _TOKEN,
)
OUTPUT_RATE = Metric(
    "llmgw_output_tokens_per_second",
    "histogram",
    "Output tokens a second after the first, a stream.",
    ("model",),
    _RATE,
)
TENANT_TPOT = Metric(
    "llmgw_tenant_tpot_seconds",
    "histogram",
    "Mean time of each output token after the first, a stream, by project.",
    ("project",),
    _TOKEN,
)
TENANT_OUTPUT_RATE = Metric(
    "llmgw_tenant_output_tokens_per_second",
    "histogram",
    "Output tokens a second after the first, a stream, by project.",
    ("project",),
    _RATE,
)
TOKENS = Metric("llmgw_tokens_total", "counter", "Tokens, by kind: prompt, completion, cached.", ("model", "kind"))
TAGGED_REQUESTS = Metric(
    "llmgw_tagged_requests_total",
    "counter",
    "Requests by the tags that `usage.tag_labels` names.",
    ("tag", "value", "outcome"),
)
TAGGED_TOKENS = Metric(
    "llmgw_tagged_tokens_total",
    "counter",
    "Tokens by the tags that `usage.tag_labels` names; direction: prompt, completion.",
    ("tag", "value", "direction"),
)
IN_FLIGHT = Metric("llmgw_requests_in_flight", "gauge", "Requests that are being answered now.", ("model",))
EDGES = Metric("llmgw_edges", "gauge", "Edges, by the form of their inference path: compiled, interpreted.", ("form",))
EDGE_TASKS = Metric("llmgw_edge_tasks", "gauge", "Tasks in the edges' event loops.")
RETRIES = Metric(
    "llmgw_retries_total", "counter", "Attempts that were made again, on another replica or the same.", ("model",)
)
ROUTES = Metric(
    "llmgw_routes_total", "counter", "Choices of a replica, by the reason that decided.", ("model", "reason")
)
ATTEMPTS = Metric(
    "llmgw_endpoint_attempts_total",
    "counter",
    "Attempts on a replica, by what became of them: answered, or how they failed.",
    ("model", "replica", "result"),
    passing=True,
)
BREAKER_OPENED = Metric(
    "llmgw_breaker_opened_total",
    "counter",
    "How often an edge began to avoid a replica.",
    ("model", "replica"),
    passing=True,
)
CACHE_REQUESTS = Metric(
    "llmgw_cache_requests_total",
    "counter",
    "Requests of projects that reuse answers: hit, similar, miss, bypass.",
    ("model", "result"),
)
CACHE_BYTES = Metric("llmgw_cache_bytes", "gauge", "Bytes of answers that the edges hold to give again.")
CACHE_ENTRIES = Metric("llmgw_cache_entries", "gauge", "Answers that the edges hold to give again.")
CACHE_SAVED_TOKENS = Metric(
    "llmgw_cache_saved_tokens_total",
    "counter",
    "Tokens that reused answers counted when a model gave them.",
    ("project", "model"),
)
CACHE_SAVED_COST = Metric(
    "llmgw_cache_saved_cost_total",
    "counter",
    "What reused answers would have cost, in the currency's units.",
    ("project", "model"),
)
FALLBACKS = Metric(
    "llmgw_fallbacks_total",
    "counter",
    "Requests that went on to another model, by why the one before could not answer.",
    ("model", "served", "reason"),
)
EXTERNAL_KEYS = Metric(
    "llmgw_external_keys",
    "gauge",
    "Keys of external models by how they stand: usable, resting, refused, unreadable (the most that an edge sees).",
    ("model", "state"),
)
PREFIX_SAVED_COST = Metric(
    "llmgw_prefix_saved_cost_total",
    "counter",
    "What prompt tokens that engines read from their caches would have cost more, in the currency's units.",
    ("project", "model"),
)
ENGINE_RUNNING = Metric(
    "llmgw_engine_requests_running", "gauge", "Requests that the engine says it works on.", ("model", "replica")
)
ENGINE_WAITING = Metric(
    "llmgw_engine_requests_waiting", "gauge", "Requests that the engine says wait in it.", ("model", "replica")
)
ENGINE_KV = Metric(
    "llmgw_engine_kv_cache_usage_ratio",
    "gauge",
    "How full the engine says its KV cache is, 0 to 1.",
    ("model", "replica"),
)
QUEUE_WAITING = Metric(
    "llmgw_queue_waiting", "gauge", "Requests that wait at the gateway to be let in.", ("model", "band")
)
QUEUE_SECONDS = Metric(
    "llmgw_queue_seconds",
    "histogram",
    "How long those waited that had to, until they were let in.",
    ("model", "band"),
    _LATENCY,
)
QUEUE_REFUSED = Metric(
    "llmgw_queue_refused_total",
    "counter",
    "Requests that were not let in: queue_full, put_out, wait_too_long, waited_too_long, not_loaded.",
    ("model", "band", "reason"),
)
SATURATION = Metric(
    "llmgw_model_saturation_ratio",
    "gauge",
    "Requests at a model's replicas relative to their room (the edge that sees most).",
    ("model",),
)
SLO = Metric("llmgw_model_slo_seconds", "gauge", "What a model promises, as a 99th percentile.", ("model", "slo"))
SLO_P99 = Metric(
    "llmgw_model_slo_p99_seconds",
    "gauge",
    "The 99th percentile of the last five minutes, from 20 streams on (the worst edge).",
    ("model", "slo"),
)
BREAKERS = Metric("llmgw_breakers_open", "gauge", "Replicas that an edge avoids after failures.", ("model",))
SNAPSHOT_VERSION = Metric(
    "llmgw_snapshot_version",
    "gauge",
    "The version of each snapshot part that the edges answer from (the oldest).",
    ("part",),
)
SNAPSHOT_AGE = Metric(
    "llmgw_snapshot_unreached_seconds",
    "gauge",
    "Since an edge last heard from Redis (the longest); its snapshot may be old.",
)
SPOOL_WAITING = Metric("llmgw_spool_waiting_lines", "gauge", "Usage lines that could not be written to the spool yet.")
SPOOL_FAILING = Metric(
    "llmgw_spool_failing", "gauge", "Edges that refuse requests because their spool cannot be written."
)
KEPT_DROPPED = Metric(
    "llmgw_kept_dropped_total",
    "counter",
    "Requests that their project wanted kept and that were not: too_large, backlog, no_space.",
    ("why",),
)
INGESTED = Metric("llmgw_ingest_rows_total", "counter", "Usage rows shipped from the spools.", (), (), "worker")
NOTICES = Metric("llmgw_notices_total", "counter", "What people were to be told of, by kind.", ("kind",), (), "worker")
DELIVERIES = Metric(
    "llmgw_webhook_tries_total", "counter", "Notices sent to a webhook: sent, failed.", ("outcome",), (), "worker"
)
INGEST_BACKLOG = Metric(
    "llmgw_ingest_backlog_bytes", "gauge", "Bytes of the spools that are not shipped yet.", (), (), "fleet"
)
REPLICAS = Metric("llmgw_replicas", "gauge", "Replicas by model and state.", ("model", "state"), (), "fleet")
NODES = Metric("llmgw_nodes", "gauge", "Nodes: connected, away, cordoned.", ("state",), (), "fleet")
NODE_UP = Metric("llmgw_node_up", "gauge", "Whether a node's agent is connected.", ("node",), (), "fleet")


def _of_nodes(prefix: str, labels: tuple[str, ...], told: dict[str, str]) -> tuple[Metric, ...]:
    return tuple(Metric(f"{prefix}{name}", "gauge", says, labels, (), "link") for name, says in told.items())


OF_NODES = (
    *_of_nodes(
        "llmgw_node_",
        ("node",),
        {
            "cpus": "Processors that the agent may use.",
            "load_1m": "Load average of the last minute.",
            "memory_bytes": "Memory of the machine.",
            "memory_free_bytes": "Memory that is available.",
            "disk_bytes": "Size of the disk that holds the weights; absent where it is shared.",
            "disk_free_bytes": "Free space on it.",
        },
    ),
    *_of_nodes(
        "llmgw_node_",
        ("node", "adapter", "port"),
        {"port_active": "Whether an RDMA port is active."},
    ),
    *_of_nodes(
        "llmgw_node_",
        ("node", "engine"),
        {"engine_problem": "Whether an engine on the node cannot be used."},
    ),
    *_of_nodes(
        "llmgw_gpu_",
        ("node", "gpu", "gpu_class"),
        {
            "memory_bytes": "Memory of a card, or of a MIG instance.",
            "memory_free_bytes": "Memory of it that nobody holds.",
            "utilization_percent": "Share of time in which any kernel ran, however little of the chip it ran on.",
            "sm_active_percent": "Multiprocessors with work, by the profiling counters.",
            "sm_occupancy_percent": "Warps resident on them, of those that could be.",
            "tensor_active_percent": "Tensor cores at work.",
            "dram_active_percent": "Memory at work.",
            "power_watts": "What a card draws.",
            "power_limit_watts": "What it may draw.",
            "temperature_celsius": "Temperature of a card, told of each of its instances too.",
            "ecc_uncorrected": "Memory errors that ECC could not mend, since the driver was loaded.",
            "nvlink_peers": "Cards that it reaches by NVLink; absent where that is unknown.",
            "problem": "Whether nothing can be placed on it.",
        },
    ),
)
UP = Metric(
    "llmgw_up",
    "gauge",
    "Processes of a component that pushed figures in the last seconds.",
    ("component",),
    (),
    "exporter",
)
REDIS_UP = Metric(
    "llmgw_redis_up",
    "gauge",
    "Whether the exporter reaches Redis; without it other figures are absent.",
    (),
    (),
    "exporter",
)

LEDGER_REFUSED = Metric(
    "llmgw_ledger_refused_total",
    "counter",
    "Requests refused by the limit that they met: requests, tokens, concurrent, budget; away: nobody could say.",
    ("limit",),
)
LEDGER_LOCAL = Metric(
    "llmgw_ledger_local_total", "counter", "Requests that edges admitted by themselves while the ledger was away."
)
LEDGER_HELD = Metric("llmgw_ledger_reservations", "gauge", "Reservations that are held now.")
LEDGER_SECONDS = Metric(
    "llmgw_ledger_seconds", "histogram", "From a batch of the ledger's operations to its answer.", (), _TOKEN
)
LEDGER_AWAY = Metric("llmgw_ledger_away", "gauge", "Edges that do not reach the ledger.")
TENANT_REQUESTS = Metric(
    "llmgw_tenant_requests_total",
    "counter",
    "Requests of a project, by how they ended.",
    ("organisation", "team", "project", "outcome"),
)
TENANT_TOKENS = Metric(
    "llmgw_tenant_tokens_total",
    "counter",
    "Tokens of a project, by kind: prompt, completion, cached.",
    ("organisation", "team", "project", "kind"),
)
TENANT_COST = Metric(
    "llmgw_tenant_cost_total",
    "counter",
    "What a project's requests cost, in the currency's unit.",
    ("organisation", "team", "project"),
)

ALL: tuple[Metric, ...] = (
    REQUESTS, REQUEST_SECONDS, TTFT, TPOT, INTER_TOKEN, OUTPUT_RATE, TENANT_TPOT, TENANT_OUTPUT_RATE, TOKENS,
    TAGGED_REQUESTS, TAGGED_TOKENS, IN_FLIGHT, EDGES, EDGE_TASKS, RETRIES, ROUTES, ATTEMPTS, BREAKER_OPENED,
    CACHE_REQUESTS, CACHE_BYTES, CACHE_ENTRIES, CACHE_SAVED_TOKENS, CACHE_SAVED_COST, PREFIX_SAVED_COST,
    FALLBACKS, EXTERNAL_KEYS, ENGINE_RUNNING, ENGINE_WAITING, ENGINE_KV, QUEUE_WAITING, QUEUE_SECONDS,
    QUEUE_REFUSED, SATURATION, SLO, SLO_P99, BREAKERS, SNAPSHOT_VERSION, SNAPSHOT_AGE, LEDGER_REFUSED,
    LEDGER_LOCAL, LEDGER_HELD, LEDGER_SECONDS, LEDGER_AWAY, TENANT_REQUESTS, TENANT_TOKENS, TENANT_COST,
    SPOOL_WAITING, SPOOL_FAILING, KEPT_DROPPED, INGESTED, INGEST_BACKLOG, REPLICAS, NODES, NODE_UP,
    *OF_NODES, NOTICES, DELIVERIES, UP, REDIS_UP,
)  # fmt: skip
BY_NAME = {m.name: m for m in ALL}
PASSING = frozenset(m.name for m in ALL if m.passing)
OLDEST = frozenset({SNAPSHOT_VERSION.name})
"""Gauges of which the smallest over the processes is meant."""
LONGEST = frozenset(
    m.name for m in (SNAPSHOT_AGE, EXTERNAL_KEYS, ENGINE_RUNNING, ENGINE_WAITING, ENGINE_KV, SATURATION, SLO, SLO_P99)
)
"""Gauges of which the largest is meant. All others are summed."""
