"""Every address of the API: closed to strangers, to members, and to keys of other scopes; and told in the schema."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command
from rest_framework.test import APIClient

from llmgw.portal.api.urls import urlpatterns
from tenancy.actions import keys, people
from tenancy.bootstrap import First
from tenancy.models import Key, Person, Project

pytestmark = pytest.mark.django_db
METHODS = ("get", "post", "put", "patch", "delete")


def addresses() -> list[str]:
    """Every route, its parameters filled in with something."""
    found = []
    for outer in urlpatterns:
        for route in getattr(outer, "url_patterns", [outer]):
            text = str(route.pattern).removeprefix("^").removesuffix("$").removesuffix("\\Z")
            while "(?P<" in text:
                start = text.index("(?P<")
                text = text[:start] + "0" * 16 + text[text.index(")", start) + 1 :]
            found.append(f"/api/v1/{text}")
    return found


ADDRESSES = addresses()


def test_there_are_routes_for_the_nouns() -> None:
    nouns = {a.split("/")[3] for a in ADDRESSES}
    assert nouns >= {
        "schema", "models", "organisations", "teams", "projects", "people", "keys", "settings", "audit",
        "nodes", "replicas", "certificates", "requests", "usage",
    }  # fmt: skip


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_stranger_is_asked_for_a_key(address: str) -> None:
    for method in METHODS:
        answer = getattr(APIClient(), method)(address)
        assert answer.status_code == 401, method
        assert answer.headers["WWW-Authenticate"].startswith("Bearer")
        assert answer.data["error"]["message"]


@pytest.mark.parametrize("address", ADDRESSES)
def test_a_member_is_refused_by_session_and_by_key(address: str, member: Person, project: Project) -> None:
    session = APIClient()
    session.force_login(member, backend="django.contrib.auth.backends.ModelBackend")
    made = keys.create(project=project, name="mine", person=member, actor="test")
    by_key = APIClient(HTTP_AUTHORIZATION=f"Bearer {made.secret}")
    for method in METHODS:
        assert getattr(session, method)(address).status_code == 403, method
        assert getattr(by_key, method)(address).status_code == 401, method


def test_the_schema_is_made_without_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    call_command("spectacular", fail_on_warn=True, validate=True)
    schema = yaml.safe_load(capsys.readouterr().out)
    assert schema["openapi"].startswith("3.")
    assert "/api/v1/keys/{id}" in schema["paths"]


def test_the_schema_is_served(api: APIClient) -> None:
    answer = api.get("/api/v1/schema")
    assert answer.status_code == 200
    assert b"/api/v1/models/{name}/stop" in answer.content


class TestAdminKeys:
    def test_it_opens_and_its_use_is_remembered(self, api: APIClient, admin_key: keys.NewKey) -> None:
        assert api.get("/api/v1/people").status_code == 200
        assert Key.objects.get(pk=admin_key.key.pk).last_used_at is not None

    def test_a_revoked_one_is_refused_at_once(self, api: APIClient, admin_key: keys.NewKey) -> None:
        keys.revoke(key=admin_key.key, actor="test")
        answer = api.get("/api/v1/people")
        assert answer.status_code == 401
        assert "revoked" in answer.json()["error"]["message"]

    def test_an_expired_one_is_refused(self, api: APIClient, admin_key: keys.NewKey) -> None:
        Key.objects.filter(pk=admin_key.key.pk).update(expires_at="2020-01-01T00:00:00Z")
        assert api.get("/api/v1/people").status_code == 401

    def test_it_falls_with_its_person(self, api: APIClient, root: Person) -> None:
        people.create(email="second@example.com", administrator=True, actor="test")
        people.set_administrator(person=root, administrator=False, actor="test")
        assert api.get("/api/v1/people").status_code == 401

    def test_one_that_was_never_made_is_refused_without_repeating_it(self, first: First) -> None:
        canary = "llmgw_CANARY-CLIENT-KEY-1234567890"
        answer = APIClient().get("/api/v1/people", headers={"Authorization": f"Bearer {canary}"})
        assert answer.status_code == 401
        assert "CANARY" not in answer.content.decode()

    def test_a_key_in_the_address_opens_nothing(self, admin_key: keys.NewKey) -> None:
        assert APIClient().get(f"/api/v1/people?key={admin_key.secret}").status_code == 401


class TestSessions:
    def test_an_administrator_needs_the_page_s_token_for_a_change(self, root: Person) -> None:
        client = APIClient(enforce_csrf_checks=True)
        client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
        assert client.get("/api/v1/keys").status_code == 200
        assert client.post("/api/v1/organisations", {"name": "acme"}, format="json").status_code == 403

    def test_a_password_that_was_given_opens_nothing(self, root: Person) -> None:
        made = people.create(email="new@example.com", administrator=True, actor="test")
        client = APIClient()
        client.force_login(made.person, backend="django.contrib.auth.backends.ModelBackend")
        assert client.get("/api/v1/keys").status_code == 403


def test_the_page_in_docs_names_every_noun_and_no_other() -> None:
    page = (Path(__file__).parents[2] / "docs" / "api.md").read_text()
    told = set(re.findall(r"^\| `/([a-z-]+)` \|", page, re.MULTILINE))
    assert told == {a.split("/")[3] for a in ADDRESSES} - {"schema"}
