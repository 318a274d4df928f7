"""What a person sees in a real browser, through the edge: chat, live pages, keyboard, contrast, hostile strings."""

from __future__ import annotations

import contextlib
import json
import re
import sqlite3
import time
from collections.abc import Callable, Iterator

import pytest
import redis
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page, expect

from agent.wire.facts import GpuFigures
from llmgw import node_figures
from tests.portal import house as houses
from tests.portal import seed
from tests.portal.house import House
from tests.portal.payloads import PAYLOADS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]
Open = Callable[..., Page]

PLAN = """# A plan

Here is **bold**, *italic*, `code` and a [link](https://example.com).

1. First
2. Second
   - nested

| Name | Tokens |
|------|-------:|
| tiny | 1024 |

```python
def add(a, b):
    return a + b
```

> quoted

<b>not bold</b>
"""


def _chat(open_page: Open, **options: object) -> Page:
    page = open_page("/chat", **options)
    page.wait_for_selector("#model:not([disabled])")
    return page


def _ask(page: Page, text: str) -> None:
    page.fill("#text", text)
    page.keyboard.press("Enter")


def _answered(page: Page) -> None:
    page.wait_for_selector("#stop", state="hidden")


def test_chat_streams_and_draws_markdown(open_page: Open, house: House) -> None:
    houses.ANSWERS["plan"] = PLAN
    page = _chat(open_page)
    _ask(page, "plan")
    answer = page.locator(".turn.theirs .md")
    expect(answer.locator("blockquote")).to_have_text("quoted")
    _answered(page)
    assert answer.locator("strong").inner_text() == "bold"
    assert answer.locator("ol > li").count() == 2
    assert answer.locator("ol ul li").inner_text() == "nested"
    assert answer.locator("td").all_inner_texts() == ["tiny", "1024"]
    assert answer.locator("pre code").inner_text() == "def add(a, b):\n    return a + b"
    assert answer.locator("a").get_attribute("rel") == "noopener noreferrer nofollow"
    assert "<b>not bold</b>" in answer.inner_text()
    assert "tokens" in page.locator(".turn.theirs .meta").inner_text()
    assert "A plan" in page.locator("#said").inner_text(), "a screen reader hears the answer"


def test_esc_stops_and_frees_the_engine(open_page: Open, house: House) -> None:
    page = _chat(open_page)
    before = house.engine.left
    _ask(page, "count")
    expect(page.locator(".turn.theirs .body")).to_contain_text("3 ")
    page.keyboard.press("Escape")
    _answered(page)
    expect(page.locator(".turn.theirs .meta")).to_contain_text("stopped")
    deadline = time.monotonic() + 3
    while house.engine.left == before:
        assert time.monotonic() < deadline, "the engine goes on for nobody"
        time.sleep(0.02)


def test_regenerate_edit_new_and_reload(open_page: Open, house: House) -> None:
    houses.ANSWERS.update({"first": "one", "second": "two"})
    page = _chat(open_page)
    page.locator(".options summary").click()
    page.fill("#system", "be short")
    page.fill("#temperature", "0.5")
    page.keyboard.press("Tab")
    _ask(page, "first")
    _answered(page)
    page.get_by_role("button", name="Answer again").click()
    _answered(page)
    asked = house.engine.asked[-1]
    assert asked["temperature"] == 0.5
    assert asked["messages"] == [{"role": "system", "content": "be short"}, {"role": "user", "content": "first"}]
    page.reload()
    expect(page.locator(".turn.theirs .body")).to_have_text("one")
    page.get_by_role("button", name="Edit").click()
    _ask(page, "second")
    _answered(page)
    assert page.locator(".turn .body").all_inner_texts() == ["second", "two"]
    page.locator("#fresh").click()
    assert page.locator(".turn").count() == 0


def test_shift_enter_is_a_new_line(open_page: Open) -> None:
    page = _chat(open_page)
    page.fill("#text", "a")
    page.keyboard.press("Shift+Enter")
    page.keyboard.type("b")
    assert page.input_value("#text") == "a\nb"


