"""What goes on right now, for the cluster page and `status`: in flight, totals, tokens a second, by model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gateway.core.usage import Usage

PREFIX = "llmgw:live:"
EXPIRES_S = 5


@dataclass(slots=True)
class LiveModel:
    in_flight: int = 0
    waiting: int = 0
    """Of those in flight, as of the last second."""
    requests_total: int = 0
    completion_tokens_total: int = 0
    prompt_tokens_total: int = 0

    def counted(self, counts: Usage) -> None:
        """One that is over."""
        self.requests_total += 1
        self.completion_tokens_total += counts.completion or 0
        self.prompt_tokens_total += counts.prompt or 0


class Live:
    """Cumulative since the process began; rates over the time between two calls of `document`."""

    def __init__(self) -> None:
        self.models: dict[str, LiveModel] = {}
        self._before: dict[str, int] = {}
        self._before_at: float | None = None

    def of(self, model: str) -> LiveModel:
        """To be counted in."""
        live = self.models.get(model)
        if live is None:
            live = self.models[model] = LiveModel()
        return live

    def document(self, now: float, at: float, external: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
        """As it lies in Redis; `now` monotonic, `at` Unix seconds. `external`: how each key of those models stands."""
        passed = now - self._before_at if self._before_at is not None else 0.0
        rates: dict[str, float] = {}
        for name, live in self.models.items():
            if passed > 0 and name in self._before:
                rates[name] = round((live.completion_tokens_total - self._before[name]) / passed, 3)
        self._before = {name: live.completion_tokens_total for name, live in self.models.items()}
        self._before_at = now
        models = {
            name: {
                "in_flight": live.in_flight,
                "waiting": live.waiting,
                "requests_total": live.requests_total,
                "completion_tokens_total": live.completion_tokens_total,
                "prompt_tokens_total": live.prompt_tokens_total,
            }
            for name, live in self.models.items()
        }
        return {"at": at, "models": models, "tokens_per_s": rates, "external": external}
