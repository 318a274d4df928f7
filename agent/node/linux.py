"""`Host` on Linux: /proc, pidfds, sessions."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import time
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from agent.core import cards, proc
from agent.core.holders import InUse
from agent.core.last_words import Exit
from agent.core.readiness import Response
from agent.node import probe
from agent.node.cardwatch import CardWatch
from agent.node.host import Identity, Launch, LaunchFailed, Marked

_POLL_S = 0.1
_LOOK_S = 30.0
"""For the driver to tell who holds memory."""
_HERTZ = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class LinuxProcess:
    """Watched through a pidfd, so that its end is noticed at once, also when it is not our child."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity

    async def ended(self) -> Exit:
        await _gone(self.identity)
        stat = _stat(self.identity.pid)
        if stat is None or stat.start_ticks != self.identity.start_ticks:
            return Exit()
        try:  # an agent that started itself again has children that it did not start
            pid, status = os.waitpid(self.identity.pid, os.WNOHANG)  # noqa: ASYNC222 - it has ended
        except ChildProcessError:
            return Exit()
        if pid == 0:
            return Exit()
        code = os.waitstatus_to_exitcode(status)
        return Exit(signal=-code) if code < 0 else Exit(status=code)


class LinuxHost:
    """See `Host`."""

    def __init__(self, watch: CardWatch | None = None) -> None:
        self._cards = watch or CardWatch()
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text().strip()

    def boot_id(self) -> str:
        return self._boot_id

    def spawn(self, launch: Launch) -> LinuxProcess:
        log = _open_log(launch.log)
        user: dict[str, object] = {}
        if launch.user is not None:
            user = {"user": launch.user, "group": _group_of(launch.user), "extra_groups": []}
        try:
            child = subprocess.Popen(  # type: ignore[call-overload]
                launch.argv,
                env=dict(launch.env),
                cwd=launch.cwd,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                umask=0o077,
                **user,
            )
        except (OSError, ValueError, subprocess.SubprocessError) as e:
            raise LaunchFailed(f"{launch.argv[0]} could not be started: {e}") from None
        finally:
            os.close(log)
        found = _stat(child.pid)  # it is our child: until we wait for it its number cannot be another's
        ticks = found.start_ticks if found is not None else 0
        child.returncode = 0  # it is waited for by its number: Popen, which may go before it, is not to mind
        return LinuxProcess(Identity(child.pid, ticks, self._boot_id))

    def find(self, identity: Identity) -> LinuxProcess | None:
        return LinuxProcess(identity) if self._lives(identity) else None

    def age_s(self, identity: Identity) -> float:
        return max(0.0, time.clock_gettime(time.CLOCK_BOOTTIME) - identity.start_ticks / _HERTZ)

    def marked(self, home_id: str) -> tuple[Marked, ...]:
        found = []
        for pid in _pids():
            try:
                environ = Path(f"/proc/{pid}/environ").read_bytes()
            except OSError:
                continue
            mark = proc.mark(environ)
            if mark is None or mark.home_id != home_id:
                continue
            stat = _stat(pid)
            if stat is not None and not stat.ended:
                found.append(Marked(self._identity(stat), mark))
        return tuple(found)

    def members(self, groups: Mapping[str, Iterable[Identity]]) -> dict[str, tuple[Identity, ...]]:
        stats = {stat.pid: stat for stat in map(_stat, _pids()) if stat is not None}
        found = {}
        for name, leaders in groups.items():
            mine = self._members({leader for leader in leaders if leader.boot_id == self._boot_id}, stats)
            found[name] = tuple(self._identity(stats[pid]) for pid in sorted(mine) if not stats[pid].ended)
        return found

    def signal(self, identity: Identity, number: int) -> bool:
        try:
            fd = os.pidfd_open(identity.pid)
        except OSError:
            return False
        try:
            if not self._lives(identity):  # asked while we hold it: it cannot become another between the two
                return False
            signal.pidfd_send_signal(fd, number)
        except OSError:
            return False
        finally:
            os.close(fd)
        return True

    def resident_bytes(self, processes: Iterable[Identity]) -> int | None:
        found = []
        for p in processes:
            with contextlib.suppress(OSError):
                pages = proc.resident_pages(Path(f"/proc/{p.pid}/statm").read_text())
                if pages is not None:
                    found.append(pages * _PAGE)
        return sum(found) if found else None

    def listens(self, port: int, processes: Iterable[Identity]) -> bool | None:
        inodes: frozenset[int] = frozenset()
        for table in ("/proc/net/tcp", "/proc/net/tcp6"):
            with contextlib.suppress(OSError):
                inodes |= proc.listening_inodes(Path(table).read_text(), port)
        if not inodes:
            return None
        names = {f"socket:[{inode}]" for inode in inodes}
        hidden = False
        for p in processes:
            folder = f"/proc/{p.pid}/fd"
            try:
                entries = os.listdir(folder)
            except FileNotFoundError:
                continue
            except OSError:
                hidden = True
                continue
            for entry in entries:
                with contextlib.suppress(OSError):
                    if os.readlink(f"{folder}/{entry}") in names:
                        return True
        return None if hidden else False

    def device_memory(self, devices: Collection[int], processes: Iterable[Identity]) -> Mapping[int, int | None] | None:
        held = self._cards.held(_LOOK_S)
        if held is None or any(d not in held for d in devices):
            return None
        mine = {p.pid for p in processes}
        found = {d: cards.sum_of(n for pid, n in held[d].items() if pid in mine) for d in devices}
        if all(n != 0 for n in found.values()):
            return found
        # A number that is no process here comes from another pid namespace, and ours may be among those.
        strangers = any(not Path(f"/proc/{pid}").exists() for d in devices if found[d] == 0 for pid in held[d])
        return None if strangers else found

    def device_use(self, devices: Collection[int]) -> tuple[InUse, ...] | None:
        found = self._cards.use(devices, _LOOK_S)
        if found is None:
            return None
        return tuple(replace(u, holders=tuple(replace(h, name=_name(h.pid)) for h in u.holders)) for u in found)

    def device_names(self, devices: Collection[int]) -> tuple[str, ...] | None:
        return self._cards.names(devices, _LOOK_S)

    def port_problem(self, host: str, port: int) -> str | None:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind((host, port))
            except OSError as e:
                return e.strerror or str(e)
        return None

    async def get(self, host: str, port: int, path: str, key: str) -> Response | None:
        return await probe.get(host, port, path, key)

    async def connects(self, host: str, port: int) -> bool | None:
        return await probe.connects(host, port)

    @staticmethod
    def _members(leaders: set[Identity], stats: Mapping[int, proc.Stat]) -> set[int]:
        # A number that belongs to another process today began no session of ours.
        began = {i.pid for i in leaders if i.pid not in stats or stats[i.pid].start_ticks == i.start_ticks}
        mine = {s.pid for s in stats.values() if s.session in began}
        while True:
            more = {s.pid for s in stats.values() if s.parent in mine} - mine
            if not more:
                return mine
            mine |= more

    def _identity(self, stat: proc.Stat) -> Identity:
        return Identity(stat.pid, stat.start_ticks, self._boot_id)

    def _lives(self, identity: Identity) -> bool:
        if identity.boot_id != self._boot_id:
            return False
        found = _stat(identity.pid)
        return found is not None and not found.ended and found.start_ticks == identity.start_ticks


