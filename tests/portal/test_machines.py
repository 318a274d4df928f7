"""The pages of machines: the map of cards, fabrics, capacity; as many queries for ten nodes as for a hundred."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator

import pytest
import redis
from django.conf import settings
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from fleet.selectors import machines as selectors
from llmgw import node_figures
from llmgw.cluster import leases
from llmgw.portal import gpumap
from tests.portal import machines, seed

PAGES = ["/admin/gpus", "/admin/gpus?mode=busy", "/admin/gpus?mode=memory", "/admin/gpus?mode=draw", "/admin/gpus?view=table", "/admin/fabrics", "/admin/facility", "/admin/"]  # fmt: skip # noqa: E501


@pytest.fixture
def client_of_redis(redis_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(settings.MACHINE.redis_url) as found:
        found.delete(node_figures.KEY)
        yield found
        found.delete(node_figures.KEY)


@pytest.fixture
def hall(admin: Client, client_of_redis: redis.Redis) -> Client:
    from fleet.core.hearing import LEASE as LINK_LEASE

    leases.take(f"{LINK_LEASE}:test", "test", 60)
    machines.hall(client_of_redis)
    return admin


def _page(client: Client, address: str) -> str:
    answer = client.get(address)
    assert answer.status_code == 200, address
    return answer.content.decode()


def _box(page: str, node: str) -> str:
    found = re.search(rf'<div id="n-{node}">(.*?)</div>', page, re.S)
    assert found is not None, node
    return found[1]


def test_the_map_says_by_letter_what_works_where(hall: Client) -> None:
    page = _page(hall, "/admin/gpus")
    letter = next(k.letter for k in gpumap.keys(selectors.look().devices) if k.model == "deepseek-v3.1")
    assert _box(page, "nvl-01").count(f">{letter}</i>") == 4
    assert "4 cards: deepseek-v3.1 4" in _box(page, "nvl-01")
    assert "<i class=x>×</i>" in _box(page, "nvl-13"), "a card that cannot be used"
    assert "<i class=e>!</i>" in _box(page, "roce-02"), "a card that others hold"
    assert "<b><i" in _box(page, "mig-01"), "instances stand inside their card"
    assert _box(page, "ib-09").count("<i class=o>") == 8, "a node that is away takes nothing"


def test_what_nobody_tells_is_hatched_and_never_zero(hall: Client) -> None:
    busy = _page(hall, "/admin/gpus?mode=busy")
    assert _box(busy, "ib-09").count("<i class=u>–</i>") == 8
    assert _box(busy, "mig-01").count("<i class=u>–</i>") == 12, "no driver measures an instance"
    memory = _page(hall, "/admin/gpus?mode=memory")
    assert ">86</i>" in _box(memory, "nvl-01")
    assert 'class="l6 e">69<' in _box(memory, "roce-02")


def test_busy_is_measured_or_the_draw(hall: Client) -> None:
    rows = {(r["node"], r["device"]): r for r in selectors.gpus()}
    assert rows["nvl-01", "0"]["busy_by"] == "sm"
    drawn = rows["roce-01", "0"]
    assert drawn["busy_by"] == "draw"
    assert drawn["busy_percent"] == pytest.approx(100 * drawn["power_w"] / drawn["power_limit_w"])
    assert rows["ib-09", "0"]["busy_percent"] is None


def test_the_address_narrows_the_map(hall: Client) -> None:
    page = _page(hall, "/admin/gpus?class=l40s-45g")
    assert 'id="n-roce-01"' in page
    assert 'id="n-nvl-01"' not in page
    assert 'id="n-ib-01"' not in _page(hall, "/admin/gpus?rack=r12-07")
    assert 'id="n-nvl-01"' in _page(hall, "/admin/gpus?model=deepseek-v3.1")
    assert 'id="n-mig-02"' in _page(hall, "/admin/gpus?node=mig")
    assert "No card is like that." in _page(hall, "/admin/gpus?class=none")
    table = _page(hall, "/admin/gpus?view=table&class=l40s-45g&sort=-busy")
    assert table.count('<tr><th scope="row"') == 32


def _queries(client: Client, address: str) -> int:
    client.get(address)
    with CaptureQueriesContext(connection) as found:
        assert client.get(address).status_code == 200
    return len(found)


@pytest.mark.parametrize("address", PAGES)
def test_queries_do_not_grow_with_the_machines(admin: Client, address: str) -> None:
    before = _queries(admin, address)
    machines.hall()
    assert _queries(admin, address) <= min(before, 34)


def test_a_thousand_cards_are_a_light_page(admin: Client, client_of_redis: redis.Redis) -> None:
    from fleet.models import Node

    machines.hall(client_of_redis, more=100)
    assert sum(len(n.facts["gpus"]) for n in Node.objects.all() if n.facts) > 1000
    page = admin.get("/admin/gpus").content
    addresses = re.findall(rb'(?:href|src)="(/(?:static|words)[^"]*)"', page)
    weight = len(page) + sum(len(admin.get(a.decode().replace("&amp;", "&")).content) for a in addresses)
    assert page.count(b"<i") > 1000
    assert weight < 102_000, f"it weighs {weight} bytes"


def test_the_cluster_page_shows_what_is_wrong_first_and_not_every_machine(
    admin: Client, client_of_redis: redis.Redis
) -> None:
    from llmgw.portal import fleet

    machines.hall(client_of_redis, more=100)
    found = fleet.load()
    wrong = [n["node"] for n in found.nodes if n["state"] != "ready"][: fleet.MOST_WRONG]
    assert len(found.nodes) > 100
    assert [n["node"] for n in found.first_nodes][: len(wrong)] == wrong
    assert len(found.first_nodes) <= max(fleet.SHOWN, len(wrong))
    assert len(found.first_replicas) == min(len(found.replicas), fleet.SHOWN)
    waiting = [fleet.WAITING.index(r["state"]) for r in found.waiting]
    assert waiting == sorted(waiting)
    page = admin.get("/admin/").content.decode()
    assert page.count('href="/admin/nodes/') < len(found.nodes)


def test_lists_begin_with_what_is_wrong_and_show_a_phone_twelve(hall: Client) -> None:
    nodes = re.findall(r'<th scope="row"><a href="/admin/nodes/([^"]*)"', _page(hall, "/admin/nodes"))
    assert set(nodes[:2]) == {"ib-09", "node-3"}, "those that are away"
    assert set(nodes[2:4]) == {"node-2", "roce-04"}, "those that take nothing new"
    states = re.findall(r'<span class="state (\w+)">', _page(hall, "/admin/replicas"))
    assert states == sorted(states, key=["bad", "busy", "good"].index)
    assert 'data-fresh class=" short"' in _page(hall, "/admin/nodes")
    assert f'?all=1">{len(nodes) - 12} more<' in _page(hall, "/admin/nodes")
    assert 'data-fresh class=""' in _page(hall, "/admin/nodes?all=1")
    cards = _page(hall, "/admin/nodes/mig-01")
    assert '?all=1#devices">4 more<' in cards


def test_names_that_others_wrote_stay_text(admin: Client) -> None:
    from fleet.models import Node, Replica, Shard

    evil = '"><img src=x onerror=alert(1)>'
    node = Node.objects.create(
        node_id="hostile", connected=True, labels={"llmgw.io/rack": evil},
        facts={"gpus": [machines.gpu(0, gpu_class=evil, problem=None), machines.gpu(1, name=evil, gpu_class=None, problem=evil)]},  # noqa: E501
    )  # fmt: skip
    replica = Replica.objects.create(public_id="r-hostile", model=evil, state="ready")
    Shard.objects.create(replica=replica, node=node, port=19999, devices=[0])
    for address in [*PAGES, "/admin/nodes/hostile"]:
        page = _page(admin, address)
        assert "<img src=x" not in page
    assert html.escape(evil) in _page(admin, "/admin/gpus")


def test_the_live_part_is_what_the_page_shows(hall: Client, seeded: seed.Seeded) -> None:
    page = _page(hall, "/admin/gpus?mode=busy")
    for part, inner in gpumap.render(selectors.look(), "en", "busy").items():
        assert f'<div id="{part}">{inner}</div>' in page


def test_a_domain_is_a_rack_with_holes_where_nodes_dropped_out(hall: Client) -> None:
    page = _page(hall, "/admin/fabrics")
    assert page.count('class="hole"') == 2
    assert "2 dropped out" in page
    assert "have not joined its NVLink domain" in page
    assert "nvidia-imex does not run" in page
    assert "are named ib-a" in page, "two fabrics under one name"
    assert "RoCE" in page


def test_the_cluster_page_says_what_there_is_and_what_it_does(hall: Client) -> None:
    page = _page(hall, "/admin/")
    row = re.search(r"<tr><th[^>]*><a[^>]*><bdi>gb200-184g</bdi>(.*?)</tr>", page, re.S)
    assert row is not None
    assert re.findall(r'<td class="n">(\d+)</td>', row[1]) == ["48", "23", "1", "72"]
    assert "Which models are idle is not known" in page, "no gateway runs here"


def test_a_rack_is_held_capped_and_released(hall: Client) -> None:
    def post(**said: str) -> str:
        answer = hall.post("/admin/facility/change", {"kind": "rack", "name": "r12-07", **said}, follow=True)
        assert answer.status_code == 200
        return answer.content.decode()

    assert "Nothing new is placed in r12-07" in post(what="hold")
    assert ">held<" in _page(hall, "/admin/facility")
    assert "r12-07 takes replicas again" in post(what="release")
    assert "The cap of r12-07 is changed" in post(what="cap", kw="120,5")
    assert 'max="120500"' in _page(hall, "/admin/facility")
    answer = hall.post("/admin/facility/change", {"kind": "rack", "name": "r12-07", "what": "cap", "kw": "much"})
    assert answer.status_code == 422 or "kilowatts" in answer.content.decode()


def test_a_node_says_where_it_stands_and_what_it_reaches(hall: Client) -> None:
    page = _page(hall, "/admin/nodes/ib-01")
    assert "sto1/r14/r14-01" in page
    assert "infiniband" in page


def test_a_nodes_cards_are_drawn_by_where_they_hang(hall: Client) -> None:
    from fleet.models import Node

    page = _page(hall, "/admin/nodes/ib-04")
    assert "An NVSwitch joins all cards." in page
    assert "mlx5_5:1 ×" in page, "a port that is down"
    node = Node.objects.get(node_id="roce-01")
    node.facts["gpus"][0] |= {"nvlinks": [{"peer": 1, "links": 4}]}
    node.facts["gpus"][1] |= {"nvlinks": [{"peer": 0, "links": 4}]}
    node.reported_at = timezone.now()
    node.save()
    page = _page(hall, "/admin/nodes/roce-01")
    assert "NVLinks between cards" in page


def test_a_replica_over_several_nodes_tells_each_rank(hall: Client) -> None:
    page = _page(hall, "/admin/replicas/r-fa00000001")
    for node in ("nvl-01", "nvl-02", "nvl-03", "nvl-04"):
        assert f"<bdi>{node}</bdi>" in page
    assert "88.5 s" in page
