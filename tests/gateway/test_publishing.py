"""From rows to the snapshot in Redis: what is in it, when it moves, and who is refused."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import Any

import pytest
from django.utils import timezone

from catalog.actions import models
from fleet.models import Node, Replica, Shard
from gateway.control import parts, publishing
from gateway.control.redis import client
from gateway.core import snapshot
from llmgw.cluster.actions import settings
from llmgw.cluster.changes import announce
from llmgw.keys import key_hash
from tenancy.core.limits import Limits
from tenancy.models import Key, Organisation, Person, Project, Team
from tests.gateway.edges import EdgeProcess

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def _empty() -> None:
    for key in client().scan_iter(f"{snapshot.PREFIX}*"):
        client().delete(key)


@pytest.fixture
def project() -> Project:
    organisation = Organisation.objects.create(name="acme", allow=["Tiny", "big"])
    team = Team.objects.create(organisation=organisation, name="t", limits={"rpm": 9})
    return Project.objects.create(team=team, name="p", allow=["tiny", "other"], limits={"rpm": 5, "tpm": 7})


def key(project: Project, text: str, **fields: Any) -> Key:
    return Key.objects.create(project=project, name=text, hash=key_hash(text), prefix=text[:12], **fields)


def read(part: str) -> Any:
    data = client().get(snapshot.PREFIX + part)
    assert data is not None
    return snapshot.decode(part, data)  # type: ignore[arg-type]


def test_tenancy(project: Project) -> None:
    person = Person.objects.create_user("a@example.com", "x" * 12)
    gone = Person.objects.create_user("b@example.com", "x" * 12, is_active=False)
    soon = timezone.now() + timedelta(days=1)
    key(project, "live", person=person, expires_at=soon, allow=["TINY"])
    key(project, "revoked", revoked_at=timezone.now())
    key(project, "admin", scope=Key.Scope.ADMIN)
    key(project, "of somebody gone", person=gone)
    found = parts.tenancy()
    assert set(found.keys) == {key_hash("live")}
    entry = found.keys[key_hash("live")]
    assert (entry.person, entry.allow, entry.expires_at) == (person.public_id, ("tiny",), soon.timestamp())
    scope = found.projects[project.public_id]
    assert scope.allow == ("tiny",)
    said = {level.level: level.limits for level in scope.limits}
    assert said == {"team": Limits(rpm=9), "project": Limits(rpm=5, tpm=7)}, (
        "each level's own figures: none is merged into another's"
    )
    assert found.people == {person.public_id}


def test_a_fixed_number_of_queries(project: Project, django_assert_num_queries: Any) -> None:
    for n in range(20):
        key(project, f"k{n}")
    with django_assert_num_queries(3):
        parts.tenancy()


def test_published_only_when_the_content_changed(project: Project) -> None:
    assert set(publishing.publish()) == set(snapshot.PARTS)
    before = read("tenancy").version
    assert publishing.publish() == []
    announce("tenancy")  # a change of what is not in the snapshot
    assert publishing.publish() == []
    key(project, "new")
    assert publishing.publish() == ["tenancy"]
    assert read("tenancy").version > before
    assert int(client().hget(snapshot.VERSIONS, "tenancy") or 0) == read("tenancy").version  # type: ignore[arg-type]
    client().flushdb()
    assert set(publishing.publish()) == set(snapshot.PARTS)


def test_older_rows_do_not_replace_newer(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    """A publisher whose rows were read before a revocation, and who comes after it, reads them again."""
    key(project, "k")
    publishing.publish()
    read_rows = parts.BUILD["tenancy"]
    slow: list[snapshot.Part] = []

    def build() -> snapshot.Part:
        found = read_rows()
        if not slow:
            slow.append(found)
            Key.objects.all().delete()
            announce("tenancy")  # publishes at once, while the slow one still holds what it read
            return snapshot.Tenancy(people=frozenset({"stale"}))
        return found

    monkeypatch.setitem(parts.BUILD, "tenancy", build)
    publishing.publish(["tenancy"])
    assert read("tenancy").keys == {}
    assert "stale" not in read("tenancy").people


def test_settings_reach_the_policies() -> None:
    publishing.publish()
    settings.put(path="gateway.retries", value=7, actor="test")
    assert read("policies").retries == 7


def test_a_commit_reaches_an_edge(project: Project, own_edge: EdgeProcess, redis_url: str) -> None:
    """Revocation included: within two seconds, in fact at once."""
    import httpx

    from tenancy.actions import keys

    made = keys.create(project=project, name="k", person=None, scope="inference", days=1, allow=None, actor="test")
    publishing.publish()
    own_edge.redis_url = redis_url
    own_edge.start()
    own_edge.wait_for("/ready")
    auth = {"authorization": f"Bearer {made.secret}"}
    assert httpx.get(f"{own_edge.url}/v1/models", headers=auth).status_code == 200
    keys.revoke(key=made.key, actor="test")
    began = time.monotonic()
    while httpx.get(f"{own_edge.url}/v1/models", headers=auth).status_code != 401:
        assert time.monotonic() - began < 2


def test_models_and_endpoints() -> None:
    definition = {
        "name": "tiny",
        "aliases": ["small"],
        "source": "starter:tiny",
        "context_length": 4096,
        "scaling": {"min": 1},
        "profiles": [{"name": "cpu", "engine": "llamacpp", "cpu_cores": 1, "parallel": 2}],
    }
    models.add_all(raws=[definition], actor="test", check_sources=False)
    publishing.publish()
    entry = read("catalog").models["tiny"]
    assert (entry.aliases, entry.state, entry.context_length) == (("small",), "loading", 4096)
    assert read("endpoints").endpoints == ()
    node = Node.objects.create(node_id="n1", connected=True, last_seen=timezone.now())
    spec = {"profile": {"name": "cpu", "engine": "llamacpp", "parallel": 2}}
    replica = Replica.objects.create(model="tiny", profile="cpu", state=Replica.State.READY, spec=spec)
    Shard.objects.create(replica=replica, node=node, port=18100, address="10.0.0.5", observed="ready")
    announce("fleet")
    assert read("catalog").models["tiny"].state == "serving"
    (found,) = read("endpoints").endpoints
    assert (found.replica, found.model, found.host, found.port) == (replica.public_id, "tiny", "10.0.0.5", 18100)
    assert (found.node, found.parallel, found.draining) == ("n1", 2, False)
    Replica.objects.update(state=Replica.State.DRAINING)
    announce("endpoints")
    assert read("endpoints").endpoints[0].draining
