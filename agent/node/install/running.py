"""Runs the programs that an installation needs: checks of what was installed, uv, the system's package manager."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.node.install import libraries
from agent.node.install.failures import Failed
from agent.plans.steps import Check, Program

_DROPPED = re.compile(r"(PYTHON|LD_|VIRTUAL_ENV|LLMGW_|CONDA)")
_APT_S = 900.0
_TAIL = 300


@dataclass(frozen=True, slots=True)
class Runner:
    """`user`: whom engines run as, and so checks too; `packages`: whether the system's may be installed; `holds`: a
    descriptor that children keep open."""

    user: str | None = None
    packages: bool = False
    holds: tuple[int, ...] = ()

    def check(self, folder: Path, check: Check) -> None:
        """Raises `Failed`."""
        program = program_of(folder, check.argv[0])
        with tempfile.TemporaryDirectory(prefix="llmgw-check-") as home:
            as_user: dict[str, object] = {}
            if self.user is not None and os.geteuid() == 0:
                found = _account(self.user)
                os.chown(home, found.pw_uid, found.pw_gid)
                as_user = {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
            env = {
                **cleaned(os.environ),
                "HOME": home,
                "TMPDIR": home,
                "LC_ALL": "C",
                "PYTHONDONTWRITEBYTECODE": "1",
                "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            }
            try:
                done = subprocess.run(  # type: ignore[call-overload]
                    [str(program), *check.argv[1:]],
                    cwd=home,
                    env=env,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    timeout=check.timeout_s,
                    check=False,
                    **as_user,
                )
            except subprocess.TimeoutExpired:
                raise Failed(
                    "check_failed", f"{check.otherwise}: it gave no answer within {check.timeout_s:g} s", passed=True
                ) from None
            except OSError as e:
                raise Failed("check_failed", f"{check.otherwise}: it cannot be run: {e}", passed=True) from None
        said = done.stdout.decode(errors="replace")
        if done.returncode == 0 and re.search(check.expect, said):
            return
        last = _last(said)
        if check.later and re.search(check.later, said):
            raise Failed("cards_busy", f"{check.otherwise} now: {last}")
        ended = f"it ended with status {done.returncode}: " if done.returncode else "it says: "
        raise Failed("check_failed", f"{check.otherwise}: {ended}{last}", passed=True)

    def need(self, program: Program) -> None:
        """The program is there, or comes with its package. Raises `Failed`."""
        if shutil.which(program.name) is not None:
            return
        if self.install([program.package]) and shutil.which(program.name) is not None:
            return
        raise Failed(
            "missing_program",
            f"{program.name} is not installed, and {program.why}",
            f"apt-get install -y {program.package}",
            passed=True,
        )

    def look(self, folder: Path, patterns: Sequence[str]) -> None:
        """Nothing is missing, once packages that bring it were installed. Raises `Failed`."""
        try:
            libraries.look(folder, patterns)
        except Failed as e:
            packages = e.reason.command.partition("install -y ")[2].split()
            if e.reason.code != "missing_library" or not packages or not self.install(packages):
                raise
            libraries.forget()
            libraries.look(folder, patterns)

    def install(self, packages: Sequence[str]) -> bool:
        """From the machine's own package sources; False where that is not ours to do, or fails."""
        apt = shutil.which("apt-get")
        if not self.packages or apt is None or os.geteuid() != 0:
            return False
        env = {**cleaned(os.environ), "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}
        wanted = [apt, "install", "-y", "--no-install-recommends", *packages]
        return self.quiet(wanted, env) or (self.quiet([apt, "update"], env) and self.quiet(wanted, env))

    def quiet(self, argv: Sequence[str], env: Mapping[str, str]) -> bool:
        try:
            done = subprocess.run(
                argv,
                env=dict(env),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=_APT_S,
                check=False,
                pass_fds=self.holds,
            )
        except (OSError, subprocess.TimeoutExpired):
            return False
        return done.returncode == 0


def program_of(folder: Path, name: str) -> Path:
    """The one executable of that name; an environment's own comes first. Raises `Failed`."""
    own = folder / "bin" / name
    if own.exists() and (folder / "pyvenv.cfg").exists():
        return own
    found = [p for p in libraries.found(folder, name) if os.access(p, os.X_OK) and p.is_file()]
    if len(found) != 1:
        many = f"{len(found)} programs" if found else "no program"
        raise Failed("no_program", f"what was unpacked holds {many} named {name}", passed=True)
    return found[0]


def cleaned(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if not _DROPPED.match(name)}


def _account(user: str) -> pwd.struct_passwd:
    try:
        return pwd.getpwnam(user)
    except KeyError:
        raise Failed("no_engine_user", f"the engine user {user!r} does not exist on this machine") from None


def _last(said: str) -> str:
    lines = [line.strip() for line in said.strip().splitlines() if line.strip()]
    return lines[-1][:_TAIL] if lines else "nothing"
