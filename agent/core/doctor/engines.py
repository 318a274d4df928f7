"""What is wrong with a node's engines, and what it could not install: told before it joins, as far as it can be."""

from __future__ import annotations

from agent.core.doctor.finding import Finding, Seen, ok, problem, warning
from agent.plans import DEFAULTS, plans
from agent.plans.outcome import Candidates, Cannot
from agent.plans.steps import Program
from agent.wire.facts import EngineFacts


def findings(seen: Seen) -> list[Finding]:
    found = seen.facts.engines
    if found is None:
        return []
    usable = any(e.problem is None for e in found)
    made = [_of(e, usable) for e in found]
    if not found:
        said = "no engine is installed on this node"
        if seen.installs:
            made.append(warning("engines", "no_engine", f"{said} yet: its agent installs one once the node has joined"))
        else:
            made.append(problem("engines", "no_engine", said, "pip install xllamacpp"))
    return [*made, *_vllm(seen)]


def _of(engine: EngineFacts, usable: bool) -> Finding:
    if engine.problem is None:
        build = engine.build or "installed"
        said = f"{engine.name} {engine.version or 'of an unknown version'} ({build})"
        return ok("engines", f"{said}; meanwhile: {engine.installing}" if engine.installing else said)
    if engine.installing is not None and engine.path is None:
        return warning("engines", "engine_installing", f"{engine.name}: {engine.problem}")
    told = f"{engine.name}: {engine.problem}"
    # Where the node serves with another one, what it cannot run is no reason to keep it out.
    if engine.path is None and usable:
        return warning("engines", "engine_not_here", told)
    return problem("engines", "engine_unusable", told)


def _vllm(seen: Seen) -> list[Finding]:
    """Whether vLLM can be installed on a node with cards, where it is for us to install."""
    facts = seen.facts
    here = {e.name for e in facts.engines or ()}
    if not seen.installs or not facts.gpus or "vllm" in here or "vllm" in seen.left_out:
        return []
    match plans("vllm", facts, DEFAULTS["vllm"]):
        case Cannot(reason):
            return [warning("vLLM", reason.code, reason.sentence, reason.command)]
        case Candidates(found):
            return _lacks(found[0].room_bytes, found[0].steps, seen)
        case _:
            return []


def _lacks(room_bytes: int, steps: tuple[object, ...], seen: Seen) -> list[Finding]:
    made = []
    if seen.engines_free_bytes is not None and seen.engines_free_bytes < room_bytes:
        said = f"vLLM needs {room_bytes / 2**30:.0f} GiB free while it installs, and {seen.engines_free_bytes / 2**30:.1f} GiB are"  # noqa: E501
        made.append(warning("vLLM", "no_room", said, "free some space on the engines' file system"))
    for step in steps:
        if isinstance(step, Program) and step.name in seen.programs_missing:
            said = f"vLLM needs {step.name}: {step.why}"
            made.append(warning("vLLM", "missing_program", said, f"apt-get install -y {step.package}"))
    return made or [ok("vLLM", "vLLM can be installed on this node")]
