"""Signing in and what a person does with his own account."""

from __future__ import annotations

import re
import time

import pytest
from django.core.cache import cache
from django.test import Client

from llmgw import keys, secrets
from tests.portal import seed

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def _no_rate_limits_from_before() -> None:
    cache.clear()


def _sign_in(client: Client, email: str, password: str = seed.PASSWORD):  # type: ignore[no-untyped-def]
    return client.post("/accounts/login/", {"login": email, "password": password})


@pytest.mark.parametrize("email", [seed.ADMIN, "ADA@EXAMPLE.COM", " Ada@Example.com "])
def test_an_address_is_folded_by_the_program(client: Client, seeded: seed.Seeded, email: str) -> None:
    answer = _sign_in(client, email)
    assert (answer.status_code, answer["Location"]) == (302, "/")


def test_sign_up_is_closed(client: Client, seeded: seed.Seeded) -> None:
    assert "llmgw user create" in client.get("/accounts/signup/").content.decode()
    posted = client.post(
        "/accounts/signup/", {"email": "new@example.com", "password1": "x" * 14, "password2": "x" * 14}
    )
    assert type(seeded.admin).objects.filter(email="new@example.com").count() == 0
    assert posted.status_code in (200, 302)


def test_a_given_password_is_changed_first(client: Client, seeded: seed.Seeded) -> None:
    from tenancy.actions import people

    made = people.create(email="new@example.com", actor="test")
    _sign_in(client, "new@example.com", made.password)
    for address in ("/", "/account", "/chat"):
        assert client.get(address)["Location"] == "/accounts/password/change/"
    assert client.post("/chat/token", {"project": seeded.project.public_id}).status_code == 302
    page = client.get("/accounts/password/change/")
    assert page.status_code == 200
    own = "a password of my own"
    client.post("/accounts/password/change/", {"oldpassword": made.password, "password1": own, "password2": own})
    assert client.get("/").status_code == 200
    made.person.refresh_from_db()
    assert not made.person.must_change_password


def test_behind_the_unix_socket_the_client_is_whom_the_edge_saw(client: Client, seeded: seed.Seeded) -> None:
    """allauth refuses somebody without an address with 403."""
    answer = client.post(
        "/accounts/login/",
        {"login": seed.ADMIN, "password": seed.PASSWORD},
        REMOTE_ADDR="",
        HTTP_X_FORWARDED_FOR="192.0.2.7",
    )
    assert answer.status_code == 302


def test_the_chat_token_speaks_for_the_person_and_the_project(member: Client, seeded: seed.Seeded) -> None:
    from django.conf import settings

    answer = member.post("/chat/token", {"project": seeded.project.public_id})
    body = answer.json()
    secret = secrets.read_or_make(settings.MACHINE.secrets_dir, "chat")
    token = keys.verify_chat(secret, body["token"], time.time())
    assert token is not None
    assert (token.person, token.project) == (seeded.member.public_id, seeded.project.public_id)
    assert 290 < token.expires_at - time.time() <= 300
    assert answer["Cache-Control"].startswith("max-age=0")


def test_no_token_for_a_project_of_others_and_none_for_strangers(member: Client, seeded: seed.Seeded) -> None:
    from tenancy.actions import tree

    other = tree.create_project(team=seeded.project.team, name="other", actor="test")
    assert member.post("/chat/token", {"project": other.public_id}).status_code == 404
    assert Client().post("/chat/token", {"project": seeded.project.public_id}).status_code == 401
    assert Client(enforce_csrf_checks=True).post("/chat/token").status_code == 403


def test_a_key_is_shown_once_and_its_name_kept(member: Client, seeded: seed.Seeded) -> None:
    answer = member.post("/account", {"name": "my laptop", "project": seeded.project.public_id, "days": "7"})
    secret = re.search(r"llmgw_[\w-]{43}", answer.content.decode())
    assert secret
    assert "no-store" in answer["Cache-Control"]
    page = member.get("/account").content.decode()
    assert secret[0] not in page
    assert "my laptop" in page


def test_a_key_that_lives_too_long_is_refused_in_words(member: Client, seeded: seed.Seeded) -> None:
    answer = member.post("/account", {"name": "long", "project": seeded.project.public_id, "days": "400"})
    assert "errorlist" in answer.content.decode()


def test_a_member_cannot_revoke_a_key_of_others(member: Client, seeded: seed.Seeded) -> None:
    answer = member.post(f"/account/keys/{seeded.key.public_id}/revoke")
    assert answer.status_code == 404
    seeded.key.refresh_from_db()
    assert seeded.key.revoked_at is None


def test_language_and_theme_are_kept(member: Client, seeded: seed.Seeded) -> None:
    answer = member.post("/preferences", {"language": "tr", "next": "/account"})
    assert answer["Location"] == "/account"
    assert '<html lang="tr"' in member.get("/account").content.decode()
    seeded.member.refresh_from_db()
    assert seeded.member.language == "tr"
    member.post("/preferences", {"theme": "dark"})
    assert 'data-theme="dark"' in member.get("/account").content.decode()


def test_a_person_s_language_follows_to_another_browser(seeded: seed.Seeded) -> None:
    type(seeded.member).objects.filter(pk=seeded.member.pk).update(language="tr")
    client = Client()
    client.force_login(seeded.member, backend="django.contrib.auth.backends.ModelBackend")
    assert '<html lang="tr"' in client.get("/account").content.decode()


def test_an_account_is_made_and_its_password_shown_once(admin: Client, seeded: seed.Seeded) -> None:
    answer = admin.post("/admin/people", {"email": "New@Example.com", "name": "New"})
    page = answer.content.decode()
    assert 'id="made-password"' in page
    assert "new@example.com" in page.casefold()
    again = admin.post("/admin/people", {"email": "new@example.com", "name": "Twice"}).content.decode()
    assert "already an account" in again
    assert "already an account" in admin.post("/admin/people", {"email": "NEW@EXAMPLE.COM"}).content.decode()


def test_people_are_found_with_and_without_dots(admin: Client) -> None:
    for query in ("ilkay", "İLKAY", "IŞIK", "isik"):
        assert "İlkay Işık" in admin.get("/admin/people", {"q": query}).content.decode(), query
    assert "assistants" in admin.get("/admin/tenants", {"q": "istanbul"}).content.decode()


def test_settings_are_saved_with_their_base_and_rolled_back(admin: Client) -> None:
    stale = admin.post("/admin/settings", {"base": "0", "document": "gateway: {retries: 5}"}).content.decode()
    assert "read it and try again" in stale
    bad = admin.post("/admin/settings", {"base": "1", "document": "gateway: {nonsense: 5}"}).content.decode()
    assert "gateway.nonsense" in bad
    saved = admin.post("/admin/settings", {"base": "1", "document": "gateway: {retries: 5}", "note": "more"})
    assert saved.status_code == 302
    assert "retries: 5" in admin.get("/admin/settings").content.decode()
    assert admin.post("/admin/settings/1/rollback").status_code == 302
    from llmgw.cluster.actions import settings

    assert settings.current() == (3, {"gateway": {"retries": 3}})


def test_a_model_is_stopped_and_started(admin: Client) -> None:
    from catalog.models import Model

    admin.post("/admin/models/tiny/change", {"what": "stop"})
    assert Model.objects.get(name="tiny").stopped
    admin.post("/admin/models/tiny/change", {"what": "start"})
    assert not Model.objects.get(name="tiny").stopped
