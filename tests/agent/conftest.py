"""Settings of the agent's tests: generated inputs have no time limit of their own, as CI shares its cores."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "agent", deadline=None, max_examples=100, suppress_health_check=[HealthCheck.too_slow], database=None
)
settings.load_profile("agent")
