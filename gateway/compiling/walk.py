"""Which modules are compiled, and what tells one state of them from another. Pure but for reading their files.

Those that a usual request passes through. Left out are shapes that are decoded (`core.shapes`, `core.record`,
`core.snapshot`, the ledger's), for a compiled class does not keep the types of its fields; and what is passed seldom.
A compiled class may be the base of compiled ones alone, so all of a family are in or none.
"""

from __future__ import annotations

import hashlib
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
"""Above the packages."""
MODULES = (
    "gateway.core.admission.bands",
    "gateway.core.admission.fair",
    "gateway.core.admission.line",
    "gateway.core.admission.promise",
    "gateway.core.admission.reckoning",
    "gateway.core.admission.refusal",
    "gateway.core.admission.room",
    "gateway.core.admission.shares",
    "gateway.core.breaker",
    "gateway.core.chain",
    "gateway.core.chunk",
    "gateway.core.framing",
    "gateway.core.gauges",
    "gateway.core.ids",
    "gateway.core.ledger.keys",
    "gateway.core.ledger.left",
    "gateway.core.ledger.worst",
    "gateway.core.load",
    "gateway.core.mould",
    "gateway.core.pictures",
    "gateway.core.predict",
    "gateway.core.prefix",
    "gateway.core.principal",
    "gateway.core.prompts",
    "gateway.core.request",
    "gateway.core.retry",
    "gateway.core.retry_after",
    "gateway.core.roles",
    "gateway.core.router",
    "gateway.core.saving",
    "gateway.core.sessions",
    "gateway.core.sieve",
    "gateway.core.sse",
    "gateway.core.starting",
    "gateway.core.tags",
    "gateway.core.tool_calls",
    "gateway.core.usage",
    "gateway.edge.again",
    "gateway.edge.answer",
    "gateway.edge.asgi",
    "gateway.edge.attempts",
    "gateway.edge.books",
    "gateway.edge.callers",
    "gateway.edge.capture",
    "gateway.edge.client",
    "gateway.edge.direct",
    "gateway.edge.exchange",
    "gateway.edge.external",
    "gateway.edge.figures",
    "gateway.edge.filling",
    "gateway.edge.ledger.allowance",
    "gateway.edge.ledger.ledger",
    "gateway.edge.ledger.operation",
    "gateway.edge.ledger.till",
    "gateway.edge.ledger.wire",
    "gateway.edge.live",
    "gateway.edge.overheard",
    "gateway.edge.pool",
    "gateway.edge.protocol",
    "gateway.edge.queue",
    "gateway.edge.relay",
    "gateway.edge.replicas",
    "gateway.edge.spool",
    "gateway.edge.stream",
    "gateway.edge.tally",
    "gateway.edge.upstream",
    "gateway.edge.waits",
)


def file_of(module: str) -> Path:
    return ROOT.joinpath(*module.split(".")).with_suffix(".py")


def suffix() -> str:
    """Of an extension module of this Python."""
    found: str = sysconfig.get_config_var("EXT_SUFFIX")
    return found


def digest() -> str:
    """Of the modules' sources and of the Python that they are compiled for: a build of others is not theirs."""
    found = hashlib.sha256(f"{suffix()} {sys.version}".encode())
    for module in MODULES:
        found.update(b"%b\0%b\0" % (module.encode(), file_of(module).read_bytes()))
    return found.hexdigest()[:24]
