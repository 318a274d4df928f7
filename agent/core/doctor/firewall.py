"""Whether the machine's own firewall lets the gateway reach its engines. Pure."""

from __future__ import annotations

from agent.core import firewall
from agent.core.doctor.finding import Finding, Seen, ok, warning


def findings(seen: Seen) -> list[Finding]:
    shut = firewall.shut(seen.nftables, seen.engine_ports) if seen.nftables is not None else None
    if shut is None:
        return []
    if not shut:
        return [ok("firewall", "no rule shuts the engines' ports")]
    found = []
    for one in shut:
        ports = ", ".join(map(str, one.ports[:8])) + (", …" if len(one.ports) > 8 else "")
        said = (
            f"the chain {one.chain} drops what no rule lets in, and none lets the gateway reach engines (port {ports})"
        )
        command = f"nft insert rule {one.chain} ip saddr GATEWAY tcp dport {one.ports[0]}-{one.ports[-1]} accept"
        found.append(warning("firewall", "engine_ports_shut", said, command))
    return found
