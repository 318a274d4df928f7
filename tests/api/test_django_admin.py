"""Django's admin: every stored object may be looked at, none is changed past its action, no secret is shown."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.apps import apps
from django.contrib import admin
from django.db.models import Model as DjangoModel
from django.test import Client, RequestFactory
from django.urls import reverse

from catalog.actions import models
from catalog.core.starter import starter
from fleet.models import Node
from llmgw.cluster.actions import settings as cluster_settings
from llmgw.cluster.models import AuditEntry
from tenancy.actions import keys, people
from tenancy.models import Key, Person, Project

pytestmark = pytest.mark.django_db
OURS = ("cluster", "tenancy", "catalog", "fleet", "gateway", "mirror")
SECRET = re.compile(r"hash|^password$|secret|proof_key|private|token$")
REGISTERED = sorted(admin.site._registry, key=lambda m: m._meta.label)


@pytest.fixture
def browser(client: Client, root: Person) -> Client:
    client.force_login(root, backend="django.contrib.auth.backends.ModelBackend")
    return client


def address(model: type[DjangoModel], page: str, *args: Any) -> str:
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{page}", args=args)


def test_every_model_of_ours_is_there() -> None:
    ours = {m for label in OURS for m in apps.get_app_config(label).get_models()}
    assert ours - set(REGISTERED) == set()


@pytest.mark.parametrize("model", REGISTERED, ids=lambda m: m._meta.label)
def test_nothing_is_added_changed_or_deleted_there(model: type[DjangoModel], root: Person) -> None:
    request = RequestFactory().get("/")
    request.user = root
    page = admin.site._registry[model]
    assert page.has_view_permission(request)
    assert not page.has_add_permission(request)
    assert not page.has_change_permission(request)
    assert not page.has_delete_permission(request)
    shown = set(page.get_fields(request)) | set(page.get_list_display(request))
    assert not {f for f in shown if isinstance(f, str) and SECRET.search(f)}
    assert "delete_selected" not in page.get_actions(request)


@pytest.mark.parametrize("model", REGISTERED, ids=lambda m: m._meta.label)
def test_every_list_opens(model: type[DjangoModel], browser: Client) -> None:
    assert browser.get(address(model, "changelist")).status_code == 200
    assert browser.get(address(model, "changelist") + "?q=x").status_code == 200
    assert browser.get(address(model, "add")).status_code == 403


def test_rows_open_and_hide_what_is_secret(browser: Client, project: Project, root: Person) -> None:
    models.add(definition=starter("tiny"), actor="test")
    cluster_settings.put(path="keys.max_ttl_days", value=30, actor="test")
    made = keys.create(project=project, name="laptop", actor="test")
    for model in REGISTERED:
        for row in model._default_manager.all():
            page = browser.get(address(model, "change", row.pk))
            assert page.status_code == 200, row
            text = page.content.decode()
            assert made.key.hash not in text
            assert root.password not in text
            assert 'name="_save"' not in text


def test_a_key_is_revoked_by_the_action_that_everybody_uses(browser: Client, project: Project) -> None:
    made = keys.create(project=project, name="laptop", actor="test").key
    form = {"action": "revoke", "_selected_action": [made.pk]}
    page = browser.post(address(Key, "changelist"), form, follow=True)
    assert "1 revoked" in page.content.decode()
    made.refresh_from_db()
    assert made.revoked_at is not None
    entry = AuditEntry.objects.filter(action="key.revoke").get()
    assert entry.actor == "root@example.com (Django admin)"


def test_a_refusal_is_a_message(browser: Client, root: Person) -> None:
    form = {"action": "deactivate", "_selected_action": [root.pk]}
    page = browser.post(address(Person, "changelist"), form, follow=True)
    assert "only administrator" in page.content.decode()
    assert Person.objects.get().is_active


def test_a_model_is_stopped_and_started(browser: Client) -> None:
    from catalog.models import Model

    models.add(definition=starter("tiny"), actor="test")
    row = Model.objects.get()
    for action, stopped in (("stop", True), ("start", False)):
        browser.post(address(Model, "changelist"), {"action": action, "_selected_action": [row.pk]})
        row.refresh_from_db()
        assert row.stopped is stopped


def test_a_node_is_cordoned_and_opened_again(browser: Client) -> None:
    node = Node.objects.create(node_id="n1")
    for action, cordoned in (("cordon", True), ("uncordon", False)):
        browser.post(address(Node, "changelist"), {"action": action, "_selected_action": [node.pk]})
        node.refresh_from_db()
        assert node.cordoned is cordoned


def test_the_door_is_the_portal_s(client: Client, member: Person) -> None:
    asked = client.get("/django-admin/", follow=False)
    assert asked.status_code == 302
    signing_in = client.get(asked.headers["Location"])
    assert signing_in.headers["Location"].startswith("/accounts/login/")
    posted = client.post("/django-admin/login/", {"username": member.email, "password": "x"})
    assert posted.status_code == 302
    client.force_login(member, backend="django.contrib.auth.backends.ModelBackend")
    assert client.get("/django-admin/", follow=True).status_code == 403
    assert client.get(address(Key, "changelist"), follow=True).status_code == 403


def test_a_password_is_changed_by_the_portal_alone(browser: Client) -> None:
    answer = browser.get("/django-admin/password_change/")
    assert answer.headers["Location"] == reverse("account_change_password")


def test_names_from_outside_are_text(browser: Client, project: Project) -> None:
    keys.create(project=project, name='"><img src=x onerror=alert(1)>', actor="test")
    people.create(email="x@example.com", name="<svg onload=alert(1)>", actor="test")
    for model in (Key, Person):
        text = browser.get(address(model, "changelist")).content.decode()
        assert "<img src=x" not in text
        assert "<svg onload" not in text