@pytest.mark.parametrize("payload", PAYLOADS)
def test_a_model_that_attacks_is_shown_as_text(open_page: Open, house: House, payload: str) -> None:
    houses.ANSWERS["attack"] = (
        f"{payload}\n\n- {payload}\n\n| {payload.replace('|', '')} |\n|---|\n| x |\n\n```\n{payload}\n```"
    )
    page = _chat(open_page)
    _ask(page, "attack")
    _answered(page)
    answer = page.locator(".turn.theirs .md")
    assert answer.locator("img, svg:not(.icon), script, iframe, object").count() == 0
    assert answer.locator("a[href^='javascript']").count() == 0
    assert answer.locator("pre code").inner_text() == payload
    page.wait_for_timeout(50)


def test_a_refusal_is_told_in_words(open_page: Open, house: House) -> None:
    page = open_page("/chat", expected="status of 404")
    page.wait_for_selector("#model:not([disabled])")
    page.evaluate("document.querySelector('#model').add(new Option('gone', 'gone'))")
    page.select_option("#model", "gone")
    with page.expect_response("**/v1/chat/completions") as found:
        _ask(page, "hello")
    assert found.value.status == 404
    expect(page.locator(".trouble strong")).to_have_text("There is no such model.")


def test_the_cluster_page_is_live(open_page: Open, house: House) -> None:
    page = open_page("/admin/")
    expect(page.locator("#live-sign")).to_have_text("live")
    expect(page.locator("#part-figures")).to_contain_text("Requests now")
    first = page.locator("#part-figures dd").first
    expect(first).to_have_text("0")
    other = _chat(open_page)
    _ask(other, "count")
    expect(first).to_have_text("1", timeout=8000)
    other.keyboard.press("Escape")
    _answered(other)
    expect(first).to_have_text("0", timeout=8000)


def test_the_map_of_cards_follows_what_they_do(open_page: Open, house: House) -> None:
    page = open_page("/admin/gpus?mode=busy")
    expect(page.locator("#live-sign")).to_have_text("live")
    told = node_figures.Told(at=time.time() + 60, gpus=(GpuFigures(0, sm_active_percent=33.0),))
    with redis.Redis.from_url(house.web.redis_url) as client:
        client.hset(node_figures.KEY, "node-2", node_figures.encode(told))
        try:
            expect(page.locator("#n-node-2")).to_contain_text("33", timeout=10_000)
        finally:
            client.hdel(node_figures.KEY, "node-2")


def test_a_page_of_one_replica_follows_what_moves(open_page: Open, house: House) -> None:
    page = open_page("/admin/replicas/r-0000000003")
    expect(page.locator("#live-sign")).to_have_text("live")
    page.wait_for_timeout(1500)  # the first look is what later ones are compared with
    with contextlib.closing(sqlite3.connect(house.home / "db.sqlite3", timeout=20)) as store, store:
        store.execute("UPDATE fleet_replica SET reason = 'the disk is full' WHERE public_id = 'r-0000000003'")
    expect(page.locator("#fresh .note")).to_have_text("the disk is full", timeout=10_000)


def test_a_log_is_asked_for_when_it_is_opened(open_page: Open) -> None:
    page = open_page("/admin/replicas/r-0000000005")
    expect(page.locator("#live-sign")).to_have_text("live")
    page.locator("details[data-load] summary").click()
    expect(page.locator("#log .trouble")).to_contain_text("cannot be read now")


def test_ctrl_k_finds_a_model_and_a_page_with_a_turkish_name(open_page: Open) -> None:
    page = open_page("/", language="tr")
    page.keyboard.press("Control+k")
    page.keyboard.type("istekler")
    expect(page.locator("[role=option]").first).to_contain_text("İstekler")
    page.keyboard.press("ControlOrMeta+a")
    page.keyboard.type("qwen")
    expect(page.locator("[role=option]").first).to_contain_text("qwen2.5-72b")
    page.keyboard.press("Enter")
    page.wait_for_url("**/admin/models/qwen2.5-72b")


def test_theme_and_language_switch(open_page: Open) -> None:
    page = open_page("/")
    page.get_by_role("button", name="Dark").click()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.wait_for_timeout(300)
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.get_by_role("button", name="Türkçe").click()
    expect(page.locator("html")).to_have_attribute("lang", "tr")
    expect(page.locator("h1")).to_have_text("Ana sayfa")


