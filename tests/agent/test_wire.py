"""Every message as it travels: what was once sent is read for ever, and nothing that is sent can hurt."""

from __future__ import annotations

import contextlib
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.wire.codec import MAX_BYTES, BadMessage, UnknownMessage, decode, encode
from agent.wire.facts import (
    DomainFacts,
    EngineFacts,
    FabricFacts,
    GpuFacts,
    GpuFigures,
    HolderFacts,
    NodeFacts,
    NvLink,
    PcieFacts,
    PortFacts,
    RankFacts,
)
from agent.wire.messages import (
    TYPES,
    Answer,
    Certified,
    Certify,
    Desired,
    Heartbeat,
    Hello,
    Message,
    Question,
    Refused,
    Report,
    Settings,
    Welcome,
)
from agent.wire.shard import DeviceMemory, Fabric, Gang, Profile, ShardObserved, ShardSpec, ShardState, Source, Took

GOLDEN = Path(__file__).parent / "golden"

PROFILE = Profile(
    name="cpu",
    engine="llamacpp",
    args=("--cache-reuse", "64"),
    env={"GGML_CUDA_NO_PINNED": "1"},
    context_length=4096,
    parallel=4,
    cpu_cores=2,
    memory_bytes=2_000_000_000,
    gpus=1,
    gpu_class="l40s-45g",
    embeddings=False,
    startup_timeout_s=120.0,
    stop_grace_s=5.0,
    tp=4,
    pp=2,
    nodes=2,
    executor="mp",
    gpu_min_capability=8.9,
    gpu_min_memory_bytes=40 * 2**30,
)
SPEC = ShardSpec(
    shard_id="r-0123456789.0",
    replica_id="r-0123456789",
    model="tiny",
    profile=PROFILE,
    source=Source("hf:owner/repo/m.gguf@v1", sha256="a" * 64, size_bytes=1_076_640),
    port=9100,
    key="k" * 64,
    rank=0,
    world_size=1,
    devices=(0, 2),
    incarnation=3,
    gang=Gang(("10.0.0.2", "10.0.0.3"), 18900, Fabric("ib-a", "roce", ("mlx5_0:1",), 3, "ens1")),
)
OBSERVED = ShardObserved(
    shard_id="r-0123456789.0",
    state=ShardState.FAILED,
    incarnation=3,
    fingerprint="0123456789abcdef",
    reason="llama.cpp ended with status 1: the model cannot be loaded",
    last_words=("one", "two"),
    pid=4711,
    address="10.0.0.2",
    port=9100,
    since=1_790_000_000.5,
    progress=0.25,
    memory_bytes=123_456_789,
    adopted=True,
    replica_id="r-0123456789",
    model="tiny",
    devices_memory=(DeviceMemory(0, 41_000_000_000),),
    took=Took(1.5, 2.5, 30.25),
    cause="gpu_memory",
)
FACTS = NodeFacts(
    hostname="n1",
    address="10.0.0.2",
    os="Debian GNU/Linux 12 (bookworm)",
    arch="x86_64",
    boot_id="aa4ae665-49de-49d1-9b81-ee56082573e6",
    cpu_count=16,
    cpu_model="A CPU",
    vector_extensions=("avx2", "avx512f"),
    memory_bytes=64 * 2**30,
    memory_free_bytes=60 * 2**30,
    disk_bytes=10**12,
    disk_free_bytes=9 * 10**11,
    ports_taken=(7443, 8080),
    driver="570.1",
    agent_version="0.1.0",
    labels={"rack": "a"},
    gpus=(
        GpuFacts(
            index=0,
            uuid="GPU-1",
            name="NVIDIA L40S",
            gpu_class="l40s-45g",
            memory_bytes=48_000_000_000,
            memory_free_bytes=47_000_000_000,
            unified=True,
            compute_capability="8.9",
            temperature_c=40,
            power_w=90.5,
            power_limit_w=350.0,
            utilization_percent=12.0,
            sm_active_percent=11.0,
            sm_occupancy_percent=10.0,
            tensor_active_percent=9.0,
            dram_active_percent=8.0,
            bus_id="0000:18:00.0",
            numa_node=1,
            adapters=("mlx5_0",),
            pcie=PcieFacts(4, 8, 5, 16),
            ecc_uncorrected=2,
            remap_pending=True,
            mig_profile="3g.40gb",
            mig_enabled=True,
            mig_pending=False,
            nvlinks=(NvLink(1, 4),),
            switched=True,
            domain=DomainFacts("Completed", "a1b2", 7),
            holders=(HolderFacts(77, 1048576),),
            problem="it is cut anew",
        ),
    ),
    rdma_ports=(
        PortFacts(
            "mlx5_0",
            1,
            "roce",
            True,
            200.0,
            "ens1",
            1,
            "0000:3b:00.0",
            3,
            "fe80000000000000",
            "0xb8599f03000aaaa0",
            1,
            4,
        ),
    ),
    engines=(EngineFacts("llamacpp", "2026.10", "xllamacpp", "/usr/bin/python3", "a problem", "unpacking"),),
    installs=True,
    imex=True,
    fabrics=(FabricFacts("ib-a", ("mlx5_0",)),),
    weights=("starter:tiny",),
    ranks=(RankFacts("r-0123456789.0", (0, 2), SPEC.gang),),
)
MESSAGES: dict[str, Message] = {
    "hello": Hello("n1", 1, 1, "0.1.0", "boot", "instance"),
    "welcome": Welcome("store-1", 1, 2.0, 1_790_000_000.0, {"log_lines": 100}),
    "settings": Settings(5.0, {"labels": {"rack": "b"}}),
    "refused": Refused("certificate_revoked", "the certificate was revoked", 60.0),
    "report": Report(FACTS, (OBSERVED,), 7, "store-1"),
    "heartbeat": Heartbeat(
        (OBSERVED,),
        7,
        60 * 2**30,
        9 * 10**11,
        0.5,
        (GpuFigures(0, 47 * 10**9, 55, 412.5, 92.0, 69.5, 40.5, 18.5, 30.5),),
    ),
    "desired": Desired("store-1", 2, 7, (SPEC,), False, ("r-9876543210.0",), ("hf:owner/repository/gone.gguf",)),
    "question": Question("q1", "log", {"shard_id": "r-0123456789.0", "lines": 20}),
    "certify": Certify("-----BEGIN CERTIFICATE REQUEST-----\n"),
    "certified": Certified("-----BEGIN CERTIFICATE-----\n", "a problem"),
    "answer": Answer("q1", True, {"lines": ["one"]}, "a problem"),
}


