"""`agent.yaml`: only what an agent must know before it can reach the control plane. One `Settings` or every problem.

node_id: n1
server: wss://10.0.0.1:7443/agent/link
tls: {ca: tls/ca.pem, cert: tls/node.pem, key: tls/node-key.pem}
address: 10.0.0.2           # where the gateway reaches this node's engines; else the link's own address
labels: {rack: a}
engine_user: llmgw-engine   # engines run as this user; the agent must then be root
engines:                    # those that are named are used, and none of our own is installed beside them
  llamacpp: {bin: /opt/llama.cpp/llama-server}
  sglang: {python: /opt/sglang/bin/python}
  disabled: [vllm]          # kept off this node, whatever the control plane says
  install: false            # nothing is installed here at all
discovery: {nvidia_smi: /opt/nvidia/bin/nvidia-smi}   # where it is not on PATH
tracing: {endpoint: http://otel.internal:4318, sample_ratio: 1}   # an OpenTelemetry collector, over OTLP/HTTP
fabrics: {ib-a: [mlx5_0, mlx5_1]}   # which adapters are on which fabric, where the subnet manager cannot tell
discovery: {dcgm_exporter: "off"}   # an address, or off; else http://127.0.0.1:9400/metrics is tried
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import yaml

from agent.core.source import GITHUB, HUB
from agent.wire.reason import Reason

OFF = "off"
_FABRIC = re.compile(r"[A-Za-z0-9._-]{1,60}")
_ADAPTER = re.compile(r"[A-Za-z0-9_.-]+(:\d+)?")
_NODE_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,118}[A-Za-z0-9])?")


@dataclass(frozen=True, slots=True)
class Tls:
    """Absolute paths of PEM files. `server_name`: the name to expect in the server's certificate."""

    ca: Path
    cert: Path
    key: Path
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Installs:
    """What may be installed on this node. `packages`: the system's, where an engine lacks one and the agent is root;
    `python`, `uv`: executables to use instead of those that are fetched."""

    on: bool = True
    disabled: tuple[str, ...] = ()
    packages: bool = True
    python: str = ""
    uv: str = ""


@dataclass(frozen=True, slots=True)
class Collector:
    """Where traces go, and the share of them that is kept. The control plane's own settings say the same."""

    endpoint: str = ""
    sample_ratio: float = 1.0


