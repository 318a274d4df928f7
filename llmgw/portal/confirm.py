"""Asking before something goes: whoever wants it gone types its name, in the page's dialog or on a page of its own."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.functional import Promise

FIELD = "confirm"


def named(request: HttpRequest, name: str) -> bool:
    """Whether the form carries the name of what will go."""
    return request.POST.get(FIELD, "").strip() == name


def ask(request: HttpRequest, *, name: str, what: str | Promise, does: str | Promise, back: str) -> HttpResponse:
    """A page that says what will go and asks for its name; it posts the same form again.

    `what` is the sentence, `does` the button's word, `back` where somebody goes who changed his mind. For browsers
    without scripts, and for a wrong name.
    """
    kept = [(k, v) for k, v in request.POST.items() if k not in (FIELD, "csrfmiddlewaretoken")]
    wrong = FIELD in request.POST
    context = {"name": name, "what": what, "does": does, "back": back, "kept": kept, "field": FIELD, "wrong": wrong}
    return render(request, "portal/confirm.html", context, status=422 if wrong else 200)
