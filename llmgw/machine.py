"""This machine's own settings: a file and the environment in, one `Machine` or every problem out.

What one process must know before it can reach the store is here and nowhere else (`config.yaml` in the state
directory, then the environment over it). Everything that the whole cluster shares is a settings revision in
the store (`llmgw.cluster`). Needs no Django: the edge and the exporter read it too.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from ipaddress import ip_network
from pathlib import Path
from typing import Any

import yaml

from agent.wire.reason import Reason

# A unix socket's path may have 107 bytes (sun_path); the longest name that we put into the folder is 20.
_LONGEST_RUN_DIR = 85


@dataclass(frozen=True, slots=True)
class Machine:
    """Where things are on this machine. Paths are absolute; ports are TCP."""

    home: Path
    """The one state directory: store, secrets, certificates, Redis data, weights, spool, logs."""
    host: str = "127.0.0.1"
    port: int = 8080
    link_port: int = 7443
    metrics_port: int = 9091
    store: str = ""
    """Empty: SQLite in `home`. Else `postgresql://user:password@host/name`."""
    redis: str = ""
    """Empty: the one that `up` starts, on a unix socket. Else `redis://…`, `rediss://…` or `unix://…`."""
    public_url: str = ""
    """How people reach the portal (`https://llm.example.com`), when a proxy stands before it."""
    allowed_hosts: tuple[str, ...] = ()
    trusted_proxies: tuple[str, ...] = ()
    """Networks (`10.0.0.0/24`) and addresses whose `X-Forwarded-For` and `-Proto` are believed."""
    link_names: tuple[str, ...] = ()
    """Further names and addresses that agents dial, for the link's certificate."""
    ca_file: str = ""
    """PEM certificates of authorities that are trusted beside the system's, for models served elsewhere."""
    compiled: str = ""
    """Where compiled forms of the inference path lie. Empty: in `home`. `off`: they are not taken."""
    node_id: str = ""
    """This machine's node id under `up`; empty: its host name."""
    language: str = "en"
    time_zone: str = "UTC"
    debug: bool = False
    rehearsal: bool = False
    """Its nodes are only pretended: every page says so."""
    tracing_endpoint: str = ""
    """The OpenTelemetry collector, OTLP over HTTP: `http://otel.internal:4318`. Empty: nothing is traced."""
    tracing_sample_ratio: float = 1.0
    """Of requests that come without a decision of their own."""

    @property
    def run_dir(self) -> Path:
        """Sockets and pid files, mode 0700; beside the home where its path is short enough for a socket."""
        inside = self.home / "run"
        if len(os.fsencode(inside)) <= _LONGEST_RUN_DIR:
            return inside
        digest = hashlib.sha256(os.fsencode(self.home)).hexdigest()[:12]
        return Path(tempfile.gettempdir()) / f"llmgw-{os.getuid()}-{digest}"

    @property
    def database(self) -> Path:
        return self.home / "db.sqlite3"

    @property
    def secrets_dir(self) -> Path:
        return self.home / "secrets"

    @property
    def pki_dir(self) -> Path:
        return self.home / "pki"

    @property
    def spool_dir(self) -> Path:
        return self.home / "spool"

    @property
    def snapshot_dir(self) -> Path:
        return self.home / "snapshot"

    @property
    def logs_dir(self) -> Path:
        return self.home / "logs"

    @property
    def compiled_dir(self) -> Path | None:
        """None: compiled forms are not taken."""
        if self.compiled == "off":
            return None
        return Path(self.compiled).absolute() if self.compiled else self.home / "compiled"

    @property
    def agent_dir(self) -> Path:
        return self.home / "agent"

    @property
    def web_socket(self) -> Path:
        return self.run_dir / "web.sock"

    @property
    def redis_url(self) -> str:
        return self.redis or f"unix://{self.run_dir / 'redis.sock'}"

    @property
    def local_host(self) -> str:
        """Where this machine reaches its own listeners."""
        return "127.0.0.1" if self.host in ("0.0.0.0", "::") else self.host  # noqa: S104 - a comparison

    @property
    def portal_url(self) -> str:
        if self.public_url:
            return self.public_url
        return f"http://{self.local_host}:{self.port}"


