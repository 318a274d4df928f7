"""Sentences of the cores on a Turkish page: matched with the templates that made them, ids left alone."""

from __future__ import annotations

import re
from pathlib import Path

from django.template import Context, Template
from django.utils import translation

from llmgw.portal import said
from llmgw.portal.book import Book

SCENARIOS = Path(__file__).resolve().parents[1] / "fleet" / "scenarios"


def _turkish(sentence: str) -> str | None:
    return said.translated(sentence, "tr")


def test_the_planner_s_reasons_are_known() -> None:
    """What the scenarios expect of the planner, sentence by sentence."""
    lines = [line for path in SCENARIOS.glob("*.txt") for line in path.read_text().splitlines()]
    found = (re.fullmatch(r"\s+(?:want|hold|lose|drain|stop) \S+: (.+)", line) for line in lines)
    sentences = {match[1] for match in found if match}
    unknown = sorted(s for s in sentences if _turkish(s) is None)
    assert len(sentences) > 50
    assert len(unknown) <= len(sentences) * 0.02, unknown


def test_what_fills_a_gap_stays_or_is_a_sentence_itself() -> None:
    assert _turkish("no node can take it: n1 is cordoned") == "hiçbir düğüm alamıyor: n1 yeni işe kapalı"
    assert _turkish("n1 is cordoned; n2 is being drained") == "n1 yeni işe kapalı; n2 boşaltılıyor"
    assert _turkish("8.5 GiB of disk are wanted, and n1.5 has 2.0 GiB free") == (
        "8,5 GiB disk isteniyor, n1.5 düğümünde 2,0 GiB boş"
    )
    assert _turkish("rank 1: ready") == "rank 1: hazır"
    assert _turkish("nobody ever wrote this") is None


def test_gaps_side_by_side_do_not_run_into_one_another() -> None:
    assert _turkish("vLLM ended with status 1") == "vLLM 1 durumuyla sona erdi"
    killed = _turkish("llama.cpp was ended by SIGKILL: out of memory")
    assert killed is not None
    assert killed.startswith("llama.cpp: SIGKILL"), killed
    book = Book({"{a} holds {b}{c}": "{b} tutan {a}{c}"})
    for tail in ("", ": and more", "; and more"):
        found = book.find(f"n1 holds 3{tail}")
        assert found is not None
        assert found.text == f"3 tutan n1{tail}"


def test_what_became_of_a_request_and_what_a_key_may() -> None:
    told = "req_01 asked for m; it failed after 2.3 s and 3 attempts (engine_failed); r-1 on node-1 was tried last; 120 prompt tokens (4 cached), 482 answered; its cost was 0.0025"  # noqa: E501
    assert _turkish(told) == (
        "req_01, istenen model m; 3 denemede, 2,3 s sonra başarısız oldu (engine_failed); son denenen: r-1, düğüm "
        "node-1; 120 istem token’ı (4 önbellekten), 482 yanıt token’ı; tutarı 0,0025"
    )
    told = "req_01 asked for m, was answered in 84 ms by r-1 on node-1; 12 prompt tokens, 4 answered; it was free"
    assert _turkish(told) == (
        "req_01, istenen model m: 84 ms içinde yanıtlandı (r-1, düğüm node-1); 12 istem token’ı, 4 yanıt token’ı; "
        "ücretsizdi"
    )
    told = "the project allows 60 requests a minute; a budget of 2.50 a month; 1.25 of it is spent"
    assert _turkish(told) == "project düzeyinin izin verdikleri: dakikada 60 istek; ayda 2,50 bütçe; 1,25 harcandı"


def test_so_many_of_each_and_how_long() -> None:
    assert _turkish("no node can take it: 2 × not connected, 1 × cordoned") == (
        "hiçbir düğüm alamıyor: 2 × bağlı değil, 1 × yeni işe kapalı"
    )
    assert _turkish("the machine n-1 is lost: last heard 11 min ago") == (
        "n-1 düğümünün durumu: kayıp: 11 dk önce haber alındı"
    )


def test_the_longest_text_wins() -> None:
    book = Book({"the {what} is here": "A {what}", "the {what} of {node} is here": "B {what} {node}"})
    found = book.find("the card of n1 is here")
    assert found is not None
    assert found.text == "B card n1"


def test_a_page_says_what_is_english() -> None:
    with translation.override("tr"):
        page = Template("{% load house %}{{ a|said }} {{ b|said }}").render(
            Context({"a": "n<1 is cordoned", "b": "a <new> thing"})
        )
    assert page == 'n&lt;1 yeni işe kapalı <span lang="en">a &lt;new&gt; thing</span>'
    assert said.translated("n1 is cordoned", "en") is None
