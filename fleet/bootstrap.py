"""What the link and the planner need before they start: the authority, the link's certificate, the store's name."""

from __future__ import annotations

from fleet.actions import certificates
from llmgw.cluster import pki
from llmgw.cluster.models import Store
from llmgw.machine import Machine


def ensure(machine: Machine) -> str:
    """Makes what is missing, changes nothing that is there; the store id."""
    pki.ensure_authority(machine.pki_dir)
    pki.ensure_server(machine.pki_dir, pki.server_names((*machine.link_names, machine.local_host)))
    if not (machine.pki_dir / "crl.pem").exists():
        certificates.publish_crl()
    return store_id()


def store_id() -> str:
    """Which store this is; its row is made by the first who asks."""
    store, _ = Store.objects.get_or_create(id=1)
    return str(store.store_id)