_VARIABLES = {
    "HOST": "host",
    "PORT": "port",
    "LINK_PORT": "link_port",
    "METRICS_PORT": "metrics_port",
    "LLMGW_STORE": "store",
    "LLMGW_REDIS": "redis",
    "LLMGW_PUBLIC_URL": "public_url",
    "LLMGW_ALLOWED_HOSTS": "allowed_hosts",
    "LLMGW_TRUSTED_PROXIES": "trusted_proxies",
    "LLMGW_LINK_NAMES": "link_names",
    "LLMGW_CA_FILE": "ca_file",
    "LLMGW_COMPILED": "compiled",
    "LLMGW_NODE_ID": "node_id",
    "LLMGW_LANGUAGE": "language",
    "LLMGW_TIME_ZONE": "time_zone",
    "LLMGW_DEBUG": "debug",
    "LLMGW_REHEARSAL": "rehearsal",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "tracing_endpoint",
    "OTEL_TRACES_SAMPLER_ARG": "tracing_sample_ratio",
}
_OURS_FIRST = ("tracing_endpoint", "tracing_sample_ratio")
"""Variables that are not ours alone: they hold where the file says nothing."""
_BLOCKS = {"tracing": ("endpoint", "sample_ratio")}
"""What the file writes as a block of its own."""
_PORTS = ("port", "link_port", "metrics_port")
_LISTS = ("allowed_hosts", "trusted_proxies", "link_names")
_SCHEMES = {
    "store": ("postgresql://", "postgres://"),
    "redis": ("redis://", "rediss://", "unix://"),
    "tracing_endpoint": ("http://", "https://"),
}


def read(environ: Mapping[str, str] = os.environ, cwd: Path | None = None) -> Machine | list[Reason]:
    """This machine's settings, or every problem that they have."""
    home = Path(environ.get("LLMGW_HOME") or (cwd or Path.cwd()) / ".llmgw").expanduser().absolute()
    values, problems = _file(home / "config.yaml")
    for variable, name in _VARIABLES.items():
        if environ.get(variable) and not (name in _OURS_FIRST and name in values):
            values[name] = environ[variable]
    parsed: dict[str, Any] = {}
    for name, value in values.items():
        try:
            parsed[name] = _parse(name, value)
        except ValueError as e:
            problems.append(Reason("bad_machine_setting", str(e)))
    if problems:
        return problems
    return Machine(home=home, **parsed)


def require() -> Machine:
    """`read()` for an entry point: exits 2 with the problems, a line each."""
    match read():
        case Machine() as machine:
            return machine
        case problems:
            raise SystemExit("\n".join(f"llmgw: {p.sentence}" for p in problems))


def _file(path: Path) -> tuple[dict[str, Any], list[Reason]]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return {}, []
    try:
        found = yaml.safe_load(text) or {}
    except yaml.YAMLError as e:
        return {}, [Reason("bad_machine_file", f"{path} is not YAML: {' '.join(str(e).split())}")]
    if not isinstance(found, dict):
        return {}, [Reason("bad_machine_file", f"{path} must hold names and values, not a {type(found).__name__}")]
    found = dict(_flat(found))
    known = set(_VARIABLES.values())
    problems = [
        Reason("unknown_machine_setting", f"{path} has {k!r}, which is none of {', '.join(sorted(known))}")
        for k in found
        if k not in known
    ]
    return {k: v for k, v in found.items() if k in known}, problems


def _flat(found: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """`tracing: {endpoint: …}` is `tracing_endpoint`."""
    for name, value in found.items():
        if name in _BLOCKS and isinstance(value, dict):
            yield from ((f"{name}_{inner}", v) for inner, v in value.items())
        else:
            yield name, value


def _parse(name: str, value: Any) -> Any:
    if name == "tracing_sample_ratio":
        try:
            ratio = float(value)
        except (TypeError, ValueError):
            ratio = -1.0
        if not 0.0 <= ratio <= 1.0:
            raise ValueError(f"{name} must be a share between 0 and 1, and is {value!r}")
        return ratio
    if name in _PORTS:
        try:
            port = int(value)
        except (TypeError, ValueError):
            raise ValueError(f"{name} must be a TCP port, and is {value!r}") from None
        if not 0 <= port <= 65535:
            raise ValueError(f"{name} must be a TCP port between 0 and 65535, and is {port}")
        return port
    if name in _LISTS:
        parts = value.split(",") if isinstance(value, str) else list(value)
        found = tuple(str(p).strip() for p in parts if str(p).strip())
        for part in found if name == "trusted_proxies" else ():
            try:
                ip_network(part)
            except ValueError:
                raise ValueError(f"{name} holds addresses and networks like 10.0.0.0/24, and not {part!r}") from None
        return found
    if name in ("debug", "rehearsal"):
        return str(value).lower() in ("1", "true", "yes", "on")
    if name in _SCHEMES and not str(value).startswith(_SCHEMES[name]):
        raise ValueError(f"{name} must start with one of {', '.join(_SCHEMES[name])}")
    return str(value)
