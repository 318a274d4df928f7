"""Why something is so, as a page: administrators ask of anything, anybody of the own keys."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from catalog import selectors as catalog
from llmgw.cluster import why as answers
from llmgw.portal.gate import person, signed_in
from tenancy import access


@signed_in
def why(request: HttpRequest) -> HttpResponse:
    get = request.GET.get
    of, noun, model = get("of", "").strip(), get("noun") or None, get("model", "").strip() or None
    who = person(request)
    if noun == "key":
        access.key_for(who, of)
    else:
        access.require_administrator(who)
    found = answers.why(of, noun, model) if of else None
    names = [entry.name for entry in catalog.entries()] if found and found["noun"] == "key" else []
    return render(request, "portal/why.html", {"found": found, "of": of, "model": model or "", "models": names})
