"""The fleet as rows: nodes and their certificates, replicas and their shards, who holds which card and port."""

from __future__ import annotations

import secrets

from django.db import models
from django.utils.translation import gettext_lazy as _


def replica_id() -> str:
    return f"r-{secrets.token_hex(5)}"


class Node(models.Model):
    """A machine. `facts` is the last full report (agent.wire NodeFacts as builtins); absent is unknown."""

    node_id = models.CharField(max_length=120, unique=True)
    facts = models.JSONField(default=dict)
    labels = models.JSONField(default=dict, blank=True)
    """Stored labels; they win over the agent's own."""
    cordoned = models.BooleanField(default=False)
    draining = models.BooleanField(default=False)
    connected = models.BooleanField(default=False)
    instance = models.CharField(max_length=40, blank=True)
    """The agent process that is connected."""
    agent_version = models.CharField(max_length=40, blank=True)
    protocol = models.PositiveSmallIntegerField(null=True)
    connected_at = models.DateTimeField(null=True)
    link = models.CharField(max_length=80, blank=True)
    """The link process that holds its socket."""
    last_seen = models.DateTimeField(null=True)
    reported_at = models.DateTimeField(null=True)
    """When it last told everything: engines on it may be stopped only after that."""
    memory_free_bytes = models.PositiveBigIntegerField(null=True)
    disk_free_bytes = models.PositiveBigIntegerField(null=True)
    load_1m = models.FloatField(null=True)
    foreign = models.JSONField(default=dict)
    """{device: bytes} that programs hold which are not ours, on cards that had no claim at the last report."""
    settled = models.BooleanField(default=True)
    """False while it holds engines that nobody has decided about: it is told to stop nothing."""
    generation = models.PositiveBigIntegerField(default=0)
    """Of its desired state; moved by whatever changes that."""
    taken_generation = models.PositiveBigIntegerField(null=True)
    """The newest that the node said it took up."""
    engine_builds = models.JSONField(default=dict, blank=True)
    """{engine: build} that an administrator chose for it; an engine that is absent has what its hardware runs."""
    refused = models.CharField(max_length=300, blank=True)
    """Why its last connection was refused, if it was."""
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["node_id"]
        verbose_name = _("node")
        verbose_name_plural = _("nodes")

    def __str__(self) -> str:
        return self.node_id


class Stray(models.Model):
    """A shard that a node reports and the store does not know: adopted where it is wanted, else ended."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="strays")
    shard_id = models.CharField(max_length=40)
    replica_id = models.CharField(max_length=40, blank=True)
    model = models.CharField(max_length=120, blank=True)
    port = models.PositiveIntegerField(null=True)
    fingerprint = models.CharField(max_length=32, blank=True)
    incarnation = models.PositiveIntegerField(default=1)
    state = models.CharField(max_length=10)
    address = models.CharField(max_length=80, blank=True)
    pid = models.PositiveIntegerField(null=True)
    memory_bytes = models.PositiveBigIntegerField(null=True)
    foreign = models.BooleanField(default=False)
    """Started under another store, or under a later state of this one: ended only when a person says so."""
    dismissed = models.BooleanField(default=False)
    """Decided: it is not wanted."""
    seen_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["shard_id"]
        constraints = [models.UniqueConstraint(fields=["node", "shard_id"], name="stray_once")]

    def __str__(self) -> str:
        return f"{self.shard_id} on {self.node_id}"


class JoinCode(models.Model):
    """One enrolment without a certificate: used once, within its hour. The secret itself is not kept."""

    code_id = models.CharField(max_length=16, unique=True)
    proof_key = models.CharField(max_length=64, editable=False)
    """What both sides' proofs are made with (hexadecimal); derived from the code's secret."""
    node_id = models.CharField(max_length=120, blank=True)
    """The only node that may use it; empty: any that does not exist yet."""
    actor = models.CharField(max_length=200)
    expires_at = models.DateTimeField()
    used_at = models.DateTimeField(null=True, blank=True)
    used_by = models.CharField(max_length=120, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return self.code_id


class Certificate(models.Model):
    """A certificate that the cluster's authority issued; a revoked one closes the live socket too."""

    serial = models.CharField(max_length=48, unique=True)
    """Hexadecimal."""
    common_name = models.CharField(max_length=120, db_index=True)
    not_after = models.DateTimeField()
    revoked_at = models.DateTimeField(null=True, blank=True)
    reason = models.CharField(max_length=200, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.common_name} {self.serial}"


