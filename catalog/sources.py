"""Whether weights are where a definition says: asked when it is added, so that a typo is a sentence now.

A path is looked at on this machine, an address is asked for its head, a Hugging Face file at `HF_ENDPOINT` with
`HF_TOKEN` where there is one.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Sequence
from pathlib import Path

import httpx

from agent.engine import ModelFacts
from agent.engines import ENGINES, model_facts
from agent.wire.reason import Reason
from catalog.core.definition import Definition, source_of
from catalog.core.source import hub_file

TIMEOUT_S = 5.0
_SKIP = "llmgw model add -f FILE --no-source-check"


def problems(definitions: Sequence[Definition]) -> tuple[Reason, ...]:
    """Everything that cannot be found, each source asked once."""
    wanted = {(source_of(d, p)[0], p.run.engine): d.name for d in definitions for p in d.profiles}
    found = [(model, _problem(source, engine)) for (source, engine), model in wanted.items()]
    missing = [Reason(p.code, f"model {model}: {p.sentence}", p.command) for model, p in found if p is not None]
    return (*missing, *(p for d in definitions for p in _unfit(d)))


def facts_of(source: str) -> ModelFacts | None:
    """What the model's own files say of it, where they lie on this machine; None where nothing is known."""
    if not source.startswith("path:"):
        return None
    path = Path(source.removeprefix("path:"))
    try:
        if path.is_dir():
            size = sum(f.stat().st_size for f in path.glob("*.safetensors")) or None
            return model_facts.of_config((path / "config.json").read_bytes(), size)
        with path.open("rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as data:
            return model_facts.of_gguf(data)
    except (OSError, ValueError):
        return None


def _unfit(definition: Definition) -> list[Reason]:
    """What a profile asks of a model that its files say it is not: heads that do not split, too long a context."""
    found: list[Reason] = []
    for profile in definition.profiles:
        facts, engine = facts_of(source_of(definition, profile)[0]), ENGINES.get(profile.run.engine)
        if facts is None or engine is None:
            continue
        known = {p.code for p in engine.problems(profile.run, None)}
        found += (
            Reason(p.code, f"model {definition.name}, profile {profile.run.name}: {p.sentence}", p.command)
            for p in engine.problems(profile.run, None, facts)
            if p.code not in known
        )
    return found


def _problem(source: str, engine: str) -> Reason | None:
    contract = ENGINES.get(engine)
    folder = contract is not None and contract.capabilities.weights_format == "folder"
    if source.startswith("path:"):
        return _path(Path(source.removeprefix("path:")), engine, folder)
    if folder:
        return _missing(
            f"{source} is one file, and {engine} loads a folder as Hugging Face lays it out: give path:/THE/FOLDER, as "
            "it is on the nodes"
        )
    if source.startswith("starter:"):
        return None  # `catalog.core.source` knows those that ship
    file = hub_file(source)
    if file is None:
        return _address(source, source, {})
    endpoint = os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")
    token = os.environ.get("HF_TOKEN")
    return _address(
        source,
        f"{endpoint}/{file.repository}/resolve/{file.revision}/{file.file}",
        {"Authorization": f"Bearer {token}"} if token else {},
    )


def _path(path: Path, engine: str, folder: bool) -> Reason | None:
    elsewhere = f"{path} is looked for on this machine; where only the nodes have it, skip this check"
    try:
        if path.is_dir():
            if not folder:
                return _missing(f"{path} is a folder, and llama.cpp loads one .gguf file")
            if (path / "config.json").is_file():
                return None
            return _missing(f"{path} has no config.json, and {engine} loads a folder as Hugging Face lays it out")
        with path.open("rb") as f:
            start = f.read(4)
    except FileNotFoundError:
        return _missing(f"there is no file {path}; {elsewhere}")
    except OSError as e:
        return _missing(f"{path} cannot be read ({e.strerror}); {elsewhere}")
    if folder:
        return _missing(f"{path} is one file, and {engine} loads a folder as Hugging Face lays it out")
    if start != b"GGUF":
        return Reason("not_gguf", f"{path} is not a GGUF file: it does not begin with GGUF")
    return None


def _address(source: str, url: str, headers: dict[str, str]) -> Reason | None:
    try:
        with httpx.Client(timeout=TIMEOUT_S, follow_redirects=False) as client:
            answer = client.head(url, headers=headers)
            for _ in range(5):
                if not answer.has_redirect_location:
                    break
                # httpx drops the token itself when a redirect leaves its host.
                answer = client.send(answer.next_request) if answer.next_request else answer
            if answer.status_code == 405:
                with client.stream("GET", url, headers={**headers, "Range": "bytes=0-0"}) as got:
                    answer = got
    except httpx.TimeoutException:
        return _missing(f"{source} did not answer within {TIMEOUT_S:g} s")
    except httpx.HTTPError as e:
        return _missing(f"{source} cannot be reached from here: {e}")
    match answer.status_code:
        case code if code < 300:
            return None
        case 401 | 403:
            return _missing(
                f"{source} may not be read from here (HTTP {answer.status_code}); a gated one needs HF_TOKEN"
            )
        case 404:
            return _missing(f"{source} is not there (HTTP 404)")
        case code:
            return _missing(f"{source} answered HTTP {code}")


def _missing(sentence: str) -> Reason:
    return Reason("source_missing", sentence, _SKIP)
