"""allauth's door to our rules: nobody signs up by himself, and an address is folded before it is looked for."""

from __future__ import annotations

from typing import Any

from allauth.account.adapter import DefaultAccountAdapter
from django.http import HttpRequest

from llmgw.fold import fold


class ClosedSignUp(DefaultAccountAdapter):  # type: ignore[misc]  # allauth has no types
    """Accounts come from administrators. Rate limits and the same answer for an unknown account are allauth's own."""

    def is_open_for_signup(self, request: HttpRequest) -> bool:
        return False

    def clean_email(self, email: str) -> str:
        cleaned: str = super().clean_email(fold(email))
        return cleaned

    def authenticate(self, request: HttpRequest, **credentials: Any) -> Any:
        if "email" in credentials:
            credentials["email"] = fold(credentials["email"])
        return super().authenticate(request, **credentials)