class Replica(models.Model):
    """One running (or wanted) copy of a model. Names its model: it outlives the definition until it is stopped."""

    class State(models.TextChoices):
        PENDING = "pending", _("pending")
        """Wanted, and not yet on a node."""
        STARTING = "starting", _("starting")
        LOADING = "loading", _("loading")
        READY = "ready", _("ready")
        DRAINING = "draining", _("draining")
        STOPPING = "stopping", _("stopping")
        BACKOFF = "backoff", _("waiting to try again")
        PARKED = "parked", _("parked")
        LOST = "lost", _("lost")

    public_id = models.CharField(max_length=20, unique=True, default=replica_id, editable=False)
    model = models.CharField(max_length=120, db_index=True)
    profile = models.CharField(max_length=80, blank=True)
    spec = models.JSONField(default=dict)
    """{"profile": agent.wire Profile, "source": agent.wire Source} as builtins: what was placed; {} before."""
    state = models.CharField(max_length=10, choices=State.choices, default=State.PENDING, db_index=True)
    reason = models.TextField(blank=True)
    reason_code = models.CharField(max_length=60, blank=True)
    failures = models.PositiveSmallIntegerField(default=0)
    """Failed starts in a row."""
    next_try_at = models.DateTimeField(null=True, blank=True)
    incarnation = models.PositiveIntegerField(default=1)
    fabric = models.CharField(max_length=120, blank=True)
    """What joins the nodes of a replica on several (fleet.core.plan Place)."""
    meeting_port = models.PositiveIntegerField(null=True, blank=True)
    """At the node of rank 0."""
    stale = models.BooleanField(default=False)
    """Its definition has changed since it was placed."""
    held_by = models.CharField(max_length=120, blank=True)
    """The model that holds the card it waits for."""
    free_at = models.DateTimeField(null=True, blank=True)
    """When that card should be free."""
    placed_at = models.DateTimeField(null=True, blank=True)
    """When it was last given to its nodes to start."""
    adopted = models.BooleanField(default=False)
    created_at = models.DateTimeField(auto_now_add=True)
    state_since = models.DateTimeField(null=True)
    ready_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["model", "id"]
        verbose_name = _("replica")
        verbose_name_plural = _("replicas")

    def __str__(self) -> str:
        return f"{self.public_id} ({self.model})"


class Shard(models.Model):
    """One rank of a replica on one node: where it was put, and what that node observes of it."""

    replica = models.ForeignKey(Replica, on_delete=models.CASCADE, related_name="shards")
    rank = models.PositiveSmallIntegerField(default=0)
    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="shards")
    port = models.PositiveIntegerField()
    devices = models.JSONField(default=list)
    cpu_cores = models.PositiveIntegerField(default=0)
    memory_bytes = models.PositiveBigIntegerField(default=0)
    """Reserved."""
    observed = models.CharField(max_length=10, blank=True)
    """agent.wire ShardState; empty: never reported."""
    observed_incarnation = models.PositiveIntegerField(null=True)
    observed_at = models.DateTimeField(null=True)
    since = models.DateTimeField(null=True)
    reason = models.TextField(blank=True)
    last_words = models.JSONField(default=list)
    cause = models.CharField(max_length=20, blank=True, default="")
    """Why it failed for want of a card's memory: see `agent.wire.shard`."""
    pid = models.PositiveIntegerField(null=True)
    address = models.CharField(max_length=80, blank=True)
    progress = models.FloatField(null=True)
    memory_measured_bytes = models.PositiveBigIntegerField(null=True)
    devices_memory = models.JSONField(default=dict)
    """{device: bytes} that its processes hold on each card, measured."""
    took = models.JSONField(default=dict)
    """agent.wire Took as builtins: how long the parts of its start took."""
    node_address = models.CharField(max_length=80, blank=True)
    """Its node's, as the ranks of several were told of it when it was placed; empty for one alone."""
    link = models.JSONField(default=dict)
    """agent.wire Fabric as builtins: over what it reaches the other ranks; {}: there are none."""
    learned = models.PositiveIntegerField(null=True)
    """The incarnation whose measured memory is in `Learned` already."""

    class Meta:
        ordering = ["replica", "rank"]
        constraints = [
            models.UniqueConstraint(fields=["replica", "rank"], name="shard_rank"),
            models.UniqueConstraint(fields=["node", "port"], name="shard_port"),
        ]

    def __str__(self) -> str:
        return f"{self.replica.public_id}.{self.rank}"


