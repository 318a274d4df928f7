"""The benchmark measures what it says: its programs compile, its checks see faults, and one quick run has none."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from bench import contenders, requests, versions
from bench.cell import Cell, Spread
from bench.contenders import Engine
from bench.figures import Figure, errors, figures
from bench.programs import CannotBuild, program
from bench.targets import verdicts

ROOT = Path(__file__).parents[2]
needs_compiler = pytest.mark.skipif(
    shutil.which("cc") is None and shutil.which("gcc") is None, reason="there is no C compiler on this machine"
)


@pytest.fixture(scope="module")
def engine() -> Iterator[Engine]:
    with contenders.engine(core=0) as running:
        yield running


def load(tmp_path: Path, port: int, request: bytes, *arguments: str) -> dict[str, Any]:
    path = tmp_path / "request.http"
    path.write_bytes(request)
    argv = [program("load"), *arguments, "--port", str(port), "--request", path]
    done = subprocess.run([str(a) for a in argv], capture_output=True, timeout=30, check=True)
    said: dict[str, Any] = json.loads(done.stdout)
    return said


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("request_of", "stream", "tokens"),
    [(requests.whole, (), 0), (requests.burst, ("--stream",), 64), (requests.large, (), 0)],
)
def test_every_answer_of_the_mock_engine_is_whole(
    tmp_path: Path, engine: Engine, request_of: Any, stream: tuple[str, ...], tokens: int
) -> None:
    request = request_of(engine.ports[0], "none")
    said = load(tmp_path, engine.ports[1], request, "closed", "--connections", "3", "--seconds", "0.2", *stream)
    assert said["errors"] == 0, said["fault"]
    assert said["answered"] >= 3
    assert said["tokens"] >= said["in_time"] * tokens


@pytest.mark.slow
@needs_compiler
def test_paced_streams_keep_their_pace(tmp_path: Path, engine: Engine) -> None:
    request = requests.paced(engine.ports[0], "none")
    said = load(tmp_path, engine.ports[0], request, "closed", "--connections", "2", "--seconds", "1.5", "--stream")
    assert said["errors"] == 0, said["fault"]
    assert 18_000 < said["gap"]["p50"] < 25_000


@pytest.mark.slow
@needs_compiler
def test_a_steady_rate_is_kept(tmp_path: Path, engine: Engine) -> None:
    request = requests.whole(engine.ports[0], "none")
    arguments = ("rate", "--rate", "200", "--connections", "4", "--seconds", "0.5")
    said = load(tmp_path, engine.ports[0], request, *arguments)
    assert (said["answered"], said["errors"]) == (100, 0)


@pytest.mark.slow
@needs_compiler
@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (b"HTTP/1.1 503 Busy\r\ncontent-length: 5\r\n\r\nlater", "refused (status 503, 0 tokens) later"),
        (b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhalf", "the connection ended before the answer"),
        (
            b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: {"content":" t1"}\n\ndata: [DONE]\n\n',
            "a stream with tokens lost or doubled",
        ),
    ],
)
def test_the_load_generator_sees_faults(tmp_path: Path, answer: bytes, fault: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server = threading.Thread(target=_answer_each, args=(listener, answer), daemon=True)
        server.start()
        port = listener.getsockname()[1]
        said = load(
            tmp_path, port, requests.burst(port, "none"), "closed", "--seconds", "0.1", "--stream", "--tokens", "64"
        )
        listener.shutdown(socket.SHUT_RDWR)
        server.join(5)
    assert said["errors"] > 0
    assert said["answered"] == 0
    assert said["fault"].startswith(fault)


def _answer_each(listener: socket.socket, answer: bytes) -> None:
    while True:
        try:
            connection, _ = listener.accept()
        except OSError:
            return
        with connection:
            if connection.recv(1 << 16):
                connection.sendall(answer)


@pytest.mark.slow
@needs_compiler
def test_a_quick_run_of_the_edge_has_no_errors() -> None:
    argv = [sys.executable, "-m", "bench", "--quick", "--rounds", "1", "--contenders", "direct,edge", "--json"]
    done = subprocess.run([*argv, "--only", "requests,burst"], cwd=ROOT, capture_output=True, timeout=50)
    assert done.returncode == 0, done.stderr.decode()
    said = json.loads(done.stdout)
    assert said["errors"] == []
    for name in ("direct", "edge"):
        assert said["figures"][name]["requests_per_s"]["median"] > 0
        assert said["figures"][name]["chunks_per_s"]["median"] > 0


def test_a_missing_compiler_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bench.programs.BIN", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CC", raising=False)
    with pytest.raises(CannotBuild, match=r"bench/load\.c needs a C compiler and none is on the PATH"):
        program("load")


def cell(contender: str, workload: str, round: int = 0, **values: Any) -> Cell:
    given = {
        "seconds": 2.0,
        "answered": 100,
        "in_time": 100,
        "errors": 0,
        "tokens": 0,
        "all_tokens": 0,
        "bytes_sent": 0,
        "cpu_s": 0.01,
        "cpu_share": 0.5,
        "added_kb": 0,
        "others_share": 0.0,
    }
    return Cell(contender=contender, workload=workload, round=round, **{**given, **values})


def test_figures_are_medians_over_rounds() -> None:
    cells = [cell("edge", "requests", i, in_time=n) for i, n in enumerate((100, 900, 200))]
    found = figures(cells)["edge"]
    assert found["requests_per_s"] == Figure(100.0, 50.0, 450.0)
    assert found["cpu_us_per_request"].median == pytest.approx(100)
    assert "added_p50_us" not in found


def test_added_latency_is_against_the_direct_cell_of_the_same_round() -> None:
    cells = [cell("direct", "latency", i, latency=Spread(p, p)) for i, p in enumerate((100, 500))]
    cells += [cell("edge", "latency", i, latency=Spread(p, p)) for i, p in enumerate((300, 700))]
    assert figures(cells)["edge"]["added_p50_us"] == Figure(200, 200, 200)


def test_a_cell_with_errors_makes_a_sentence_and_no_figure() -> None:
    cells = [cell("edge", "requests", errors=3, fault="refused")]
    assert figures(cells) == {}
    assert errors(cells) == ["edge, requests, round 1: 3 of 103 requests failed; the first: refused"]


def test_a_target_without_its_peer_has_no_verdict() -> None:
    cells = [cell("direct", "paced", ttft=Spread(10, 20)), cell("edge", "paced", ttft=Spread(510, 9020))]
    judged = {v.target.title: v.reached for v in verdicts(figures(cells), quiet=True)}
    assert judged["200 paced streams, added TTFT p50"] is True
    assert judged["200 paced streams, added TTFT p99"] is False
    assert judged["200 paced streams, CPU"] is None


def test_who_falls_behind_a_paced_load_has_no_verdict_on_its_cpu() -> None:
    def judged(edge_tokens: int) -> bool | None:
        tokens = {"direct": 20_000, "nginx": 20_000, "edge": edge_tokens}
        cells = [cell(name, "paced", tokens=n, all_tokens=n, cpu_s=0.2) for name, n in tokens.items()]
        return {v.target.title: v.reached for v in verdicts(figures(cells), quiet=True)}["200 paced streams, CPU"]

    assert judged(19_900) is True
    assert judged(12_000) is None


def test_a_busy_machine_has_no_verdict_on_what_the_clock_says() -> None:
    cells = [cell("direct", "paced", ttft=Spread(10, 20)), cell("edge", "paced", ttft=Spread(510, 520), added_kb=200)]
    judged = {v.target.title: v.reached for v in verdicts(figures(cells), quiet=False)}
    assert judged["200 paced streams, added TTFT p50"] is None
    assert judged["memory a stream"] is True


@pytest.mark.slow
@needs_compiler
def test_two_versions_by_turns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """Here both are this one: each is said with what it took."""
    assert versions.main([str(ROOT), f"{ROOT}/bench/..", "--only", "requests", "--rounds", "1"]) == 0
    said = capsys.readouterr().out
    assert said.count(" µs (") == 2
    assert "1.00 ×" in said
