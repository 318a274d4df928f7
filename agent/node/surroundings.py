"""What engines on cards and fabrics need of the machine around them: modules, limits, NVIDIA's daemons."""

from __future__ import annotations

import re
import resource
from pathlib import Path

from agent.node import tools

_ASK_S = 5.0
STOPPED = "stopped"
_VERSION = re.compile(r"\d+\.\d+(?:\.\d+)?")


def modules(root: Path = Path("/")) -> frozenset[str] | None:
    try:
        lines = (root / "proc/modules").read_text().splitlines()
    except OSError:
        return None
    return frozenset(line.split(" ", 1)[0] for line in lines)


def memlock_bytes() -> int | None:
    """What an engine that this process starts may pin; -1 without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    return -1 if soft == resource.RLIM_INFINITY else soft


def fabric_manager(root: Path = Path("/")) -> str | None:
    return _daemon("nv-fabricmanager", root)


def imex(root: Path = Path("/")) -> str | None:
    return _daemon("nvidia-imex", root)


def imex_ready(root: Path = Path("/")) -> bool | None:
    """Whether it runs and has a channel; None where it is not installed."""
    if not _present("nvidia-imex", root):
        return None
    return _runs("nvidia-imex", root) and imex_channels(root) is True


def imex_channels(root: Path = Path("/")) -> bool | None:
    folder = root / "dev/nvidia-caps-imex-channels"
    try:
        return any(folder.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return None


def nftables() -> str | None:
    """The machine's firewall as nft tells it; only root may ask."""
    return tools.said(["nft", "-j", "list", "ruleset"], _ASK_S)


def _daemon(name: str, root: Path) -> str | None:
    """Its version where it runs, `stopped` where it is installed and does not, None where it is not there."""
    if not _present(name, root):
        return None
    if not _runs(name, root):
        return STOPPED
    told = tools.said([name, "--version"], _ASK_S) if root == Path("/") else None
    found = _VERSION.search(told or "")
    return found[0] if found else "unknown"


def _present(name: str, root: Path) -> bool:
    return any((root / folder / name).exists() for folder in ("usr/bin", "usr/local/bin", "opt/nvidia/bin"))


def _runs(name: str, root: Path) -> bool:
    """By /proc: a container has no systemd to ask. The kernel cuts a name after 15 characters."""
    for folder in (root / "proc").glob("[0-9]*"):
        try:
            if (folder / "comm").read_text().strip() == name[:15]:
                return True
        except OSError:
            continue
    return False
