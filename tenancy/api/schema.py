"""How the OpenAPI schema tells of our keys."""

from __future__ import annotations

from typing import Any

from drf_spectacular.extensions import OpenApiAuthenticationExtension


class AdminKeyScheme(OpenApiAuthenticationExtension):  # type: ignore[no-untyped-call]
    target_class = "tenancy.api.auth.AdminKeyAuthentication"
    name = "adminKey"

    def get_security_definition(self, auto_schema: Any) -> dict[str, str]:
        return {
            "type": "http",
            "scheme": "bearer",
            "description": "A key of scope admin: llmgw key create NAME --scope admin --person EMAIL",
        }
