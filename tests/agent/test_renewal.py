"""A node's certificate is renewed over its link, or somebody is told why not."""

from __future__ import annotations

import asyncio
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from cryptography import x509

from agent.core.doctor import Seen, findings
from agent.node.agent import Agent, Identity
from agent.node.link import WebsocketLink
from agent.node.renewal import NotRenewed, Renewal
from agent.node.settings import Settings, Tls
from agent.node.status import link_of
from agent.wire.facts import NodeFacts
from agent.wire.messages import Certified, Hello
from tests.agent.control import Control
from tests.agent.node import Node
from tests.agent.pki import Authority, Pair
from tests.agent.test_link import Quiet

DAY = 86400.0


def tls(authority: Authority, pair: Pair) -> Tls:
    return Tls(authority.pem, pair.cert, pair.key)


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "pki")


def test_it_is_due_when_a_third_of_its_time_is_left(authority: Authority) -> None:
    renewal = Renewal(tls(authority, authority.node("n1", days=1)), "n1")  # began two days ago: three in all
    assert not renewal.due(time.time() - 60)
    assert renewal.due(time.time() + 60)
    assert renewal.due(time.time() + 30 * DAY), "also when it has ended"


@pytest.mark.parametrize("what", ["another node's", "another key's", "an older one", "no certificate"])
def test_what_is_not_this_nodes_next_certificate_is_not_taken(authority: Authority, what: str) -> None:
    renewal = Renewal(tls(authority, authority.node("n1", days=1)), "n1")
    before = Path(authority.folder / "n1.pem").read_bytes()
    other = Renewal(tls(authority, authority.node("n2", days=0.5)), "n1")
    made = {
        "another node's": lambda: authority.sign(Renewal(renewal._tls, "n2").request().encode()),
        "another key's": lambda: authority.sign(other.request().encode()),
        "an older one": lambda: authority.sign(renewal.request().encode(), days=0.1),
        "no certificate": lambda: "hello",
    }
    with pytest.raises(NotRenewed):
        renewal.take(made[what]())
    assert Path(authority.folder / "n1.pem").read_bytes() == before


def test_the_doctor_says_that_it_was_not_renewed_and_why() -> None:
    def told(left_s: float, why: str | None = "it was refused") -> tuple[str, str]:
        (found,) = findings(Seen(NodeFacts(), certificate_left_s=left_s, renewal_problem=why))
        return str(found.level), found.reason.sentence

    sentence = "the node's certificate is good for 100 more days, and could not be renewed: it was refused"
    assert told(100 * DAY) == ("warning", sentence)
    assert told(3 * DAY)[0] == "problem"
    assert told(100 * DAY, None)[0] == "ok"


@pytest.fixture
async def control(authority: Authority) -> AsyncIterator[Control]:
    async with Control(authority) as c:
        yield c


@pytest.mark.slow
async def test_the_next_one_is_in_place_before_the_old_one_ends(
    authority: Authority, control: Control, tmp_path: Path
) -> None:
    pair = authority.node("n1", days=0.5)
    pair.cert.chmod(0o640)
    settings = Settings("n1", control.url, tls(authority, pair))
    answers = [Certified(problem="the authority's key is elsewhere")]

    def certify(csr: str) -> Certified:
        return answers.pop() if answers else Certified(authority.sign(csr.encode(), days=30))

    control.certify = certify
    old, key = pair.cert.read_bytes(), pair.key.read_bytes()
    node = Node(tmp_path / "home")
    renewal = Renewal(settings.tls, "n1", every_s=0.5)
    link = WebsocketLink(settings, lambda sentence: None)
    agent = Agent(node.ctx, Identity("n1", "i-1"), link, Quiet(), renewal=renewal, jitter=lambda: 0.0)
    task = asyncio.create_task(agent.run())
    try:
        async with asyncio.timeout(10):
            while link_of(node.home).get("renewal_problem") is None:
                await asyncio.sleep(0.02)
            assert renewal.problem == "the authority's key is elsewhere"
            while pair.cert.read_bytes() == old:
                await asyncio.sleep(0.02)
            while link_of(node.home).get("renewal_problem") is not None:
                await asyncio.sleep(0.02)
        assert pair.key.read_bytes() == key
        assert stat.S_IMODE(pair.cert.stat().st_mode) == 0o640
        assert not renewal.due(time.time())
        new = x509.load_pem_x509_certificate(pair.cert.read_bytes())
        assert new.not_valid_after_utc > x509.load_pem_x509_certificate(old).not_valid_after_utc
        control.said.clear()
        for socket in list(control.sockets):
            await socket.close()
        await control.heard(lambda m: m if isinstance(m, Hello) else None)  # with the new one
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
