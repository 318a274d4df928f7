"""The agent's small pure readers and judges: /proc, GGUF, sources, readiness, last words, codes."""

from __future__ import annotations

import base64
import json
import signal
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent import starter
from agent.core import backoff, gguf, joining, proc, source
from agent.core.doctor import Level, Seen, findings
from agent.core.last_words import Exit, cleaned, sentence
from agent.core.readiness import Response, Verdict, off_card, verdict
from agent.wire.facts import EngineFacts, NodeFacts

STAT = "4711 (a) b (c) d) S 1 4711 4711 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3\n"


def test_what_a_shard_does_not_hold_is_said_by_its_card() -> None:
    held = {0: 5, 1: 0, 1202: None}
    assert off_card({0: 5, 1: None}, "x", serves=True) is None
    assert off_card(held, "/opt/llama-server", serves=True) == (
        "it answers, and holds no memory on card 1 (of 3 that it was given): it computes on the CPU; /opt/llama-server "
        "may be a build without CUDA"
    )
    assert off_card({1202: 0}, "x", serves=False) == "it lives, and holds no memory yet on card 2/mig2"


def test_a_process_name_may_hold_anything() -> None:
    found = proc.stat(STAT)
    assert found == proc.Stat(pid=4711, state="S", parent=1, group=4711, session=4711, start_ticks=98765)
    assert not found.ended
    assert replace(found, state="Z").ended


def test_the_own_process_is_read() -> None:
    found = proc.stat(Path("/proc/self/stat").read_text())
    assert found is not None
    assert found.state == "R"
    assert found.start_ticks > 0


@pytest.mark.parametrize("read", [proc.stat, proc.meminfo, proc.cpu_model, proc.vector_extensions, proc.os_name])
@given(text=st.text("0123456789 abc():\n\tkBZ-²flags", max_size=200))
def test_no_text_breaks_a_reader(read: Callable[[str], object], text: str) -> None:
    read(text)
    proc.resident_pages(text)
    proc.listening_inodes(text, 80)
    proc.listening_ports(text)


@given(st.binary(max_size=200))
def test_no_environment_breaks_the_marker(data: bytes) -> None:
    proc.mark(data)
    proc.mark(b"LLMGW_SHARD=" + data)


def test_the_marker_says_whose_a_process_is() -> None:
    assert proc.mark(b"A=1\0LLMGW_SHARD=home/r-1.0/launch\0B=2\0") == proc.Mark("home", "r-1.0", "launch")
    assert proc.mark(b"XLLMGW_SHARD=home/r-1.0/launch\0") is None
    assert proc.mark(b"LLMGW_SHARD=home\0") is None
    assert proc.mark(b"LLMGW_SHARD=//\0") is None


def test_what_a_cpu_has() -> None:
    x86 = "processor : 0\nmodel name : Intel(R) Xeon(R)\nflags : fpu avx avx2 avx512f amx_tile\n"
    assert proc.vector_extensions(x86) == ("amx_tile", "avx", "avx2", "avx512f")
    assert proc.cpu_model(x86) == "Intel(R) Xeon(R)"
    assert proc.vector_extensions("Features : fp asimd sve\n") == ("neon", "sve")
    assert proc.vector_extensions("processor : 0\n") is None  # unknown, and not none
    assert proc.meminfo("MemTotal:  16 kB\nHugePages_Total: 3\n") == {"MemTotal": 16384}


def test_who_listens() -> None:
    tcp = (
        "  sl  local_address rem_address   st\n"
        "   0: 0100007F:238C 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4242 1\n"
        "   1: 0100007F:238C 0100007F:9999 01 00000000:00000000 00:00000000 00000000     0        0 4243 1\n"
    )
    assert proc.listening_inodes(tcp, 9100) == {4242}
    assert proc.listening_inodes(tcp, 9101) == frozenset()
    assert proc.listening_ports(tcp) == {9100}


TINY = starter.path("tiny").read_bytes()


def test_a_whole_gguf_has_no_problem() -> None:
    assert gguf.problem(TINY, "tiny.gguf") is None