def test_every_type_has_a_golden_file() -> None:
    assert set(MESSAGES) == set(TYPES) == {p.stem for p in GOLDEN.glob("*.json")}


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_a_golden_file_is_read_for_ever(name: str) -> None:
    assert decode((GOLDEN / f"{name}.json").read_bytes()) == MESSAGES[name]


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_what_is_sent_is_what_the_golden_file_shows(name: str) -> None:
    """A new field may join the file; one that goes or changes would leave older peers behind."""
    assert json.loads(encode(MESSAGES[name])) == json.loads((GOLDEN / f"{name}.json").read_bytes())


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_golden_messages_leave_no_field_at_its_default(name: str) -> None:
    def full(value: object) -> None:
        for f in fields(value):  # type: ignore[arg-type]
            assert getattr(value, f.name) is not None, f.name

    full(MESSAGES[name])


@pytest.mark.parametrize("name", sorted(MESSAGES))
def test_unknown_fields_are_ignored_wherever_they_are(name: str) -> None:
    def more(value: object) -> object:
        if isinstance(value, dict):
            tables = ("env", "labels", "settings", "args", "body")  # they keep whatever they are given
            inner = {k: v if k in tables and isinstance(v, dict) else more(v) for k, v in value.items()}
            return inner | {"from_the_future": {"x": [1]}}
        return [more(v) for v in value] if isinstance(value, list) else value

    envelope = json.loads((GOLDEN / f"{name}.json").read_bytes())
    envelope["b"] = more(envelope["b"])
    envelope["also_new"] = 1
    assert decode(json.dumps(envelope)) == MESSAGES[name]


def test_absent_is_unknown_and_never_zero() -> None:
    assert decode(b'{"v":1,"t":"heartbeat","b":{}}') == Heartbeat()
    found = decode(b'{"v":1,"t":"report","b":{"facts":{}}}')
    assert isinstance(found, Report)
    assert all(getattr(found.facts, f.name) is None for f in fields(found.facts))


def test_an_unknown_type_can_be_told_from_a_bad_message() -> None:
    with pytest.raises(UnknownMessage, match="'telepathy'"):
        decode(b'{"v":9,"t":"telepathy","b":{"anything":true}}')
    for bad in (b"", b"[]", b"{", b'{"v":1}', b'{"v":1,"t":"hello","b":{}}', b'{"v":1,"t":"desired","b":[]}', b"\xff"):
        with pytest.raises(BadMessage) as caught:
            decode(bad)
        assert not isinstance(caught.value, UnknownMessage)


def test_sizes_are_capped_both_ways() -> None:
    with pytest.raises(BadMessage, match="over the limit"):
        encode(Answer("q", True, {"text": "x" * MAX_BYTES}))
    with pytest.raises(BadMessage, match="over the limit"):
        decode(b" " * (MAX_BYTES + 1))


def test_a_thousand_shards_fit_well() -> None:
    assert len(encode(Desired("store", 1, 1, tuple([SPEC] * 1000)))) < MAX_BYTES / 4


@given(st.binary(max_size=300))
def test_any_bytes_are_a_message_or_bad(data: bytes) -> None:
    with contextlib.suppress(BadMessage):
        decode(data)


_text = st.text('ab0\x00é\U0001f600"', max_size=6)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | _text,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_text, inner, max_size=3),
    max_leaves=8,
)


@given(st.sampled_from(sorted(TYPES)), st.data())
def test_any_body_is_a_message_or_bad(name: str, data: st.DataObject) -> None:
    names = [f.name for f in fields(TYPES[name])]
    body = data.draw(st.dictionaries(st.sampled_from(names), _json, max_size=4))
    try:
        found = decode(json.dumps({"v": 1, "t": name, "b": body}))
    except BadMessage:
        return
    assert decode(encode(found)) == found


def test_a_key_is_not_shown() -> None:
    assert SPEC.key not in repr(MESSAGES["desired"])
    assert SPEC.key in encode(MESSAGES["desired"]).decode()


def test_the_fingerprint_leaves_the_incarnation_out() -> None:
    from dataclasses import replace

    assert replace(SPEC, incarnation=9).fingerprint == SPEC.fingerprint
    assert replace(SPEC, port=9101).fingerprint != SPEC.fingerprint


def test_a_field_that_is_added_later_leaves_fingerprints_as_they_are() -> None:
    """The golden value: running engines are compared by it, so it may never change for the same start."""
    spec = ShardSpec(
        "r-1.0", "r-1", "tiny", Profile("cpu", "llamacpp", args=("--mlock",)), Source("starter:tiny"), 18100, "key"
    )
    assert spec.fingerprint == "d742676d2d52f087"
