"""Dates in English: the month by its name, for nobody then reads the day for it; and a day has 24 hours.

What is not here is Django's.
"""

from __future__ import annotations

DATETIME_FORMAT = "j M Y, H:i:s"
SHORT_DATE_FORMAT = "j M Y"