class Claim(models.Model):
    """One GPU, one claim: held by the database itself."""

    node = models.ForeignKey(Node, on_delete=models.CASCADE, related_name="claims")
    device = models.PositiveIntegerField()
    shard = models.ForeignKey(Shard, on_delete=models.CASCADE, related_name="claims")

    class Meta:
        constraints = [models.UniqueConstraint(fields=["node", "device"], name="claim_device")]

    def __str__(self) -> str:
        return f"{self.node_id}/{self.device}"


class Learned(models.Model):
    """What this site has measured of runs of one kind: memory and start times, with how much they differ."""

    class Kind(models.TextChoices):
        MEMORY = "memory", _("memory")
        """Resident bytes of a rank's processes on its node."""
        GPU_MEMORY = "gpu_memory", _("GPU memory")
        """Bytes on the fullest of a rank's cards."""
        FETCH = "fetch", _("fetch")
        """Seconds to bring the weights to the node, where they were not there."""
        START = "start", _("start")
        """Seconds from the decision until it served, less those of the fetch."""

    weights = models.CharField(max_length=500)
    engine = models.CharField(max_length=80)
    gpu_class = models.CharField(max_length=80, blank=True)
    """Empty: on the CPU."""
    gpus = models.PositiveIntegerField(default=0)
    """Of each rank."""
    nodes = models.PositiveIntegerField(default=1)
    context_length = models.PositiveIntegerField(default=0)
    """0: the engine's own."""
    parallel = models.PositiveIntegerField(default=0)
    """Requests worked on at once."""
    kind = models.CharField(max_length=12, choices=Kind.choices)
    n = models.PositiveIntegerField(default=0)
    mean = models.FloatField(default=0)
    spread = models.FloatField(default=0)
    """The sum of squared differences from the mean (Welford)."""
    least = models.FloatField(default=0)
    most = models.FloatField(default=0)
    last = models.FloatField(default=0)
    recent = models.JSONField(default=list)
    """Of seconds: the newest few, the newest last."""
    updated_at = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["weights", "engine", "gpu_class"]
        constraints = [
            models.UniqueConstraint(
                fields=["weights", "engine", "gpu_class", "gpus", "nodes", "context_length", "parallel", "kind"],
                name="learned_once",
            )
        ]

    def __str__(self) -> str:
        return f"{self.kind} of {self.weights} on {self.gpu_class or 'CPU'}"


class ReplicaEvent(models.Model):
    """A replica's life line; outlives the replica."""

    at = models.DateTimeField(auto_now_add=True, db_index=True)
    replica = models.CharField(max_length=20, db_index=True)
    model = models.CharField(max_length=120)
    node = models.CharField(max_length=120, blank=True)
    state = models.CharField(max_length=10)
    reason = models.TextField(blank=True)

    class Meta:
        ordering = ["-id"]

    def __str__(self) -> str:
        return f"{self.replica} {self.state}"


class LastAsked(models.Model):
    """When a model that loads on demand was last asked for, to some seconds: the gateways' word for it may be lost."""

    model = models.CharField(max_length=120, unique=True)
    at = models.DateTimeField()

    def __str__(self) -> str:
        return self.model


class AskedHour(models.Model):
    """An hour (its beginning, in UTC) in which somebody asked for such a model: of weeks of them its week is known."""

    model = models.CharField(max_length=120)
    hour = models.DateTimeField()

    class Meta:
        constraints = [models.UniqueConstraint(fields=["hour", "model"], name="asked_hour")]

    def __str__(self) -> str:
        return f"{self.model} {self.hour:%Y-%m-%d %H}"
