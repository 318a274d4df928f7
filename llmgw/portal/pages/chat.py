"""The chat page, and the five-minute token that lets it speak for a person's project without a key."""

from __future__ import annotations

import time

from django.conf import settings
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.csrf import ensure_csrf_cookie
from django.views.decorators.http import require_POST

from llmgw import keys, secrets
from llmgw.cluster.errors import Refusal
from llmgw.portal import said
from llmgw.portal.gate import person, signed_in
from tenancy import access


@signed_in
@ensure_csrf_cookie
def chat(request: HttpRequest) -> HttpResponse:
    projects = [(p.public_id, p.path) for p in access.projects_for(person(request))]
    return render(request, "portal/chat.html", {"projects": projects})


@require_POST
@never_cache
def token(request: HttpRequest) -> HttpResponse:
    """`{"token", "expires_at"}` for the project in the form; `{"error"}` where the person is not in it."""
    if not request.user.is_authenticated:
        return JsonResponse({"error": {"code": "signed_out", "message": "sign in again"}}, status=401)
    who = person(request)
    try:
        project = access.project_for(who, request.POST.get("project", ""))
    except Refusal as e:
        return JsonResponse({"error": {"code": e.reason.code, "message": said.here(e.reason)}}, status=e.status)
    expires_at = time.time() + keys.CHAT_LIFE_S
    secret = secrets.read_or_make(settings.MACHINE.secrets_dir, "chat")
    signed = keys.sign_chat(secret, keys.ChatToken(who.public_id, project.public_id, expires_at))
    return JsonResponse({"token": signed, "expires_at": expires_at})
