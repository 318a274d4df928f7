"""`/api/v1`: every app's routes in one place, and their OpenAPI schema."""

from __future__ import annotations

from importlib import import_module

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView
from rest_framework.routers import SimpleRouter

from tenancy.api import schema  # noqa: F401 - registers how keys are told of

APPS = (
    "catalog.api",
    "tenancy.api.routes",
    "fleet.api.routes",
    "gateway.api",
    "llmgw.cluster.api.routes",
)
"""Modules with `routes = [(prefix, view set, basename), …]`."""


def _router() -> SimpleRouter:
    router = SimpleRouter(trailing_slash=False)
    for name in APPS:
        for prefix, view, basename in import_module(name).routes:
            router.register(prefix, view, basename)
    return router


urlpatterns = [
    path("schema", SpectacularAPIView.as_view(), name="api-schema"),
    path("", include(_router().urls)),
]