@dataclass(frozen=True, slots=True)
class Settings:
    node_id: str
    server: str
    tls: Tls
    address: str | None = None
    labels: dict[str, str] = field(default_factory=dict)
    engine_user: str | None = None
    engines: dict[str, str] = field(default_factory=dict)
    """Engine name → executable or interpreter, where it is not to be found by itself."""
    installs: Installs = field(default_factory=Installs)
    """Of `engines` too."""
    github: str = GITHUB
    """Whose API is asked about releases."""
    discovery: dict[str, str] = field(default_factory=dict)
    """`nvidia_smi`: the executable. `dcgm_exporter`: an address, or `off`."""
    fabrics: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Fabric → the adapters on it (`mlx5_0`, or `mlx5_0:1` for one port)."""
    tracing: Collector = field(default_factory=Collector)
    weights: Path | None = None
    """The folder for fetched weights; None: in the home."""
    hub: str = HUB
    hub_token: str | None = field(default=None, repr=False)
    unknown: tuple[str, ...] = ()
    """Names in the file that this version does not know."""


def read(path: Path, environ: Mapping[str, str] = os.environ) -> Settings | list[Reason]:
    """The settings in `path`; relative paths in it begin at its folder."""
    try:
        found = yaml.safe_load(path.read_text()) or {}
    except FileNotFoundError:
        return [Reason("no_agent_settings", f"{path} does not exist; join a cluster first", "llmgw-agent join CODE")]
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        return [Reason("bad_agent_settings", f"{path} cannot be read: {' '.join(str(e).split())}")]
    if not isinstance(found, dict):
        return [Reason("bad_agent_settings", f"{path} must hold names and values, not a {type(found).__name__}")]
    return _parse(found, path.parent, environ)


def _parse(found: dict[Any, Any], folder: Path, environ: Mapping[str, str]) -> Settings | list[Reason]:
    problems: list[Reason] = []

    def take(name: str, convert: Callable[[Any], Any], default: Any = None, required: bool = False) -> Any:
        value = found.get(name)
        if value is None:
            if required:
                problems.append(Reason("bad_agent_settings", f"agent.yaml lacks {name}"))
            return default
        try:
            return convert(value)
        except ValueError as e:
            problems.append(Reason("bad_agent_settings", f"{name} in agent.yaml {e}"))
            return default

    settings = {
        "node_id": take("node_id", _node_id, "", required=True),
        "server": take("server", _server, "", required=True),
        "tls": take("tls", lambda v: _tls(v, folder), None, required=True),
        "address": take("address", _text),
        "labels": take("labels", _texts, {}),
        "engine_user": take("engine_user", _text),
        "engines": take("engines", _named_engines, {}),
        "github": take("github", _text, GITHUB),
        "discovery": take("discovery", _discovery, {}),
        "fabrics": take("fabrics", _fabrics, {}),
        "tracing": take("tracing", _tracing, Collector()),
        "weights": take("weights", lambda v: folder / _text(v)),
        "hub": take("hub", _text, environ.get("HF_ENDPOINT") or HUB),
        "hub_token": environ.get("HF_TOKEN"),
    }
    unknown = tuple(sorted(str(k) for k in found if k not in settings))
    if not problems:
        settings["installs"] = take("engines", _installs, Installs())
    return problems or Settings(**settings, unknown=unknown)


def _text(value: Any) -> str:
    if not isinstance(value, str | int | float) or isinstance(value, bool) or not str(value).strip():
        raise ValueError(f"must be a text, and is {value!r}")
    return str(value).strip()


def _texts(value: Any) -> dict[str, str]:
    if not isinstance(value, dict):
        raise ValueError(f"must hold names and values, and is {value!r}")
    return {str(k): str(v) for k, v in value.items()}


_ABOUT_INSTALLS = ("disabled", "install", "packages", "python", "uv")


def _named_engines(value: Any) -> dict[str, str]:
    """`name: path`, or `name: {bin: path}`, or `name: {python: path}`."""
    if not isinstance(value, dict):
        raise ValueError(f"must hold names and values, and is {value!r}")
    found: dict[str, str] = {}
    for name, said in value.items():
        if name in _ABOUT_INSTALLS:
            continue
        paths = _texts(said) if isinstance(said, dict) else {"bin": _text(said)}
        if len(paths) != 1 or not set(paths) <= {"bin", "python"}:
            raise ValueError(f"names {name} by its bin or its python, and has {', '.join(paths) or 'neither'}")
        found[str(name)] = next(iter(paths.values()))
    return found


def _installs(value: Any) -> Installs:
    said = {k: v for k, v in value.items() if k in _ABOUT_INSTALLS}
    for name in ("install", "packages"):
        if not isinstance(said.get(name, True), bool):
            raise ValueError(f"needs true or false for {name}, and has {said[name]!r}")
    disabled = said.get("disabled", [])
    if not isinstance(disabled, list) or not all(isinstance(d, str) for d in disabled):
        raise ValueError(f"needs a list of engines for disabled, and has {disabled!r}")
    return Installs(
        on=said.get("install", True),
        disabled=tuple(sorted(set(disabled))),
        packages=said.get("packages", True),
        python=_text(said["python"]) if said.get("python") else "",
        uv=_text(said["uv"]) if said.get("uv") else "",
    )


def _discovery(value: Any) -> dict[str, str]:
    # YAML reads a bare `off` as a truth value.
    named = {k: OFF if v is False else v for k, v in value.items()} if isinstance(value, dict) else value
    names = _texts(named)
    unknown = sorted(set(names) - {"nvidia_smi", "dcgm_exporter"})
    if unknown:
        raise ValueError(f"knows nvidia_smi and dcgm_exporter, and not {', '.join(unknown)}")
    exporter = names.get("dcgm_exporter", OFF)
    if exporter != OFF and urlsplit(exporter).scheme not in ("http", "https"):
        raise ValueError(f"has a dcgm_exporter that is neither an http address nor off: {exporter!r}")
    return names


def _fabrics(value: Any) -> dict[str, tuple[str, ...]]:
    if not isinstance(value, dict):
        raise ValueError(f"must hold fabrics and their adapters ({{ib-a: [mlx5_0, mlx5_1]}}), and is {value!r}")
    found: dict[str, tuple[str, ...]] = {}
    at: dict[str, str] = {}
    for name, adapters in value.items():
        listed = [adapters] if isinstance(adapters, str) else adapters
        if not _FABRIC.fullmatch(str(name)):
            raise ValueError(f"has {name!r}, and a fabric's name is letters, digits, '.', '_' and '-' (at most 60)")
        if not isinstance(listed, list) or not all(isinstance(a, str) and _ADAPTER.fullmatch(a) for a in listed):
            raise ValueError(f"has {adapters!r} on {name}, where adapters are wanted: mlx5_0, or mlx5_0:1 for one port")
        for adapter in listed:
            if at.setdefault(adapter, str(name)) != str(name):
                raise ValueError(f"puts {adapter} on {at[adapter]} and on {name}: a port is on one fabric")
        found[str(name)] = tuple(dict.fromkeys(listed))
    return found


def _tracing(value: Any) -> Collector:
    if not isinstance(value, dict) or set(value) - {"endpoint", "sample_ratio"}:
        raise ValueError(f"knows endpoint and sample_ratio, and is {value!r}")
    endpoint, ratio = str(value.get("endpoint", "")), value.get("sample_ratio", 1.0)
    if endpoint and urlsplit(endpoint).scheme not in ("http", "https"):
        raise ValueError(f"must name a collector by an http address, and has {endpoint!r}")
    if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
        raise ValueError(f"must have a sample_ratio from 0 to 1, and has {ratio!r}")
    return Collector(endpoint, float(ratio))


def _node_id(value: Any) -> str:
    text = _text(value)
    if not _NODE_ID.fullmatch(text):
        raise ValueError(f"must be letters, digits, '.', '_' and '-' (at most 120), and is {text!r}")
    return text


def _server(value: Any) -> str:
    text = _text(value)
    try:
        parts = urlsplit(text)
        usable = parts.scheme == "wss" and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        usable = False
    if not usable:
        raise ValueError(f"must be wss://host:port/agent/link, and is {text!r}")
    return text


def _tls(value: Any, folder: Path) -> Tls:
    names = _texts(value)
    missing = [n for n in ("ca", "cert", "key") if not names.get(n)]
    if missing:
        raise ValueError(f"lacks {', '.join(missing)}")
    return Tls(folder / names["ca"], folder / names["cert"], folder / names["key"], names.get("server_name"))
