"""What every value of a request's walk is: a struct that does not change.

A base and not an option of each class, for a compiled class keeps its bases and nothing else that its definition says.
"""

from __future__ import annotations

import msgspec


class Value(msgspec.Struct, frozen=True): ...
