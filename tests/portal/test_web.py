"""The web process itself: its socket, its end, its streams with one look a second in all."""

from __future__ import annotations

import contextlib
import re
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.portal import seed
from tests.portal.house import House, WebProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def web(house: House) -> Iterator[WebProcess]:
    """A second web process on the house's store, on TCP."""
    process = WebProcess(house.home, house.web.redis_url)
    process.start(tcp=True)
    process.wait_until_it_answers(process.url)
    yield process
    if process.process is not None and process.process.poll() is None:
        process.stop()


def _signed_in(url: str) -> httpx.Client:
    client = httpx.Client(base_url=url, timeout=20)
    token = re.search(r'csrfmiddlewaretoken" value="(\w+)"', client.get("/accounts/login/").text)
    assert token
    form = {"login": seed.ADMIN, "password": seed.PASSWORD, "csrfmiddlewaretoken": token[1]}
    assert client.post("/accounts/login/", data=form).status_code == 302
    return client


def test_the_socket_is_closed_to_others(house: House) -> None:
    run = next(p for p in (house.home / "run", *Path("/tmp").glob("llmgw-*")) if (p / "web.sock").exists())
    assert stat.S_IMODE(run.stat().st_mode) == 0o700
    assert stat.S_IMODE((run / "web.sock").stat().st_mode) == 0o600


def test_many_watch_and_the_end_is_quick(web: WebProcess) -> None:
    client = _signed_in(web.url)
    cookies = "; ".join(f"{name}={value}" for name, value in client.cookies.items())
    client.close()
    first: list[str] = []
    seen = threading.Event()

    def watch(keep: bool) -> None:
        with (
            contextlib.suppress(httpx.HTTPError),
            httpx.Client(base_url=web.url, timeout=30, headers={"cookie": cookies}) as own,
            own.stream("GET", "/admin/live") as answer,
        ):
            for line in answer.iter_lines():
                if keep:
                    first.append(line)
                    if '"part-replicas"' in line:
                        seen.set()

    threads = [threading.Thread(target=watch, args=(n == 0,)) for n in range(20)]
    for thread in threads:
        thread.start()
    arrived = seen.wait(30)
    took = web.stop()
    for thread in threads:
        thread.join(10)
    assert arrived, first
    assert took <= 3.5, f"ending with open streams took {took:.1f} s"


def test_live_is_for_administrators(web: WebProcess) -> None:
    assert httpx.get(web.url + "/admin/live", timeout=20).status_code == 403


def test_a_static_file_may_be_kept_for_ever_by_its_version(web: WebProcess) -> None:
    page = httpx.get(web.url + "/", timeout=20).text
    address = re.search(r'href="(/static/portal/portal\.css\?v=\w+)"', page)
    assert address
    answer = httpx.get(web.url + address[1])
    assert "immutable" in answer.headers["cache-control"]
    assert answer.headers["content-type"].startswith("text/css")
    assert "access-control-allow-origin" not in answer.headers
    assert httpx.get(web.url + address[1], headers={"if-none-match": answer.headers.get("etag", "-")}).status_code in (
        200,
        304,
    )
    assert httpx.head(web.url + address[1]).status_code == 200


def test_another_one_on_the_same_socket_is_refused(house: House) -> None:
    second = WebProcess(house.home, house.web.redis_url)
    second.start()
    assert second.process is not None
    assert second.process.wait(30) != 0
    assert "another web process" in second.log


def test_killed_it_comes_back_on_its_socket(house: House) -> None:
    assert house.web.process is not None
    house.web.process.kill()
    house.web.process.wait(5)
    house.web.start()
    house.web.wait_until_it_answers(house.url)
