"""What an agent reaches before it has a certificate: enrolment by a join code, under /agent/."""

from __future__ import annotations

urlpatterns: list[object] = []
