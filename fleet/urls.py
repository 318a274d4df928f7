"""What an agent reaches before it has a certificate: enrolment by a join code, under /agent/."""

from __future__ import annotations

from django.urls import path

from fleet import views

app_name = "fleet"

urlpatterns = [path("join", views.join, name="join")]
