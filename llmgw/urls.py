"""Every address of the web process. The inference path (`/v1`, `/health`, `/ready`) is answered before, by the edge."""

from __future__ import annotations

from django.contrib import admin
from django.urls import include, path

urlpatterns = [
    path("", include("llmgw.portal.urls")),
    path("accounts/", include("allauth.account.urls")),
    path("accounts/2fa/", include("allauth.mfa.urls")),
    path("i18n/", include("django.conf.urls.i18n")),
    path("django-admin/", admin.site.urls),
    path("agent/", include("fleet.urls")),
    path("api/v1/", include("llmgw.portal.api.urls")),
]
