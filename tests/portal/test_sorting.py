"""Tables are sorted by the address: by whatever is known, unknown last, and the filter stays."""

from __future__ import annotations

import re

import pytest
from django.test import Client

from llmgw.portal import listing
from llmgw.portal.pages import account, audit, models, nodes, people, replicas, requests, tenants
from tests.portal import seed

pytestmark = pytest.mark.django_db

TABLES = [
    ("/account", account.COLUMNS),
    ("/admin/audit", audit.COLUMNS),
    ("/admin/models", models.COLUMNS),
    ("/admin/nodes", nodes.COLUMNS),
    ("/admin/people", people.COLUMNS),
    ("/admin/replicas", replicas.COLUMNS),
    ("/admin/requests", requests.COLUMNS),
    ("/admin/tenants", tenants.COLUMNS),
]


@pytest.mark.parametrize(("address", "columns"), TABLES)
def test_every_head_sorts_both_ways(admin: Client, address: str, columns: dict[str, str]) -> None:
    plain = admin.get(address).content.decode()
    assert "aria-sort" not in plain
    for name, field in columns.items():
        first = f"-{name}" if field.startswith("-") else name
        assert f'href="?sort={first}"' in plain, name
        sorted_page = admin.get(address, {"sort": first}).content.decode()
        way = "descending" if first.startswith("-") else "ascending"
        other = name if first.startswith("-") else f"-{name}"
        assert re.search(rf'<th scope="col"[^>]* aria-sort="{way}"><a href="\?sort={other}">', sorted_page), name
        assert sorted_page.count("aria-sort") == 1
        assert admin.get(address, {"sort": other}).status_code == 200


@pytest.mark.parametrize("nonsense", ["nothing", "-", "--at", "at__lt", "password", "-person__password", "\x00", "1"])
@pytest.mark.parametrize("address", [address for address, _columns in TABLES])
def test_nonsense_is_no_order(admin: Client, address: str, nonsense: str) -> None:
    answer = admin.get(address, {"sort": nonsense})
    assert answer.status_code == 200
    assert "aria-sort" not in answer.content.decode()


def test_the_filter_stays_and_the_page_begins_anew(admin: Client) -> None:
    page = admin.get("/admin/requests", {"model": "tiny", "sort": "-at", "page": "1"}).content.decode()
    assert 'href="?model=tiny&amp;sort=at"' in page
    assert '<input type="hidden" name="sort" value="-at">' in page
    assert 'value="name"' in admin.get("/admin/people", {"q": "ada", "sort": "name"}).content.decode()


def _ids(client: Client, address: str, pattern: str) -> list[str]:
    return re.findall(pattern, client.get(address).content.decode())


def test_rows_come_in_the_order_that_was_asked(admin: Client) -> None:
    cells = r'<th scope="row"><a href="/admin/nodes/(node-\d)"'
    assert _ids(admin, "/admin/nodes?sort=-node", cells) == ["node-3", "node-2", "node-1"]
    for way in ("-cores", "cores"):
        assert _ids(admin, f"/admin/nodes?sort={way}", cells)[-1] == "node-3", "what is unknown comes last"
    requests_ = r'<a href="/admin/requests/(req_\d+)"'
    newest = _ids(admin, "/admin/requests", requests_)
    assert _ids(admin, "/admin/requests?sort=-at", requests_) == newest
    assert _ids(admin, "/admin/requests?sort=at", requests_) == newest[::-1]
    assert _ids(admin, "/admin/requests?sort=-duration", requests_) == newest[::-1]


def test_people_are_sorted_as_they_are_searched() -> None:
    order = listing.Sorting({"name": "name"}, "name")
    names = [{"name": n} for n in ("Zeynep", "İlkay", "ada", "", "Çağla", "Ilgaz", None)]
    assert [r["name"] for r in listing.ordered(names, order)] == ["ada", "Çağla", "Ilgaz", "İlkay", "Zeynep", "", None]


def test_rows_of_others_sort_as_text(admin: Client, seeded: seed.Seeded) -> None:
    for payload in ("<svg/onload=alert(1)>", '"><img src=x onerror=alert(1)>'):
        page = admin.get("/admin/audit", {"q": payload, "sort": "who"}).content.decode()
        assert payload not in page
