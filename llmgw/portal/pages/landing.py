"""The first page: what this is and how to call it, with the visitor's own models."""

from __future__ import annotations

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from llmgw.portal import selectors
from tenancy.models import Person


def landing(request: HttpRequest) -> HttpResponse:
    base = settings.MACHINE.public_url.rstrip("/") or f"{request.scheme}://{request.get_host()}"
    models = selectors.models_for(request.user) if isinstance(request.user, Person) else []
    first = next((m for m in models if m["state"] == "serving"), models[0] if models else None)
    context = {"base_url": f"{base}/v1", "models": models, "sample_model": first["name"] if first else "MODEL"}
    return render(request, "portal/landing.html", context)
