"""Setting what levels and keys allow: laid over what was said, checked whole, told in the audit log."""

from __future__ import annotations

import pytest

from llmgw.cluster.actions import settings
from llmgw.cluster.errors import Forbidden, Invalid, NotFound
from llmgw.cluster.models import AuditEntry
from tenancy import access
from tenancy.actions import keys, limits, memberships
from tenancy.core.limits import Limits, from_stored
from tenancy.models import Organisation, Person, Project, Team

pytestmark = pytest.mark.django_db


def test_a_change_is_laid_over_what_was_said(project: Project) -> None:
    limits.change(level=project, limits={"rpm": 5, "budget": "1.00", "period": "day"}, actor="t")
    limits.change(level=project, limits={"rpm": None, "tpm": 9}, terms={"no_store": True, "weight": 2}, actor="t")
    project.refresh_from_db()
    assert from_stored(project.limits) == Limits(tpm=9, budget=10**9, period="day")
    assert (project.no_store, project.weight) == (True, 2.0)
    told = AuditEntry.objects.filter(action="project.limits").order_by("-pk")[0]
    assert told.subject == project.path
    assert told.detail["weight"] == [1.0, 2.0]
    limits.change(level=project, terms={"weight": 2}, actor="t")
    assert AuditEntry.objects.filter(action="project.limits").count() == 2, "nothing changed, nothing is told"
    limits.change(level=project, limits={"budget": None}, actor="t")
    assert project.limits == {"tpm": 9}, "a period goes with its budget"


def test_everything_that_is_wrong_is_told_and_nothing_is_changed(project: Project) -> None:
    with pytest.raises(Invalid) as e:
        limits.change(level=project, limits={"rpm": -1}, terms={"weight": 0, "no_store": True}, actor="t")
    assert {p.code for p in e.value.problems} == {"bad_limit", "bad_weight"}
    project.refresh_from_db()
    assert not project.no_store
    with pytest.raises(Invalid, match="say the budget too"):
        limits.change(level=project, limits={"period": "day"}, actor="t")
    with pytest.raises(Invalid, match="there is no limit rps"):
        limits.change(level=project, limits={"rps": 1}, actor="t")


def test_a_key_lives_as_long_as_the_narrowest_level_lets_it(
    organisation: Organisation, team: Team, project: Project
) -> None:
    limits.change(level=team, terms={"key_ttl_days": 7}, actor="t")
    limits.change(level=organisation, terms={"key_ttl_days": 30}, actor="t")
    project.refresh_from_db()
    assert keys.longest_days(project) == 7
    made = keys.create(project=project, name="k", actor="t").key
    assert made.expires_at is not None
    assert (made.expires_at - made.created_at).days in (6, 7)
    with pytest.raises(Invalid) as e:
        keys.create(project=project, name="k", days=8, actor="t")
    assert e.value.reason.command == "llmgw limits set acme/ml --key-ttl-days DAYS"
    settings.put(path="keys.max_ttl_days", value=2, actor="t")
    assert keys.longest_days(project) == 2


def test_a_key_with_limits_of_its_own(project: Project) -> None:
    made = keys.create(project=project, name="k", limits={"rpm": 5}, band="batch", actor="t").key
    assert (made.limits, made.band) == ({"rpm": 5}, "batch")
    with pytest.raises(Invalid):
        keys.create(project=project, name="k", limits={"rpm": -5}, band="urgent", actor="t")


def test_who_may_set_limits(team: Team, project: Project, root: Person, ada: Person, olga: Person) -> None:
    """From above: an owner of the team sets its projects' and their keys', and the team's own are not his."""
    key = keys.create(project=project, name="k", person=ada, actor="t").key
    assert access.may_limit(olga, project)
    assert access.may_limit(olga, key)
    assert not access.may_limit(olga, team)
    assert not access.may_limit(ada, key), "nobody lifts the limits of his own key"
    assert access.may_limit(root, team.organisation)
    with pytest.raises(Forbidden, match="you may not set limits here"):
        access.require_settable(ada, project, ["limits"])
    assert "weight" not in access.settable(olga, project), "it counts against everybody's"
    assert "weight" in access.settable(root, project)
    memberships.grant(person=ada, level=project, role="owner", actor="t")
    assert access.settable(ada, project) == {"reuse", "keep"}


def test_who_sees_a_level(team: Team, project: Project, other: Project, ada: Person, olga: Person) -> None:
    """What binds somebody may be seen: the levels above his own too; a neighbour's may not."""
    assert access.level_for(ada, project.public_id) == project
    assert access.level_for(ada, team.public_id) == team
    assert access.level_for(olga, other.public_id) == other
    with pytest.raises(NotFound):
        access.level_for(ada, other.public_id)
