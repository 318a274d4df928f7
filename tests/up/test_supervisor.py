"""The supervisor on real processes: what dies comes back, what was left is found, what ends ends in time."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from llmgw.cluster.errors import Conflict
from llmgw.up import lock, sockets
from llmgw.up.components import Component
from llmgw.up.supervisor import Supervisor, end_leftovers, leftovers

SLEEPER = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")
STUBBORN = (
    sys.executable,
    "-c",
    "import signal,time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); time.sleep(60)",
)


@pytest.fixture
def said() -> list[str]:
    return []


@pytest.fixture
def supervisor(tmp_path: Path, said: list[str]) -> Iterator[Supervisor]:
    one = Supervisor(tmp_path, tmp_path, dict(os.environ), {}, said.append)
    yield one
    for name in list(one.restarts()):
        one.end(name, 0.5)


def until(condition: Callable[[], bool], supervisor: Supervisor | None = None, seconds: float = 10) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        if supervisor:
            supervisor.tick()
        time.sleep(0.01)


def test_what_is_killed_comes_back_and_it_says_so(supervisor: Supervisor, said: list[str]) -> None:
    supervisor.start(Component("one", SLEEPER))
    first = supervisor.pid("one")
    assert first is not None
    os.kill(first, signal.SIGKILL)
    until(lambda: supervisor.pid("one") not in (None, first), supervisor)
    assert said == ["one was ended by SIGKILL; starting it again in 0.2 s"]
    assert supervisor.restarts() == {"one": 1}


def test_what_keeps_dying_is_started_less_and_less_often_with_its_last_words(
    supervisor: Supervisor, said: list[str]
) -> None:
    supervisor.start(Component("bad", (sys.executable, "-c", "raise SystemExit('no such thing')")))
    until(lambda: len(said) >= 3, supervisor)
    assert said[0] == "bad ended with status 1; starting it again in 0.2 s"
    assert said[1] == "bad ended with status 1; starting it again in 0.4 s (its log ends: no such thing)"
    assert "0.8 s" in said[2]


def test_ending_waits_for_the_grace_and_then_kills(supervisor: Supervisor, said: list[str], tmp_path: Path) -> None:
    supervisor.start(Component("stubborn", STUBBORN, grace_s=0.3))
    pid = supervisor.pid("stubborn")
    assert pid is not None
    until(lambda: (tmp_path / "stubborn.log").read_text() == "up\n")
    supervisor.end("stubborn")
    assert said == ["stubborn did not end by itself in 0.3 s and was killed"]
    assert not Path(f"/proc/{pid}").exists()


def test_a_killed_supervisors_children_are_found_and_ended_and_nobody_elses(tmp_path: Path) -> None:
    mine, other = tmp_path / "mine", tmp_path / "other"
    said: list[str] = []
    for home in (mine, other):
        home.mkdir()
    ours = Supervisor(mine, mine, dict(os.environ), {}, said.append)
    theirs = Supervisor(other, other, dict(os.environ), {}, said.append)
    ours.start(Component("web", SLEEPER))
    ours.start(Component("redis", SLEEPER))
    theirs.start(Component("web", SLEEPER))
    try:
        for home, names in ((mine, 2), (other, 1)):
            until(lambda home=home, names=names: len(list(leftovers(home))) == names)
        end_leftovers(mine, said.append)
        assert said == ["ending what an earlier run left: web", "ending what an earlier run left: redis"]
        assert ours.pid("web") is None
        assert ours.pid("redis") is None
        assert theirs.pid("web") is not None
    finally:
        theirs.end("web")
        ours.end("web")
        ours.end("redis")


def test_a_taken_port_names_its_holder_and_the_variable() -> None:
    held = sockets.bind_all([sockets.Wanted("edge", "127.0.0.1", 0, "PORT")])["edge"]
    port = held.getsockname()[1]
    with pytest.raises(Conflict) as refused:
        sockets.bind_all([sockets.Wanted("edge", "127.0.0.1", port, "PORT")])
    name = Path("/proc/self/comm").read_text().strip()
    assert str(refused.value) == (
        f"port {port} (edge) is taken by {name} (pid {os.getpid()}); choose another with PORT=…"
    )
    held.close()


def test_a_listener_survives_its_process(tmp_path: Path) -> None:
    serve = (
        sys.executable,
        "-c",
        "import os,socket; s=socket.socket(fileno=int(os.environ['LLMGW_LISTEN_FD']))\n"
        "while True:\n c,_=s.accept(); c.sendall(b'%d' % os.getpid()); c.close()",
    )
    bound = sockets.bind_all([sockets.Wanted("edge", "127.0.0.1", 0, "PORT")])
    address = bound["edge"].getsockname()
    supervisor = Supervisor(tmp_path, tmp_path, dict(os.environ), bound, lambda sentence: None)
    supervisor.start(Component("edge", serve, socket="edge"))

    def ask() -> int:
        import socket

        with socket.create_connection(address, timeout=5) as client:
            client.settimeout(0.05)
            while True:
                supervisor.tick()
                try:
                    return int(client.recv(20) or 0)
                except TimeoutError:
                    continue

    try:
        first = ask()
        os.kill(first, signal.SIGKILL)
        until(lambda: supervisor.pid("edge") != first)
        second = ask()  # waits in the backlog until the next process accepts it
        assert second not in (0, first)
    finally:
        supervisor.end("edge")
        bound["edge"].close()


def test_one_up_a_home(tmp_path: Path) -> None:
    assert lock.holder(tmp_path) is None
    with lock.held(tmp_path):
        assert lock.holder(tmp_path) == os.getpid()
        code = f"from pathlib import Path; from llmgw.up import lock\nwith lock.held(Path({str(tmp_path)!r})): pass"
        other = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert f"already runs from this folder (pid {os.getpid()})" in other.stderr
    assert lock.holder(tmp_path) is None


def test_the_log_of_one_that_runs_on_is_kept_short(
    supervisor: Supervisor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("llmgw.up.supervisor._LOG_MOST_BYTES", 40_000)
    monkeypatch.setattr("llmgw.up.supervisor._LOG_KEPT_BYTES", 10_000)
    monkeypatch.setattr("llmgw.up.supervisor._LOGS_EVERY_S", 0.1)
    chatty = "import time\nfor i in range(10**9): print('line', i, flush=True); time.sleep(0.0001)"
    supervisor.start(Component("chatty", (sys.executable, "-c", chatty)))
    log = tmp_path / "chatty.log"
    until(lambda: (tmp_path / "chatty.log.1").exists(), supervisor)
    assert b"line" in (tmp_path / "chatty.log.1").read_bytes()
    until(lambda: 0 < log.stat().st_size < 40_000, supervisor)
    assert log.read_bytes()[:1] != b"\0"  # its writer goes on at the new end
    assert supervisor.restarts() == {"chatty": 0}