def reap() -> None:
    """Takes leave of children that ended while this process became another program. Only before it starts any."""
    with contextlib.suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdigit())


def _name(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text(errors="replace").strip() or None
    return None


def _stat(pid: int) -> proc.Stat | None:
    try:
        return proc.stat(Path(f"/proc/{pid}/stat").read_text(errors="replace"))
    except OSError:
        return None


async def _gone(identity: Identity) -> None:
    """Returns when the process has ended (a zombie has)."""
    try:
        fd = os.pidfd_open(identity.pid)
    except ProcessLookupError:
        return
    except OSError:  # an old kernel, or a filter in the way
        await _gone_by_polling(identity)
        return
    try:
        stat = _stat(identity.pid)
        if stat is None or stat.start_ticks != identity.start_ticks:
            return
        loop = asyncio.get_running_loop()
        event = asyncio.Event()
        loop.add_reader(fd, event.set)
        try:
            await event.wait()
        finally:
            loop.remove_reader(fd)
    finally:
        os.close(fd)


async def _gone_by_polling(identity: Identity) -> None:
    while True:
        stat = _stat(identity.pid)
        if stat is None or stat.ended or stat.start_ticks != identity.start_ticks:
            return
        await asyncio.sleep(_POLL_S)


def _open_log(path: Path) -> int:
    """A log that cannot be opened (a full disk, a closed folder) must not keep an engine from running."""
    try:
        return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)


def _group_of(user: str) -> int:
    import pwd

    try:
        return pwd.getpwnam(user).pw_gid
    except KeyError:
        raise LaunchFailed(f"the engine user {user!r} does not exist on this machine") from None
