"""Reading a mapping that people wrote: one field at a time, every problem kept, unknown keys named at the end. Pure."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from agent.wire.reason import Reason
from llmgw.durations import seconds

T = TypeVar("T")
GIB = 1024**3


class Fields:
    """One mapping of a document. `where` names it in sentences: `model tiny, profile cpu: `."""

    def __init__(self, raw: Mapping[Any, Any], where: str, problems: list[Reason]) -> None:
        self._raw = raw
        self.where = where
        self._problems = problems
        self._known: list[str] = []

    def problem(self, sentence: str, code: str = "bad_definition") -> None:
        self._problems.append(Reason(code, f"{self.where}{sentence}"))

    def take(self, key: str) -> Any:
        """What stands at `key`; None where nothing does."""
        self._known.append(key)
        return self._raw.get(key)

    def text(self, key: str, default: str = "", required: bool = False) -> str:
        value = self.take(key)
        if value is None:
            if required:
                self.problem(f"{key} is missing", "missing")
            return default
        if not isinstance(value, str):
            return self._wanted(key, "text", value, default, " (put it into quotes)")
        if not value.strip() and required:
            self.problem(f"{key} is empty", "missing")
        return value.strip()

    def texts(self, key: str) -> tuple[str, ...]:
        value = self.take(key)
        if value is None:
            return ()
        if not isinstance(value, Sequence) or isinstance(value, (str, bytes)):
            return self._wanted(key, "a list of texts", value, ())
        wrong = [v for v in value if not isinstance(v, str)]
        if wrong:
            return self._wanted(key, "a list of texts", wrong[0], (), " in it (put it into quotes)")
        return tuple(value)

    def whole(self, key: str, default: int | None, least: int, most: int = 2**31 - 1) -> int | None:
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, int):
            return self._wanted(key, "a whole number", value, default)
        if not least <= value <= most:
            self.problem(f"{key} must be between {least} and {most}, and is {value}")
            return default
        return value

    def number(self, key: str, default: float, least: float, most: float) -> float:
        value = self.take(key)
        if value is None:
            return default
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            return self._wanted(key, "a number", value, default)
        if not least <= value <= most:
            self.problem(f"{key} must be between {least:g} and {most:g}, and is {value:g}")
            return default
        return float(value)

    def flag(self, key: str) -> bool | None:
        value = self.take(key)
        return value if value is None or isinstance(value, bool) else self._wanted(key, "true or false", value, None)

    def duration(self, key: str, default: float, most: float) -> float:
        """Seconds: `90`, `90s`, `5m`, `1h30m`, `80ms`."""
        value = self.take(key)
        if value is None:
            return default
        found = seconds(value)
        if found is None:
            return self._wanted(key, "a duration like 90s, 5m or 1h30m", value, default)
        if not 0 < found <= most:
            self.problem(f"{key} must be above 0s and at most {most:g}s, and is {value}")
            return default
        return found

    def gib(self, key: str) -> int | None:
        """Bytes, of GiB as people write them: 8, 0.5."""
        value = self.take(key)
        if value is None:
            return None
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 2**20:
            return self._wanted(key, "a number of GiB above 0", value, None)
        return round(value * GIB)

    def pairs(self, key: str) -> dict[str, str]:
        value = self.take(key)
        if value is None:
            return {}
        if not isinstance(value, Mapping):
            return self._wanted(key, "names with their values", value, {})
        for name, found in value.items():
            if not isinstance(name, str) or not isinstance(found, str):
                wrong = found if isinstance(name, str) else name
                return self._wanted(f"{key}.{name}", "text", wrong, {}, " (put it into quotes)")
        return dict(value)

    def table(self, key: str) -> Fields:
        """The mapping at `key`; an empty one where there is none."""
        value = self.take(key)
        if value is not None and not isinstance(value, Mapping):
            value = self._wanted(key, "names with their values", value, None)
        return Fields(value or {}, f"{self.where}{key}: ", self._problems)

    def tables(self, key: str) -> list[Fields]:
        """The mappings of the list at `key`; an empty one where there is none."""
        value = self.take(key)
        if value is not None and not (isinstance(value, list) and all(isinstance(v, Mapping) for v in value)):
            value = self._wanted(key, "a list of names with their values", value, None)
        return [Fields(v, f"{self.where}{key} {n}: ", self._problems) for n, v in enumerate(value or (), 1)]

    def done(self, later: Mapping[str, str] | None = None) -> None:
        """Names every key that was not read, with the nearest one that exists; `later`: known, and not built yet."""
        for key in self._raw:
            if key in self._known:
                continue
            if later and key in later:
                self.problem(f"{key} ({later[key]}) is not supported by this version", "not_supported")
                continue
            near = difflib.get_close_matches(str(key), self._known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(sorted(self._known))}"
            self.problem(f"there is no key {key}; {hint}", "unknown_key")

    def _wanted(self, key: str, what: str, found: Any, default: T, hint: str = "") -> T:
        self.problem(f"{key} must be {what}, and is {_shown(found)}{hint}")
        return default


def _shown(value: Any) -> str:
    match value:
        case bool():
            return str(value).lower()
        case str():
            return repr(value if len(value) <= 60 else f"{value[:57]}…")
        case Mapping():
            return "names with values"
        case list() | tuple():
            return "a list"
        case _:
            return str(value)
