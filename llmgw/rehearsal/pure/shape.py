"""Requests without a word in them: when, of which model, how many tokens. Pure."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, tzinfo

HOUR_S, DAY_S = 3600.0, 86400.0
WEEK_S = 7 * DAY_S


@dataclass(frozen=True, slots=True)
class Ask:
    """`at` in Unix seconds."""

    at: float
    model: str
    prompt: int
    answer: int


@dataclass(frozen=True, slots=True)
class Curve:
    """How a model is asked for over a week: requests a second at its busiest hour, what of it remains at night and at
    the weekend; mean tokens, spread as such lengths are (log-normal)."""

    rate: float
    prompt: int = 400
    answer: int = 150
    night: float = 0.1
    weekend: float = 0.3
    peak_hour: float = 14.0

    def at(self, now: float, zone: tzinfo) -> float:
        """Requests a second."""
        clock = datetime.fromtimestamp(now, zone)
        hour = clock.hour + clock.minute / 60
        day = (1 + math.cos((hour - self.peak_hour) / 24 * 2 * math.pi)) / 2
        share = self.night + (1 - self.night) * day**2
        return self.rate * share * (self.weekend if clock.weekday() >= 5 else 1.0)


def asks(curves: Mapping[str, Curve], begin: float, seconds: float, zone: tzinfo, seed: int = 0) -> Iterator[Ask]:
    """In the order of time. The same seed gives the same week."""
    dice = random.Random(seed)  # noqa: S311 - a week of load, not a secret
    minute = 60.0
    for start in range(0, int(seconds), int(minute)):
        now = begin + start
        found = []
        for model, curve in curves.items():
            for _ in range(_poisson(curve.at(now, zone) * minute, dice)):
                prompt, answer = _length(curve.prompt, dice), _length(curve.answer, dice)
                found.append(Ask(now + dice.random() * minute, model, prompt, answer))
        yield from sorted(found, key=lambda a: a.at)


def shifted(found: Iterable[Ask], seconds: float) -> Iterator[Ask]:
    return (Ask(a.at + seconds, a.model, a.prompt, a.answer) for a in found)


def _length(mean: int, dice: random.Random) -> int:
    spread = 0.8
    return max(1, round(dice.lognormvariate(math.log(max(mean, 1)) - spread**2 / 2, spread)))


def _poisson(mean: float, dice: random.Random) -> int:
    if mean > 50:
        return max(0, round(dice.gauss(mean, math.sqrt(mean))))
    limit, count, product = math.exp(-mean), 0, dice.random()
    while product > limit:
        count += 1
        product *= dice.random()
    return count