@pytest.mark.parametrize("length", [4, 7, 8, 23, 24, 100, 5000, len(TINY) // 2, len(TINY) - 1])
def test_a_truncated_gguf_is_named(length: int) -> None:
    found = gguf.problem(TINY[:length], "tiny.gguf")
    assert found is not None
    assert found.code == "weights_truncated"
    assert "tiny.gguf is truncated" in found.sentence


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (b"", "weights_empty"),
        (b"hello, world", "weights_not_gguf"),
        (b"GGUF" + struct.pack("<IQQ", 9, 0, 0), "weights_damaged"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "weights_damaged"),
        (b"GGUF" + struct.pack("<IQQ", 3, 2**60, 0), "weights_truncated"),
        (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99), "weights_damaged"),
    ],
)
def test_what_is_no_gguf_is_named(data: bytes, code: str) -> None:
    found = gguf.problem(data, "x")
    assert found is not None
    assert found.code == code


@given(st.binary(max_size=400))
def test_no_bytes_break_the_gguf_reader(data: bytes) -> None:
    gguf.problem(data, "x")
    gguf.problem(b"GGUF\3\0\0\0" + data, "x")


@given(st.integers(0, 4000), st.binary(min_size=1, max_size=8))
def test_no_damage_breaks_the_gguf_reader(at: int, noise: bytes) -> None:
    gguf.problem(TINY[:at] + noise + TINY[at + len(noise) :], "x")


def test_sources() -> None:
    assert source.read("/m/x.gguf") == source.read("path:/m/x.gguf") == source.LocalFile("/m/x.gguf")
    assert source.read("starter:tiny") == source.Starter("tiny")
    hub = source.read("hf:owner/repo/sub/x.gguf@v1", "https://hub.example/")
    assert isinstance(hub, source.Download)
    assert hub.url == "https://hub.example/owner/repo/resolve/v1/sub/x.gguf"
    assert (hub.name, hub.hub) == ("x.gguf", True)
    web = source.read("https://user:secret@h.example:8/a/x.gguf?token=secret")
    assert isinstance(web, source.Download)
    assert web.shown == "https://h.example:8/a/x.gguf"
    assert "secret" not in web.folder + web.name


@pytest.mark.parametrize(
    "text",
    ["", "x.gguf", "path:x", "hf:owner/repo", "hf:../../etc/x", "hf:a/b/../c", "ftp://h/x", "https://", "https://h/"],
)
def test_bad_sources_say_what_is_wanted(text: str) -> None:
    with pytest.raises(source.BadSource):
        source.read(text)


@given(st.text(max_size=60))
def test_a_place_is_a_plain_name(text: str) -> None:
    try:
        found = source.read(f"https://h.example/{text}")
    except (source.BadSource, ValueError):
        return
    assert isinstance(found, source.Download)
    assert "/" not in found.name
    assert not found.name.startswith(".")


def models(*names: str) -> Response:
    return Response(200, json.dumps({"data": [{"id": n} for n in names]}).encode())


@pytest.mark.parametrize(
    ("alive", "ready", "wanted"),
    [
        (None, None, Verdict.STARTING),
        (Response(503, b'{"error":{"message":"Loading model"}}'), models("m"), Verdict.LOADING),
        (Response(503), None, Verdict.LOADING),
        (Response(200), models(), Verdict.LOADING),
        (Response(200), Response(503), Verdict.LOADING),
        (Response(200), models("m"), Verdict.READY),
        (Response(200), models("another", "m"), Verdict.READY),
        (Response(200), models("another"), Verdict.FOREIGN),
        (Response(200), Response(401), Verdict.FOREIGN),
        (Response(200), Response(200, b"<html>"), Verdict.FOREIGN),
        (Response(200), Response(200, b'{"data":{}}'), Verdict.FOREIGN),
        (None, models("m"), Verdict.LOADING),
    ],
)
def test_what_answers_say(alive: Response | None, ready: Response | None, wanted: Verdict) -> None:
    assert verdict(alive, ready, "m") is wanted


NOISE = tuple(f"INFO shutting down {i}" for i in range(15))


