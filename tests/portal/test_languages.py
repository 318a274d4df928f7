"""English and Turkish are equals: no string is missing, and figures and dates follow the page, never the machine."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import pytest
from django.template import Context, Template
from django.test import Client
from django.utils import translation

from fleet.models import Replica
from gateway.models import Usage
from llmgw.portal import messages, plot, signs, words

ROOT = Path(__file__).resolve().parents[2]


def test_every_string_is_translated_and_compiled() -> None:
    assert messages.problems() == []


def test_what_a_page_says_is_marked_for_translation() -> None:
    """Text between tags of our templates is either translated or one of the few words that have no language."""
    free = {
        "llmgw",
        "· llmgw",
        "500 · llmgw",
        "curl",
        "Python",
        "Ctrl K",
        "PCIe",
        "NVLink",
        "NVSwitch",
        "NUMA",
        "InfiniBand",
        "RoCE",
        "Ethernet",
        "Gb/s",
        "·",
        "/",
        "–",
        "×",
        "…",
        "(",
        ")",
        ",",
        ":",
        "400",
        "403",
        "404",
        "500",
        "=",
        "°C",
        "SM",
        "GPU",
    }
    found = []
    for path in sorted((ROOT / "templates").rglob("*.html")):
        text = re.sub(r"{%\s*blocktrans.*?endblocktrans\w*\s*%}|{%.*?%}|{{.*?}}", "", path.read_text(), flags=re.S)
        text = re.sub(r"<(script|style|pre|code)\b.*?</\1>|<!.*?>", "", text, flags=re.S)
        for piece in re.findall(r">([^<>]+)<", text):
            plain = piece.replace("&amp;", "&").strip()
            if re.search(r"[A-Za-z]{2}", plain) and plain not in free:
                found.append(f"{path.name}: {plain!r}")
    assert found == []


def test_every_state_and_outcome_has_a_word_and_a_sign() -> None:
    for code in (*Replica.State.values, *Usage.Outcome.values):
        assert code in words.STATES, code
        assert code in signs.STATES, code


def _render(text: str, language: str, **context: object) -> str:
    with translation.override(language):
        return Template("{% load house %}" + text).render(Context(context))


def test_figures_follow_the_page() -> None:
    assert _render("{% figure n %}", "en", n=1234567) == "1,234,567"
    assert _render("{% figure n %}", "tr", n=1234567) == "1.234.567"
    assert _render("{% figure n 1 %}", "tr", n=2.5) == "2,5"
    assert _render("{% size n %}", "tr", n=1536 * 2**20) == "1,5 GiB"
    assert _render("{% duration n %}", "en", n=1900) == "1.9 s"


def test_what_machines_read_does_not() -> None:
    at = datetime(2026, 5, 11, 23, 30, tzinfo=UTC)
    shown = _render("{% ago at %}", "tr", at=at)
    assert 'datetime="2026-05-11T23:30:00+00:00"' in shown
    assert "Mayıs" in shown
    drawn = plot.stacked([1000, 2500], [10, None])
    assert all(re.fullmatch(r"[\d.]+", v) for bar in drawn.bars for v in (bar.x, bar.y, bar.width, bar.height))


def test_unknown_is_a_dash_and_zero_is_zero() -> None:
    assert 'class="nil"' in _render("{% figure n %}", "en", n=None)
    assert _render("{% figure n %}", "en", n=0) == "0"
    assert 'class="nil"' in _render("{% size missing %}", "en")
    assert "unknown" in _render("{% state s %}", "en", s=None)


def test_nothing_is_upper_cased_by_the_browser() -> None:
    """CSS would turn `admin` into `ADMİN` on a Turkish page."""
    css = (ROOT / "llmgw/portal/static/portal/portal.css").read_text()
    assert "text-transform" not in css
    assert "font-variant: small-caps" not in css


@pytest.mark.django_db
def test_the_scripts_words_in_both_languages(client: Client) -> None:
    assert "Kopyaland\\u0131" in client.get("/words.js?l=tr").content.decode()
    assert "Kopyaland\\u0131" not in client.get("/words.js?l=en").content.decode()
    assert client.get("/words.js?l=xx").status_code == 200


@pytest.mark.django_db
def test_allauth_s_pages_speak_turkish(client: Client) -> None:
    client.cookies["llmgw_lang"] = "tr"
    page = client.get("/accounts/password/reset/").content.decode()
    assert "Parola" in page
    assert "Şifre" not in page


def test_a_plot_s_scale_is_round() -> None:
    assert [plot.scale(n) for n in (0, 3, 5, 11, 99, 101)] == [2, 4, 10, 20, 100, 200]
    assert plot.stacked([0, 0]).bars == ()
