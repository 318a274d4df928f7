"""The house's building blocks for templates: icons, states, figures, times, sizes, things to copy.

Unknown is drawn as unknown, never as zero. Figures and dates are in the page's language; what machines read is not.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any

from django import template
from django.contrib.humanize.templatetags.humanize import naturaltime
from django.utils import formats, timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, pgettext
from django.utils.translation import gettext as _

from llmgw.portal import assets, fleet, listing, signs, words
from llmgw.portal import said as sentences
from llmgw.portal.left import Bar
from llmgw.price import MICRO, NANO
from tenancy.core.limits import from_stored
from tenancy.models import Level

register = template.Library()

_SVG = '<svg class="{}" viewBox="0 0 16 16" width="16" height="16" aria-hidden="true">{}</svg>'


@register.simple_tag
def asset(name: str) -> str:
    return assets.url(name)


@register.simple_tag
def icon(name: str) -> SafeString:
    body = format_html('<path d="{}"/>', signs.ICONS[name])
    return format_html(_SVG, "icon", body)


@register.simple_tag
def state(code: str | None, progress: float | None = None) -> SafeString:
    """A state by sign and word; with `progress` (0..1) where something is being fetched or loaded."""
    known = code if code in signs.STATES else "unknown"
    kind, body = signs.STATES[known]
    word = words.STATES.get(code or "unknown", code or _("unknown"))
    share = "" if progress is None else format_html(" {}", formats.localize(round(progress * 100)) + " %")
    sign = format_html(_SVG, "sign", mark_safe(body))  # noqa: S308 - a constant of ours
    return format_html('<span class="state {}">{}<span>{}{}</span></span>', kind, sign, word, share)


@register.simple_tag
def unknown(why: str = "") -> SafeString:
    return format_html('<span class="nil" title="{}">–</span>', why or _("unknown"))


@register.filter
def said(sentence: object) -> str | SafeString:
    """A sentence of the cores (a `Reason` or its text) in the page's language; one that is known in English alone says
    that it is English."""
    if sentence is None or sentence == "":
        return ""
    language = get_language() or "en"
    found = sentences.translated(str(sentence), language)
    if found is not None or language == "en":
        return found or str(sentence)
    return format_html('<span lang="en">{}</span>', str(sentence))


@register.filter
def known(value: Any) -> Any:
    """The value, or the hatched dash for one that nobody knows."""
    return unknown() if value is None or value == "" else value


@register.simple_tag
def figure(value: float | int | str | None, digits: int = 0, unit: str = "") -> SafeString:
    """A number in the page's language. A template writes "" for what it could not look up: that is unknown too."""
    if value is None or value == "":
        return unknown()
    shown = formats.number_format(round(float(value), digits), decimal_pos=digits, force_grouping=True)
    return format_html("{}{}", shown, f" {unit}" if unit else "")


@register.simple_tag
def money(nano: int | str | None) -> SafeString:
    """Nano-units as units of the currency, with the digits that it takes to tell them from nothing."""
    if nano is None or nano == "":
        return unknown()
    amount = int(nano)
    digits = next((d for d in (2, 4, 6) if not amount or abs(amount) * 10**d >= 20 * NANO), 9)
    return figure(amount / NANO, digits)


@register.simple_tag
def money_micro(micro: int | str | None) -> SafeString:
    """Micro-units, as prices are written."""
    return money(None if micro is None or micro == "" else int(micro) * MICRO)


@register.simple_tag
def used(bar: Bar | None, label: str, amounts: bool = False) -> SafeString:
    """What is used of a limit, in figures and as a bar; a dash where there is no limit."""
    if bar is None or not isinstance(bar, Bar):
        return format_html('<span class="muted" title="{}">–</span>', _("no limit of its own"))
    shown = money if amounts else figure
    text = format_html("<span>{} / {}</span>", shown(bar.used), shown(bar.limit))
    if bar.used is None or not bar.limit:
        return format_html('<span class="used">{}</span>', text)
    return format_html(
        '<span class="used{}">{}<meter min="0" max="{}" value="{}" aria-label="{}"></meter></span>',
        " full" if bar.full else "",
        text,
        bar.limit,
        min(bar.used, bar.limit),
        label,
    )


