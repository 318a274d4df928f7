"""The tree, its people and keys by the API."""

from __future__ import annotations

import pytest
from rest_framework.test import APIClient

from llmgw.cluster.models import AuditEntry, Change
from tenancy.models import Key, Person

pytestmark = pytest.mark.django_db


def test_a_tree_is_made_level_by_level(api: APIClient) -> None:
    made = api.post("/api/v1/organisations", {"name": "acme", "allow": ["tiny"]}, format="json")
    assert made.status_code == 201
    assert made.json()["allow"] == ["tiny"]
    team = api.post("/api/v1/teams", {"organisation": "acme", "name": "ml"}, format="json").json()
    project = api.post("/api/v1/projects", {"team": "acme/ml", "name": "train"}, format="json").json()
    assert project["path"] == "acme/ml/train"
    assert api.get(f"/api/v1/teams/{team['id']}").json()["projects"] == 1
    listed = api.get("/api/v1/projects?search=TRAIN").json()
    assert [p["path"] for p in listed["results"]] == ["acme/ml/train"]


def test_a_level_may_be_narrowed_and_emptied_levels_go(api: APIClient) -> None:
    organisation = api.post("/api/v1/organisations", {"name": "acme"}, format="json").json()
    address = f"/api/v1/organisations/{organisation['id']}"
    assert api.patch(address, {"allow": []}, format="json").json()["allow"] == []
    team = api.post("/api/v1/teams", {"organisation": "acme", "name": "ml"}, format="json").json()
    refused = api.delete(address)
    assert refused.status_code == 409
    assert refused.json()["error"]["code"] == "not_empty"
    assert api.delete(f"/api/v1/teams/{team['id']}").status_code == 204
    assert api.delete(address).status_code == 204
    assert api.get(address).status_code == 404


@pytest.mark.parametrize(
    ("body", "status", "said"),
    [
        ({"name": "a/b"}, 422, "slash"),
        ({"name": "default"}, 409, "already"),
        ({"name": "x", "alow": ["tiny"]}, 400, "alow"),
        ({}, 400, "name"),
        ([1], 400, ""),
    ],
)
def test_a_refusal_says_what_was_wrong(api: APIClient, body: object, status: int, said: str) -> None:
    answer = api.post("/api/v1/organisations", body, format="json")
    assert answer.status_code == status
    assert said in str(answer.json()["error"])


def test_a_key_s_secret_is_in_its_first_answer_alone(api: APIClient, member: Person) -> None:
    before = Change.objects.get(name="tenancy").version
    made = api.post("/api/v1/keys", {"name": "laptop", "person": "member@example.com", "days": 7}, format="json")
    assert made.status_code == 201
    secret, key_id = made.json()["key"], made.json()["id"]
    assert secret.startswith("llmgw_")
    assert Change.objects.get(name="tenancy").version > before
    for address in ("/api/v1/keys", f"/api/v1/keys/{key_id}", "/api/v1/people"):
        text = api.get(address).content.decode()
        assert secret not in text
        assert Key.objects.get(public_id=key_id).hash not in text
    assert not any(secret in str(e.detail) for e in AuditEntry.objects.all())


def test_a_key_is_revoked_and_stays_to_be_seen(api: APIClient) -> None:
    made = api.post("/api/v1/keys", {"name": "laptop"}, format="json").json()
    assert api.delete(f"/api/v1/keys/{made['id']}").json()["state"] == "revoked"
    assert api.get(f"/api/v1/keys/{made['id']}").json()["state"] == "revoked"
    assert made["id"] not in {k["id"] for k in api.get("/api/v1/keys?live=true").json()["results"]}
    assert made["id"] in {k["id"] for k in api.get("/api/v1/keys").json()["results"]}


def test_a_key_may_not_live_longer_than_the_settings_say(api: APIClient) -> None:
    answer = api.post("/api/v1/keys", {"name": "laptop", "days": 365}, format="json")
    assert answer.status_code == 422
    assert "90 days at most" in answer.json()["error"]["message"]


def test_people_are_made_moved_and_let_go(api: APIClient, project: object) -> None:
    made = api.post("/api/v1/people", {"email": "Ada@Example.com"}, format="json")
    assert made.status_code == 201
    assert made.json()["email"] == "ada@example.com"
    password, address = made.json()["password"], f"/api/v1/people/{made.json()['id']}"
    assert password not in api.get(address).content.decode()
    joined = api.post(f"{address}/join", {"level": "default/default", "role": "owner"}, format="json").json()
    assert joined["memberships"] == [{"level": "default/default", "role": "owner"}]
    assert api.post(f"{address}/leave", {"level": "default/default"}, format="json").json()["memberships"] == []
    assert api.post(f"{address}/leave", {"level": "default/default"}, format="json").status_code == 404
    assert api.post(f"{address}/reset-password").json()["password"] != password
    assert api.patch(address, {"administrator": True}, format="json").json()["administrator"] is True
    assert api.post(f"{address}/deactivate").json()["active"] is False
    assert api.post(f"{address}/activate").json()["active"] is True


