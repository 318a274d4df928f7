"""What a kept request said and was answered, sending it once more, and two answers beside each other: for owners of its
project and administrators. Each look is a line in the audit log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_POST

from gateway import selectors
from gateway.actions import kept as actions
from gateway.control import kept
from gateway.control.kept import Bodies
from gateway.core import answers, compare
from gateway.core.answers import Answer
from llmgw.cluster.errors import Invalid, NotFound
from llmgw.portal.gate import person, signed_in


@dataclass(frozen=True, slots=True)
class Side:
    """One of two answers. `usage` is its row in the books; None: it is still on its way."""

    id: str
    bodies: Bodies
    answer: Answer
    usage: dict[str, Any] | None


@signed_in
@never_cache
def said(request: HttpRequest, id: str) -> HttpResponse:
    found = _read(request, id)
    document = _document(found.request)
    context = {
        "id": id,
        "bodies": found,
        "messages_said": list(_messages(document)),
        "options": _pretty({k: v for k, v in document.items() if k not in ("messages", "prompt", "input")}),
        "raw": _pretty(document),
        "answer": answers.read(found.answer),
        "answer_raw": found.answer.decode(errors="replace"),
    }
    return render(request, "portal/requests/said.html", context)


@signed_in
@require_POST
def replay(request: HttpRequest, id: str) -> HttpResponse:
    """To the model in the form; then both answers."""
    model = request.POST.get("model", "").strip()
    if not model:
        raise Invalid("which_model", "say which model the request should be sent to")
    actions.require_reader(person(request), kept.bodies(id).project)
    again = actions.replay(request_id=id, model=model, actor=person(request).email)
    return redirect("portal:requests-compare", id=id, other=again.id)


@signed_in
@never_cache
def beside(request: HttpRequest, id: str, other: str) -> HttpResponse:
    left, right = (_side(request, one) for one in (id, other))
    words = compare.pieces(left.answer.text, right.answer.text)
    alike = compare.alike(left.answer.text, right.answer.text)
    sides = [(left, words[0]), (right, words[1])]
    context = {"id": id, "other": other, "sides": sides, "alike": round(alike * 100)}
    return render(request, "portal/requests/compare.html", context)


def _side(request: HttpRequest, id: str) -> Side:
    found = _read(request, id)
    try:
        usage = selectors.request(id)
    except NotFound:
        usage = None
    return Side(id, found, answers.read(found.answer), usage)


def _read(request: HttpRequest, id: str) -> Bodies:
    """Nobody but whoever may look learns that it is kept, and each look is told."""
    who = person(request)
    actions.require_reader(who, kept.bodies(id).project)
    return actions.read(request_id=id, actor=who.email)


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = json.loads(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def _messages(document: dict[str, Any]) -> list[tuple[str, str]]:
    """(who, what) in order, as text; what is no text as JSON."""
    found = [(str(m.get("role", "")), _text(m)) for m in document.get("messages") or () if isinstance(m, dict)]
    for name in ("prompt", "input"):
        if name in document:
            found.append((name, document[name] if isinstance(document[name], str) else _pretty(document[name])))
    return found


def _text(message: dict[str, Any]) -> str:
    content = message.get("content")
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else [] if content is None else [content]
    texts = [p["text"] if isinstance(p, dict) and isinstance(p.get("text"), str) else _pretty(p) for p in parts]
    if message.get("tool_calls"):
        texts.append(_pretty(message["tool_calls"]))
    return "\n".join(texts)


def _pretty(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)
