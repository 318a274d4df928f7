"""Dates in Turkish. What is not here is Django's."""

from __future__ import annotations

DATETIME_FORMAT = "d F Y H:i:s"
SHORT_DATE_FORMAT = "d M Y"