def test_the_last_administrator_stays(api: APIClient, root: Person) -> None:
    answer = api.post(f"/api/v1/people/{root.public_id}/deactivate")
    assert answer.status_code == 409
    assert answer.json()["error"]["code"] == "last_administrator"


def test_lists_come_in_pages(api: APIClient) -> None:
    for number in range(5):
        api.post("/api/v1/organisations", {"name": f"o{number}"}, format="json")
    page = api.get("/api/v1/organisations?limit=2&offset=2").json()
    assert page["count"] == 6
    assert [o["name"] for o in page["results"]] == ["o1", "o2"]


@pytest.mark.parametrize("noun", ["organisations", "teams", "projects", "people", "keys"])
def test_a_list_costs_the_same_number_of_queries_however_long(
    api: APIClient, noun: str, project: object, django_assert_max_num_queries: object
) -> None:
    from tenancy.actions import keys, memberships, people, tree

    for number in range(6):
        level = tree.create_organisation(name=f"o{number}", actor="test")
        team = tree.create_team(organisation=level, name="t", actor="test")
        below = tree.create_project(team=team, name="p", actor="test")
        person = people.create(email=f"p{number}@example.com", actor="test").person
        memberships.grant(person=person, level=below, role="member", actor="test")
        keys.create(project=below, name="k", person=person, actor="test")
    with django_assert_max_num_queries(9):  # type: ignore[operator]
        assert len(api.get(f"/api/v1/{noun}").json()["results"]) >= 6


def test_limits_and_terms_of_a_level(api: APIClient) -> None:
    organisation = api.post("/api/v1/organisations", {"name": "acme"}, format="json").json()
    address = f"/api/v1/organisations/{organisation['id']}"
    api.patch(address, {"limits": {"budget": "5000", "rpm": 9}, "no_store": True}, format="json")
    changed = api.patch(address, {"limits": {"rpm": None, "period": "week"}}, format="json").json()
    assert changed["limits"] == {"rpm": None, "tpm": None, "concurrent": None, "budget": "5000.00", "period": "week"}
    assert changed["no_store"] is True
    team = api.post("/api/v1/teams", {"organisation": "acme", "name": "ml"}, format="json").json()
    assert api.get(f"/api/v1/teams/{team['id']}/allowance").json()["in_force"]["no_store"] is True
    project = api.post("/api/v1/projects", {"team": "acme/ml", "name": "train"}, format="json").json()
    address = f"/api/v1/projects/{project['id']}"
    body = {"reuse": {"ttl_s": 60}, "keep": {"hours": 1, "sample": 0.5}, "weight": 2, "time_zone": "Asia/Tokyo"}
    changed = api.patch(address, body, format="json").json()
    assert changed["reuse"] == {"ttl_s": 60.0, "any": False, "similar": None}
    assert (changed["weight"], changed["keep"], changed["time_zone"]) == (
        2.0,
        {"hours": 1.0, "sample": 0.5},
        "Asia/Tokyo",
    )
    assert api.patch(address, {"reuse": None}, format="json").json()["reuse"] is None
    assert api.patch(address, {"weight": 0}, format="json").status_code == 422
    assert api.patch(address, {"limits": {"rps": 1}}, format="json").status_code == 400
    assert api.patch(address, {"limits": {"budget": "NaN"}}, format="json").status_code == 422
    assert api.patch(f"/api/v1/teams/{team['id']}", {"weight": 2}, format="json").status_code == 400


def test_limits_of_a_key(api: APIClient) -> None:
    made = api.post("/api/v1/keys", {"name": "k", "limits": {"rpm": 5}, "band": "batch"}, format="json").json()
    assert (made["limits"]["rpm"], made["band"]) == (5, "batch")
    address = f"/api/v1/keys/{made['id']}"
    changed = api.patch(address, {"limits": {"rpm": None, "concurrent": 2}, "allow": ["tiny"]}, format="json").json()
    assert (changed["limits"]["rpm"], changed["limits"]["concurrent"], changed["allow"]) == (None, 2, ["tiny"])
    holds = api.get(f"{address}/allowance").json()["in_force"]
    assert holds["limits"] == {"rpm": 60, "tpm": 200_000, "concurrent": 2, "budget": None, "period": None}
