from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.urls import path

app_name = "portal"


def landing(request: HttpRequest) -> HttpResponse:
    return HttpResponse("llmgw")


urlpatterns = [path("", landing, name="landing")]
