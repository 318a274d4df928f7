"""The door for people: allauth's pages under our rules."""

from __future__ import annotations

from typing import Any

import pytest
from django.core.cache import cache
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from llmgw.cluster.models import AuditEntry
from tenancy.actions import people
from tenancy.models import Person

pytestmark = pytest.mark.django_db
Made = people.NewPassword


@pytest.fixture(autouse=True)
def _fresh_limits() -> None:
    cache.clear()


@pytest.fixture
def info() -> Made:
    return people.create(email="info@example.test", must_change_password=False, actor="test")


def sign_in(client: Client, email: str, password: str) -> Any:
    return client.post(reverse("account_login"), {"login": email, "password": password})


def signed_in(client: Client) -> bool:
    return "_auth_user_id" in client.session


def test_nobody_signs_up_by_himself(client: Client) -> None:
    page = client.get(reverse("account_signup"))
    assert "password1" not in page.content.decode()
    fields = {"email": "new@example.com", "password1": "a long enough one", "password2": "a long enough one"}
    client.post(reverse("account_signup"), fields)
    assert not Person.objects.exists()


@pytest.mark.parametrize("written", ["info@example.test", "INFO@EXAMPLE.TEST", " Info@Example.test "])
def test_an_address_is_folded_in_the_program_and_not_by_the_store(client: Client, info: Made, written: str) -> None:
    with CaptureQueriesContext(
        connection,
    ) as queries:
        sign_in(client, written, info.password)
    assert signed_in(client)
    # A store under a Turkish locale would turn `info` into `İNFO`: it is never asked to change case.
    asked = " ".join(q["sql"].upper() for q in queries)
    assert "UPPER(" not in asked
    assert "LOWER(" not in asked
    assert "LIKE" not in asked


@pytest.mark.parametrize("written", ["ınfo@example.test", "İnfo@example.test", "info@example.tést"])
def test_another_letter_is_another_address(client: Client, info: Made, written: str) -> None:
    sign_in(client, written, info.password)
    assert not signed_in(client)


def test_coming_failing_and_going_are_in_the_audit_log(client: Client, info: Made) -> None:
    sign_in(client, "INFO@example.test", "CANARY wrong password")
    sign_in(client, "CANARY-typed-into-the-wrong-field", "x")
    sign_in(client, "info@example.test", info.password)
    client.post(reverse("account_logout"))
    rows = list(AuditEntry.objects.filter(action__startswith="session.").order_by("id"))
    told = [(r.action, r.subject) for r in rows if r.subject]
    assert told == [
        ("session.refused", "info@example.test"),
        ("session.sign_in", "info@example.test"),
        ("session.sign_out", "info@example.test"),
    ]
    assert all(r.detail["address"] == "127.0.0.1" for r in rows)
    assert "CANARY" not in str([(r.actor, r.subject, r.detail) for r in AuditEntry.objects.all()])


def test_guessing_is_slowed_down(client: Client, info: Made) -> None:
    for _ in range(6):
        sign_in(client, "info@example.test", "wrong")
    sign_in(client, "info@example.test", info.password)
    assert not signed_in(client)
    assert AuditEntry.objects.filter(action="session.refused").count() <= 6


def test_an_account_that_is_not_there_is_answered_as_one_that_is(client: Client, info: Made, mailoutbox: Any) -> None:
    def told(email: str) -> tuple[int, str]:
        page = sign_in(client, email, "wrong password")
        text = page.content.decode()
        return page.status_code, text[text.find("<form") :].replace(email, "")

    known, unknown = told("info@example.test"), told("none@example.test")
    assert known[0] == unknown[0]
    reset = [
        client.post(reverse("account_reset_password"), {"email": e}) for e in ("info@example.test", "no@example.test")
    ]
    assert len({(r.status_code, r.headers.get("Location")) for r in reset}) == 1
    assert {to for mail in mailoutbox for to in mail.to} <= {"info@example.test"}


def test_whoever_is_deactivated_is_signed_out_everywhere_and_stays_out(client: Client, info: Made) -> None:
    sign_in(client, "info@example.test", info.password)
    assert signed_in(client)
    people.deactivate(person=info.person, actor="test")
    assert not signed_in(client)
    sign_in(client, "info@example.test", info.password)
    assert not signed_in(client)
    people.activate(person=info.person, actor="test")
    assert not signed_in(client)
    sign_in(client, "info@example.test", info.password)
    assert signed_in(client)


def test_a_new_password_ends_sessions_and_must_be_changed(client: Client, info: Made) -> None:
    sign_in(client, "info@example.test", info.password)
    fresh = people.reset_password(person=info.person, actor="test")
    assert not signed_in(client)
    sign_in(client, "info@example.test", info.password)
    assert not signed_in(client)
    sign_in(client, "info@example.test", fresh.password)
    assert Person.objects.get().must_change_password
    own = "a password of my own 1"
    fields = {"oldpassword": fresh.password, "password1": own, "password2": own}
    client.post(reverse("account_change_password"), fields)
    assert not Person.objects.get().must_change_password
    assert AuditEntry.objects.filter(action="person.change_password").count() == 1


def test_an_address_is_an_identity_and_not_changed_by_its_owner(client: Client, info: Made) -> None:
    sign_in(client, "info@example.test", info.password)
    for form in (
        {"action_add": "", "email": "root@example.test"},
        {"action_remove": "", "email": "info@example.test"},
        {"action_primary": "", "email": "root@example.test"},
        {"action_add": "", "email": "root@example.test"},
    ):
        client.post("/accounts/email/", form)
    assert Person.objects.get().email == "info@example.test"
    other = Client()
    sign_in(other, "root@example.test", info.password)
    assert not signed_in(other)