@register.filter
def own_limits(level: Level) -> list[str]:
    """What a level says itself, each in a few words."""
    limits = from_stored(level.limits)
    words_of = (
        (limits.rpm, figure, _("%(n)s requests a minute")),
        (limits.tpm, figure, _("%(n)s tokens a minute")),
        (limits.concurrent, figure, _("%(n)s at once")),
        (limits.budget, money, _("budget %(n)s")),
    )
    return [text % {"n": shown(value)} for value, shown, text in words_of if value is not None]


@register.simple_tag
def size(value: int | str | None) -> SafeString:
    """Bytes as GiB or MiB."""
    if value is None or value == "":
        return unknown()
    amount = float(value)
    for unit, scale in (("TiB", 2**40), ("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if amount >= scale:
            digits = 1 if amount < 100 * scale else 0
            return figure(amount / scale, digits, unit)
    return figure(amount, 0, "B")


@register.simple_tag
def duration(milliseconds: float | str | None) -> SafeString:
    """Milliseconds as ms or s."""
    if milliseconds is None or milliseconds == "":
        return unknown()
    milliseconds = float(milliseconds)
    if milliseconds < 1000:
        return figure(milliseconds, 0, "ms")
    return figure(milliseconds / 1000, 1 if milliseconds < 100_000 else 0, "s")


@register.simple_tag(takes_context=True)
def ago(context: template.Context, at: datetime | float | str | None, never: str = "") -> SafeString:
    """A relative time with the exact one on hover; `live` pages leave the words to the browser."""
    if at is None or at == "":
        return format_html('<span class="muted">{}</span>', never) if never else unknown()
    moment = at if isinstance(at, datetime) else datetime.fromtimestamp(float(at), UTC)
    exact = formats.date_format(timezone.localtime(moment), "DATETIME_FORMAT")
    shown = "" if context.get("live") else naturaltime(moment)
    return format_html(
        '<time class="ago" datetime="{}" title="{}" data-ago>{}</time>',
        moment.isoformat(timespec="seconds"),
        exact,
        shown,
    )


@register.simple_tag
def when(at: datetime | None) -> SafeString:
    """The exact time, to the second, in the page's language."""
    if at is None:
        return unknown()
    local = timezone.localtime(at)
    shown = f"{formats.date_format(local, 'SHORT_DATE_FORMAT')} {local:%H:%M:%S}"
    return format_html(
        '<time datetime="{}" title="{}">{}</time>', at.isoformat(timespec="seconds"), local.tzname(), shown
    )


@register.simple_tag
def clock(at: datetime) -> str:
    """The hour of a moment, to the second."""
    return f"{timezone.localtime(at):%H:%M:%S}"


@register.simple_tag(takes_context=True)
def column(context: template.Context, name: str, label: str, css: str = "") -> SafeString:
    """A column's head. Where the page sorts by it, a link in it does, and it says which way the table is sorted."""
    order: listing.Sorting | None = context.get("sorting")
    kind = format_html(' class="{}"', css) if css else ""
    if order is None or name not in order.columns:
        return format_html('<th scope="col"{}>{}</th>', kind, label)
    query = context["request"].GET.copy()
    query.pop("page", None)
    query["sort"] = order.link(name)
    sorted_by = order.name == name
    way = format_html(' aria-sort="{}"', "descending" if order.descending else "ascending") if sorted_by else ""
    return format_html('<th scope="col"{}{}><a href="?{}">{}</a></th>', kind, way, query.urlencode(), label)


@register.simple_tag
def copied(value: str, shown: str = "") -> SafeString:
    """An id in its own type, with a button that copies it."""
    return format_html(
        '<span class="id"><code translate="no">{}</code><button type="button" class="copy" data-copy="{}" title="{}">{}'
        '<span class="hidden">{}</span></button></span>',
        shown or value,
        value,
        _("Copy"),
        icon("copy"),
        _("Copy"),
    )


@register.simple_tag(takes_context=True)
def short(context: template.Context) -> str:
    """The class of a part whose tables show a phone their first rows alone, and what is wrong; `?all` shows it all."""
    return "" if "all" in context["request"].GET else " short"


@register.simple_tag
def more(rows: Sequence[Any]) -> int:
    """How many rows a phone is not shown at first."""
    return max(len(rows) - fleet.SHOWN, 0)


@register.simple_tag
def day_of(columns: Sequence[date], index: int) -> str:
    """The short date below a plot's column."""
    # Translators: the date below a plot's column, in Django's format letters.
    return formats.date_format(columns[index], pgettext("short day", "j M"))
