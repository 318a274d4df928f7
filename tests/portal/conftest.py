"""Pages over Django's client, and a browser on the real web process."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.test import Client
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.portal import seed
from tests.portal.house import House, close_house, open_house

ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(autouse=True)
def _quick_passwords(settings: Any) -> None:
    """The real hash takes a quarter of a second by intent; browsers sign in with the real one."""
    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]


@pytest.fixture
def seeded(db: None) -> seed.Seeded:
    return seed.fill()


@pytest.fixture
def admin(seeded: seed.Seeded) -> Client:
    client = Client()
    client.force_login(seeded.admin, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture
def member(seeded: seed.Seeded) -> Client:
    client = Client()
    client.force_login(seeded.member, backend="django.contrib.auth.backends.ModelBackend")
    return client


@pytest.fixture(scope="session")
def house(redis_url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    made = open_house(tmp_path_factory.mktemp("house"), f"{redis_url}?db=15")
    yield made
    close_house(made)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    """For one module: while it is open, its event loop runs in this thread, and asynchronous tests cannot."""
    path = shutil.which("chromium")
    if path is None:
        pytest.skip("there is no chromium: apt-get install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def signed_in(house: House, chromium: Browser) -> Any:
    """The cookies of an administrator who signed in by the form, through edge and unix socket."""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(house.url + "/accounts/login/")
    page.fill("[name=login]", seed.ADMIN.upper())  # an address is folded by the program
    page.fill("[name=password]", seed.PASSWORD)
    page.keyboard.press("Enter")
    page.wait_for_url(house.url + "/", timeout=30_000)
    state = context.storage_state()
    context.close()
    return state


@pytest.fixture
def open_page(house: House, chromium: Browser, signed_in: Any) -> Iterator[Callable[..., Page]]:
    """A page of a fresh context; whatever the browser complained about, or asked of elsewhere, fails the test."""
    contexts: list[BrowserContext] = []
    complaints: list[str] = []

    def open_(
        path: str, *, stranger: bool = False, language: str = "en", expected: str = "nothing", **options: Any
    ) -> Page:
        state = None if stranger else signed_in
        context = chromium.new_context(storage_state=state, locale="en-GB", reduced_motion="reduce", **options)
        contexts.append(context)
        context.add_cookies([{"name": "llmgw_lang", "value": language, "url": house.url}])
        page = context.new_page()
        page.on(
            "console",
            lambda m: (
                complaints.append(f"{m.text} {m.location['url']}")
                if m.type in ("error", "warning") and expected not in m.text
                else None
            ),
        )
        page.on("pageerror", lambda e: complaints.append(str(e)))
        page.on("dialog", lambda d: (complaints.append(f"a dialog: {d.message}"), d.dismiss()))
        page.on("request", lambda r: None if r.url.startswith((house.url, "data:")) else complaints.append(r.url))
        page.goto(house.url + path)
        return page

    yield open_
    for context in contexts:
        context.close()
    assert complaints == []