@pytest.mark.parametrize(
    ("line", "wanted"),
    [
        (
            "ValueError: No available memory for the cache blocks. Try increasing `gpu_memory_utilization`.",
            "too little memory is left for the KV cache",
        ),
        (
            "ValueError: Free memory on device cuda:0 (111.99/139.8 GiB) on startup is less than desired GPU memory",
            "held by another process",
        ),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", "out of GPU memory: CUDA out of"),
        ("alloc_buffer: allocating 40000.00 MiB on device 0: cudaMalloc failed: out of memory", "out of GPU memory"),
        ("llama_model_load: error loading model: tensor 'x' data is not within the file bounds", "tensor 'x' data"),
        ("llmgw-launcher: the model file /m/x.gguf does not exist", "the model file /m/x.gguf does not exist"),
    ],
)
def test_the_decisive_line_is_found_in_the_noise(line: str, wanted: str) -> None:
    found = sentence("llama.cpp", Exit(status=1), ("INFO loading", line, *NOISE), while_="loading")
    assert found.startswith("llama.cpp ended with status 1 while loading: ")
    assert wanted in found
    assert "\n" not in found


def test_how_it_ended() -> None:
    assert sentence("x", Exit(signal=signal.SIGSEGV), ("fine",)) == "x was ended by SIGSEGV"
    assert "for want of memory" in sentence("x", Exit(signal=signal.SIGKILL), ())
    assert "for want of memory" in sentence("x", Exit(status=137), ())
    assert sentence("x", Exit(status=3), ("first", "the last line")) == "x ended with status 3: the last line"
    assert "not known" in sentence("x", Exit(), ("slot release",))


def test_last_words_are_short_clean_and_without_the_key() -> None:
    raw = b"\x1b[31mred\x1b[0m \xff\n" + b"key is s3cret\r\n\n" + b"x" * 1000 + b"\n" + b"line\n" * 50
    found = cleaned(raw, ("s3cret",))
    assert len(found) == 20
    assert cleaned(raw, ("s3cret",), 60)[:2] == ("red �", "key is •••")
    assert max(map(len, cleaned(raw, (), 60))) <= 400


@given(st.binary(max_size=300))
def test_no_log_breaks_the_last_words(raw: bytes) -> None:
    sentence("x", Exit(status=1), cleaned(raw))


def test_back_off_grows_and_is_bounded() -> None:
    delays = [backoff.delay_s(n, 0.999) for n in range(1, 40)]
    assert delays == sorted(delays)
    assert delays[0] < 0.25
    assert delays[-1] <= backoff.LONGEST_S
    assert backoff.delay_s(1, 0.0) < backoff.delay_s(1, 0.9)


def test_a_join_code_is_read_and_marked() -> None:
    text = base64.urlsafe_b64encode(b'{"u":"http://h:8080/","s":"5ec4e7","n":"n1"}').rstrip(b"=").decode()
    code = joining.read(f" {text[:10]}\n{text[10:]} ")
    assert (code.portal, code.node_id) == ("http://h:8080", "n1")
    assert "5ec4e7" not in repr(code)
    assert len(code.id) == 16
    assert joining.request_mark("5ec4e7", "n1", "csr") != joining.request_mark("5ec4e8", "n1", "csr")


@given(st.text(max_size=60))
def test_what_is_no_join_code_says_so(text: str) -> None:
    with pytest.raises(joining.BadCode):
        joining.read(text)


def test_the_doctor_names_the_worst_first() -> None:
    facts = NodeFacts(
        engines=(EngineFacts("llamacpp", problem="no AVX2"),),
        disk_bytes=100 * 2**30,
        disk_free_bytes=2**30,
        memory_bytes=10 * 2**30,
        memory_free_bytes=9 * 2**30,
    )
    found = findings(Seen(facts, certificate_left_s=-5, server_skew_s=100.0, unknown_settings=("nods",)))
    assert [f.level for f in found] == sorted((f.level for f in found), key=["problem", "warning", "ok"].index)
    assert {f.reason.code for f in found} == {
        "engine_unusable", "certificate_expired", "low_disk", "clock_skew", "unknown_agent_setting", "ok"
    }  # fmt: skip


def test_the_doctor_says_nothing_of_what_it_does_not_know() -> None:
    assert findings(Seen(NodeFacts())) == ()
    assert [f.level for f in findings(Seen(NodeFacts(engines=())))] == [Level.PROBLEM]
