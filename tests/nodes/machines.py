"""Machines with systemd, each a booted Debian in a network namespace of its own, on one bridge.

They need root, systemd-nspawn and a root file system (`NODE_BASE`; `docs/development.md` says how one is made)."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

BRIDGE, GATEWAY, SUBNET = "br-llmgw-t", "10.77.93.1", 24
_BOOT_S = 60.0


def missing() -> str | None:
    """Why no machine can be had here; None where one can."""
    base = os.environ.get("NODE_BASE", "")
    if not base:
        return "NODE_BASE names no root file system (docs/development.md: machines with systemd)"
    if os.getuid() != 0 or shutil.which("systemd-nspawn") is None:
        return "machines with systemd need root and systemd-nspawn"
    if not (Path(base) / "lib/systemd/systemd").exists():
        return f"{base} holds no root file system with systemd"
    return None


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


@dataclass
class Machine:
    """One machine; `address` is on the bridge. What it writes goes, with it, into `folder`."""

    name: str
    address: str
    folder: Path
    shared: Path
    """Seen inside as /srv/shared, read-only."""
    process: subprocess.Popen[bytes] | None = None
    made: list[Callable[[], object]] = field(default_factory=list)

    @property
    def root(self) -> Path:
        return self.folder / "root"

    def start(self) -> None:
        upper, work = self.folder / "upper", self.folder / "work"
        for folder in (upper, work, self.root):
            folder.mkdir(parents=True)
        layers = f"lowerdir={os.environ['NODE_BASE']},upperdir={upper},workdir={work}"
        subprocess.run(["mount", "-t", "overlay", "overlay", "-o", layers, str(self.root)], check=True)
        self.made.append(lambda: subprocess.run(["umount", "-l", str(self.root)], check=False))
        (self.root / "etc/hostname").write_text(f"{self.name}\n")
        _ip("netns", "add", self.name)
        self.made.append(lambda: subprocess.run(["ip", "netns", "del", self.name], check=False, capture_output=True))
        _ip("link", "add", f"v-{self.name}", "type", "veth", "peer", "name", "eth0", "netns", self.name)
        _ip("link", "set", f"v-{self.name}", "master", BRIDGE, "up")
        _ip("-n", self.name, "addr", "add", f"{self.address}/{SUBNET}", "dev", "eth0")
        for device in ("lo", "eth0"):
            _ip("-n", self.name, "link", "set", device, "up")
        self.boot()

    def boot(self) -> None:
        with open(self.folder / "console.log", "ab") as console:
            self.process = subprocess.Popen(
                [
                    "systemd-nspawn",
                    *("-D", str(self.root), "--boot", f"--machine={self.name}", "--register=no", "--keep-unit"),
                    *(f"--network-namespace-path=/run/netns/{self.name}", "--console=pipe", "--resolv-conf=off"),
                    *("--kill-signal=SIGRTMIN+3", f"--bind-ro={self.shared}:/srv/shared"),
                    "--capability=CAP_NET_ADMIN,CAP_NET_RAW",
                ],
                stdin=subprocess.DEVNULL,
                stdout=console,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        deadline = time.monotonic() + _BOOT_S
        while "running" not in (state := self.run("systemctl is-system-running", check=False)):
            if "degraded" in state:
                break
            assert time.monotonic() < deadline, (self.folder / "console.log").read_text(errors="replace")[-2000:]
            time.sleep(0.2)

    def reboot(self) -> None:
        """As an operator does it: systemd stops everything in order. nspawn then ends with 133 and is started again."""
        assert self.process is not None
        self.run("systemctl reboot", check=False)
        assert self.process.wait(120) == 133  # what does not end by itself is killed after 90 s
        self.boot()

    def unplug(self) -> None:
        """The network cable: what is sent to it is answered by nobody."""
        _ip("link", "set", f"v-{self.name}", "down")

    def plug_in(self) -> None:
        _ip("link", "set", f"v-{self.name}", "up")

    def power_off(self) -> None:
        """At once, and nobody is told."""
        assert self.process is not None
        leader = self._init()
        assert leader is not None
        self.unplug()
        os.kill(leader, signal.SIGKILL)
        self.process.wait(60)

    def power_on(self) -> None:
        self.plug_in()
        self.boot()

    def run(self, command: str, *, check: bool = True, timeout_s: float = 300) -> str:
        """What `command` prints, run inside by a shell as root."""
        leader = self._init()
        if leader is None:
            assert not check, f"{self.name} does not run"
            return ""
        done = subprocess.run(
            ["nsenter", "-t", str(leader), "-a", "--", "/bin/sh", "-c", command],
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"},
        )
        assert done.returncode == 0 or not check, f"{self.name}: {shlex.quote(command)}: {done.stdout}{done.stderr}"
        return done.stdout

    def _init(self) -> int | None:
        """The pid, out here, of its systemd."""
        if self.process is None or self.process.poll() is not None:
            return None
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next((int(pid) for pid in children if _is_init(int(pid))), None)

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(30)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        for undo in reversed(self.made):
            undo()


def _is_init(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() in ("systemd", "init")
    except OSError:
        return False


def bridge_up() -> None:
    _ip("link", "add", BRIDGE, "type", "bridge")
    _ip("addr", "add", f"{GATEWAY}/{SUBNET}", "dev", BRIDGE)
    _ip("link", "set", BRIDGE, "up")


def bridge_down() -> None:
    subprocess.run(["ip", "link", "del", BRIDGE], check=False, capture_output=True)