def test_a_key_is_made_once_and_revoked_after_asking(open_page: Open) -> None:
    page = open_page("/account")
    page.fill("[name=name]", "<img src=x onerror=alert(1)>")
    page.get_by_role("button", name="Make a key").click()
    secret = page.locator("#made-key").inner_text()
    assert re.fullmatch(r"llmgw_[\w-]{43}", secret)
    page.goto(page.url)
    assert secret not in page.content()
    row = page.locator("tr", has_text="onerror")
    row.get_by_role("button", name="Revoke").click()
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    row.get_by_role("button", name="Revoke").click()
    page.locator("dialog").get_by_role("button", name="Revoke").click()
    expect(page.locator(".note.success")).to_contain_text("is revoked")


def test_the_keyboard_reaches_the_content(open_page: Open) -> None:
    page = open_page("/admin/")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"


def test_a_head_sorts_by_keyboard_and_keeps_the_filter(open_page: Open) -> None:
    page = open_page("/admin/requests?outcome=ok")
    head = page.locator("th", has_text="Duration").locator("a")
    head.focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Duration")
    page.locator("th[aria-sort] a").focus()
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Duration")
    assert "outcome=ok" in page.url
    assert "sort=duration" in page.url
    page.get_by_role("button", name="Show").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Duration")


@pytest.fixture
def published_again(house: House) -> Iterator[None]:
    """A change lets the web process publish what its store says: afterwards the engine by script is served again."""
    yield
    house.serve()


@pytest.mark.usefixtures("published_again")
def test_removing_a_model_asks_for_its_name(open_page: Open) -> None:
    page = open_page("/admin/models/idle-model")
    page.get_by_role("button", name="Remove").click()
    go = page.locator("dialog button.danger")
    expect(go).to_be_disabled()
    page.locator("dialog input").fill("idle-modem")
    expect(go).to_be_disabled()
    page.locator("dialog").get_by_role("button", name="Cancel").click()
    page.get_by_role("button", name="Remove").click()
    page.locator("dialog input").fill("idle-model")
    page.keyboard.press("Enter")
    expect(page.locator(".note.success")).to_contain_text("idle-model is removed")
    assert page.url.endswith("/admin/models")


def test_without_scripts_a_page_asks_for_the_name(open_page: Open, house: House) -> None:
    page = open_page("/admin/nodes/node-3", expected="status of 422", java_script_enabled=False)
    page.get_by_role("button", name="Remove").click()
    page.fill("[name=confirm]", "node-4")
    page.locator("button.danger").click()
    expect(page.locator(".errorlist")).to_have_text("That is another name.")
    page.get_by_role("link", name="Cancel").click()
    page.wait_for_url("**/admin/nodes/node-3")


@pytest.mark.usefixtures("published_again")
def test_a_node_is_cordoned_and_tells_what_it_finds(open_page: Open) -> None:
    page = open_page("/admin/nodes/node-3")
    expect(page.locator("#doctor")).to_contain_text("The node did not answer.")
    page.get_by_role("button", name="Cordon").click()
    expect(page.locator(".note.success")).to_contain_text("Nothing new is placed on node-3")
    page.get_by_role("button", name="Uncordon").click()
    expect(page.locator(".note.success")).to_contain_text("node-3 takes replicas again")


