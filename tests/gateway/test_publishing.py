"""From rows to the snapshot in Redis: what is in it, when it moves, and who is refused."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from typing import Any
from zoneinfo import ZoneInfo

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
from llmgw.price import Price
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


def test_what_a_level_says_holds_below(project: Project) -> None:
    Organisation.objects.update(in_cluster=True)
    Team.objects.update(no_store=True)
    Project.objects.update(weight=3.0, when_spent="small", reuse={"ttl_s": 60.0}, keep={"hours": 1.0})
    scope = parts.tenancy().projects[project.public_id]
    assert (scope.in_cluster, scope.no_store, scope.weight, scope.when_spent) == (True, True, 3.0, "small")
    assert (scope.reuse, scope.keep) == (None, None), "nothing is kept where a level above says so"
    Team.objects.update(no_store=False)
    scope = parts.tenancy().projects[project.public_id]
    assert (scope.reuse, scope.keep) == (snapshot.Reuse(60.0), snapshot.Keep(1.0))


def test_what_nobody_limits_has_the_cluster_s_defaults(project: Project) -> None:
    """Of the tree, somebody names requests and tokens a minute; without that the key gets the defaults."""
    key(project, "k", band="batch")
    key(project, "own", limits={"concurrent": 2})
    found = parts.tenancy()
    assert found.keys[key_hash("k")].limits is None
    assert found.keys[key_hash("k")].band == "batch"
    assert found.chat_limits == Limits(rpm=60, tpm=200_000)
    Team.objects.update(limits={})
    Project.objects.update(limits={"rpm": 5})
    own = parts.tenancy().keys[key_hash("own")].limits
    assert own is not None
    assert own.limits == Limits(tpm=200_000, concurrent=2)
    settings.put(path="limits", value={"default_rpm": 0, "default_tpm": None}, actor="t")
    found = parts.tenancy()
    assert found.keys[key_hash("k")].limits is None
    assert not found.chat_limits


def test_a_budget_s_period_by_the_project_s_clock(project: Project) -> None:
    """A second before midnight in Istanbul it is still the evening before for the cluster, whose clock is UTC's."""
    midnight = datetime(2026, 12, 1, tzinfo=ZoneInfo("Europe/Istanbul")).timestamp()
    budget = {"budget": 10**9, "period": "month"}
    Organisation.objects.update(limits=budget)
    Project.objects.update(limits=budget, time_zone="Europe/Istanbul")
    key(project, "k", limits={"budget": 5, "period": "total"})

    def periods(now: float) -> dict[str, tuple[str, float]]:
        found = parts.tenancy(now)
        levels = [*found.projects[project.public_id].limits, found.keys[key_hash("k")].limits]
        return {level.level: (level.period, level.until) for level in levels if level is not None}

    ends = datetime(2026, 12, 1, tzinfo=ZoneInfo("UTC")).timestamp()
    before, after = periods(midnight - 1), periods(midnight)
    assert before["project"] == ("2026-11", midnight)
    assert after["project"][0] == "2026-12"
    assert before["organisation"] == after["organisation"] == ("2026-11", ends)
    assert before["key"] == ("total", 0.0)


def test_published_again_when_a_period_ends(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    Project.objects.update(limits={"budget": 1, "period": "day"})
    publishing.publish()
    assert publishing.publish() == []
    (level,) = [x for x in read("tenancy").projects[project.public_id].limits if x.level == "project"]
    monkeypatch.setattr(parts.time, "time", lambda: level.until)
    assert publishing.publish() == ["tenancy"]
    (later,) = [x for x in read("tenancy").projects[project.public_id].limits if x.level == "project"]
    assert later.period > level.period


def test_a_default_price_so_that_nothing_is_unmetered() -> None:
    assert not parts.policies().default_price.free
    settings.put(path="limits.default_price", value={"prompt_per_1k": 7, "cached_per_1k": 1}, actor="t")
    publishing.publish()
    assert read("policies").default_price == Price(prompt=7, completion=1500, cached=1, image=20_000, mesh=200_000)


def test_a_fixed_number_of_queries(project: Project, django_assert_num_queries: Any) -> None:
    for n in range(20):
        key(project, f"k{n}")
    with django_assert_num_queries(4):
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
        "slo": {"ttft_p99": "2s"},
        "profiles": [{"name": "cpu", "engine": "llamacpp", "cpu_cores": 1, "parallel": 2}],
    }
    models.add_all(raws=[definition], actor="test", check_sources=False)
    publishing.publish()
    entry = read("catalog").models["tiny"]
    assert (entry.aliases, entry.state, entry.context_length) == (("small",), "starting", 4096)
    assert entry.slo == snapshot.Slo(ttft_p99_s=2.0)
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