EVERY_PAGE = [
    "/",
    "/chat",
    "/account",
    "/account/usage?whose=all",
    "/account/profile",
    "/accounts/password/change/",
    "/accounts/email/",
    "/accounts/2fa/",
    "/admin/",
    "/admin/nodes",
    "/admin/nodes/node-1",
    "/admin/nodes/node-3",
    "/admin/gpus",
    "/admin/gpus?mode=busy",
    "/admin/gpus?view=table",
    "/admin/fabrics",
    "/admin/facility",
    "/admin/models",
    "/admin/models/tiny",
    "/admin/models/tiny/bench",
    "/admin/models/qwen2.5-72b",
    "/admin/replicas",
    "/admin/replicas/r-0000000004",
    "/admin/replicas/r-0000000005",
    "/admin/requests",
    "/admin/requests?tag=feature&live=1",
    "/admin/requests/req_" + "0" * 26,
    "/why?of=qwen2.5-72b",
    "/admin/tenants",
    f"/admin/tenants/{seed.PROJECT}",
    "/admin/people",
    "/admin/audit",
    "/admin/notices",
    "/admin/what-if",
    "/admin/settings",
    "/nothing",
]
WORDS_OF_A_PAGE = """() => {
  const found = new Set();
  const skip = "code, pre, bdi, kbd, script, style, [translate=no], [lang]:not(html)";
  const walk = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const text = walk.currentNode.data.trim();
    if (text && !walk.currentNode.parentElement.closest(skip)) found.add(text);
  }
  for (const name of ["title", "placeholder", "aria-label", "alt", "data-confirm", "data-confirm-do"])
    for (const e of document.querySelectorAll(`[${name}]`))
      if (!e.closest(skip)) found.add(e.getAttribute(name).trim());
  return [...found];
}"""
THE_SAME = re.compile(
    r"Model|curl|Python|UTC|CPU|name: two of it[\s\S]+|chat, completions|404 · llmgw"
    r"|[\d/ ]+(?:ms|GiB|Gb/s)(?: / \d+ GiB)?"
    r"|(?:node-\d|tiny|qwen2\.5-72b|r-\d{10}(?: \(node-\d\))?|req_\d{26})(?: · llmgw)?"
    r"|Ada|ada@example\.com|İstanbul Lab(?:/research(?:/assistants)?)?"
    r"|CSV|JSON|503, 5xx|x-session-id|feature=search|llmgw_Ab3dEf"
    r"|assistants(?: · llmgw)?|idle-model|llamacpp|EPYC 9354|Debian 12 x86_64|avx2|avx512f"
)
"""What both languages write alike, or what people and machines wrote."""


def test_a_turkish_page_says_nothing_in_english(open_page: Open, house: House) -> None:
    english, turkish = (open_page("/", language=language, expected="status of 404") for language in ("en", "tr"))
    alike: dict[str, str] = {}
    for path in EVERY_PAGE:
        said = []
        for page in (english, turkish):
            page.goto(house.url + path, wait_until="domcontentloaded")
            said.append(set(page.evaluate(WORDS_OF_A_PAGE)))
        for text in said[0] & said[1]:
            if re.search(r"[^\W\d_]{2}", text):
                alike.setdefault(text, path)
    assert {text: path for text, path in alike.items() if not THE_SAME.fullmatch(text)} == {}


AXE = {"runOnly": {"type": "tag", "values": ["wcag2a", "wcag2aa", "wcag21aa"]}, "resultTypes": ["violations"]}
LOOKS = [("light", 1280), ("dark", 390)]


@pytest.mark.parametrize(
    ("path", "stranger"),
    [
        ("/", True),
        ("/accounts/login/", True),
        ("/account", False),
        ("/account/usage?whose=all", False),
        ("/chat", False),
        ("/admin/", False),
        ("/admin/models/qwen2.5-72b", False),
        ("/admin/nodes?sort=-cores", False),
        ("/admin/nodes/node-2", False),
        ("/admin/gpus", False),
        ("/admin/gpus?mode=busy", False),
        ("/admin/fabrics", False),
        ("/admin/facility", False),
        ("/admin/replicas/r-0000000005", False),
        ("/admin/requests?tag=feature", False),
        ("/admin/requests?outcome=failed", False),
        ("/admin/requests/req_" + "0" * 26, False),
        ("/admin/models/tiny/bench", False),
        ("/admin/notices", False),
        ("/admin/what-if", False),
        ("/admin/settings", False),
        (f"/admin/tenants/{seed.PROJECT}", False),
    ],
)
def test_axe_finds_nothing_serious(open_page: Open, path: str, stranger: bool) -> None:
    houses.ANSWERS["plan"] = PLAN
    page = open_page(path, stranger=stranger)
    if path == "/chat":
        page.wait_for_selector("#model:not([disabled])")
        _ask(page, "plan")
        _answered(page)
    found: list[str] = []
    for scheme, width in LOOKS:
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 844})
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} is wider than {width}"
        if width > 1000:
            wide = page.evaluate(
                "[...document.querySelectorAll('.table')].filter(t => t.scrollWidth > t.clientWidth + 1)"
                ".map(t => t.getAttribute('aria-label'))"
            )
            assert wide == [], f"tables of {path} are wider than a desktop's page"
        for violation in Axe().run(page, options=AXE).response["violations"]:
            if violation["impact"] in ("serious", "critical"):
                targets = [n["target"] for n in violation["nodes"]][:3]
                found.append(f"{scheme} {width}: {violation['id']} {json.dumps(targets)}")
    assert found == []
