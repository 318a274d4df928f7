"""Small drawings of our own: icons of the menu and the signs of states, as SVG bodies on a 16 by 16 grid."""

from __future__ import annotations

ICONS = {
    "home": "M2.5 7.5 8 3l5.5 4.5V13h-4V9.5h-3V13h-4z",
    "chat": "M2.5 3.5h11v7h-6L4.5 13v-2.5h-2z",
    "key": "M9.5 6.5a3 3 0 1 1-3-3 3 3 0 0 1 3 3zM8.7 8.7l4.8 4.8M11 11l1.5-1.5",
    "chart": "M2.5 13.5h11M4.5 11V8M8 11V4M11.5 11V6.5",
    "person": "M8 8a2.5 2.5 0 1 0 0-5 2.5 2.5 0 0 0 0 5zM3 13.5c.5-2.5 2.5-3.5 5-3.5s4.5 1 5 3.5",
    "people": "M6 7.5a2.2 2.2 0 1 0 0-4.5 2.2 2.2 0 0 0 0 4.5zM1.5 13c.5-2.3 2-3.3 4.5-3.3s4 1 4.5 3.3"
    "M10.5 3.3a2.2 2.2 0 0 1 0 4.1M12 9.9c1.5.5 2.3 1.5 2.5 3.1",
    "pulse": "M1.5 8.5h3l2-5 3 9 2-4h3",
    "box": "M2.5 5 8 2.2 13.5 5v6L8 13.8 2.5 11zM2.5 5 8 7.8 13.5 5M8 7.8v6",
    "layers": "M8 2.5 14 5.5 8 8.5 2 5.5zM2.5 8.5 8 11.2l5.5-2.7M2.5 11 8 13.7l5.5-2.7",
    "server": "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
    "arrows": "M2 5.5h10M9.5 3 12 5.5 9.5 8M14 10.5H4M6.5 8 4 10.5 6.5 13",
    "tree": "M6 2.5h4v3H6zM2 10.5h4v3H2zM10 10.5h4v3h-4zM8 5.5v2.5M4 10.5V8h8v2.5",
    "list": "M5.5 4h8M5.5 8h8M5.5 12h8M2.5 4h.01M2.5 8h.01M2.5 12h.01",
    "sliders": "M2.5 4.5h6M11.5 4.5h2M2.5 11.5h2M7.5 11.5h6M10 3v3M6 10v3",
    "search": "M7 11.5a4.5 4.5 0 1 0 0-9 4.5 4.5 0 0 0 0 9zM10.3 10.3 13.5 13.5",
    "menu": "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
    "close": "M4 4l8 8M12 4l-8 8",
    "copy": "M5.5 5.5h7v8h-7zM3.5 10.5v-8h7",
    "door": "M9.5 2.5h-6v11h6M7 8h7M11.5 5.5 14 8l-2.5 2.5",
    "send": "M8 13.5v-11M3.5 7 8 2.5 12.5 7",
    "stop": "M4.5 4.5h7v7h-7z",
    "plus": "M8 3v10M3 8h10",
    "sun": "M8 11a3 3 0 1 0 0-6 3 3 0 0 0 0 6zM8 1.5v1.5M8 13v1.5M1.5 8H3M13 8h1.5"
    "M3.4 3.4l1 1M11.6 11.6l1 1M3.4 12.6l1-1M11.6 4.4l1-1",
    "moon": "M13 9.5A5.5 5.5 0 0 1 6.5 3a5.5 5.5 0 1 0 6.5 6.5z",
    "screen": "M2 3h12v8H2zM6 13.5h4",
}

STATES = {
    # Each with a shape of its own, so that it is told apart without colour.
    "ready": ("good", '<circle cx="8" cy="8" r="5" fill="currentColor"/>'),
    "serving": ("good", '<circle cx="8" cy="8" r="5" fill="currentColor"/>'),
    "active": ("good", '<circle cx="8" cy="8" r="5" fill="currentColor"/>'),
    "connected": ("good", '<circle cx="8" cy="8" r="5" fill="currentColor"/>'),
    "ok": ("good", '<path d="M3 8.5 6.5 12 13 4.5"/>'),
    "pending": ("busy", '<circle cx="8" cy="8" r="5" stroke-dasharray="2 2.2"/>'),
    "fetching": ("busy", '<path d="M8 2.5v8M4.5 7 8 10.5 11.5 7M3 13.5h10"/>'),
    "starting": ("busy", '<circle cx="8" cy="8" r="5"/><path d="M8 3a5 5 0 0 1 0 10z" fill="currentColor"/>'),
    "loading": ("busy", '<circle cx="8" cy="8" r="5"/><path d="M8 8V3a5 5 0 0 1 5 5z" fill="currentColor"/>'),
    "backoff": ("busy", '<path d="M12.5 5.5A5 5 0 1 0 13 9M13 2.5v3.3H9.7"/>'),
    "draining": ("busy", '<path d="M8 2.5v7M5 7l3 3 3-3"/><path d="M3 13h10"/>'),
    "stopping": ("busy", '<rect x="4" y="4" width="8" height="8"/>'),
    "unsettled": ("busy", '<circle cx="8" cy="8" r="5" stroke-dasharray="2 2.2"/>'),
    "cordoned": ("busy", '<circle cx="8" cy="8" r="5"/><path d="M4.5 11.5l7-7"/>'),
    "parked": ("bad", '<path d="M5.5 3.5v9M10.5 3.5v9" stroke-width="2.5"/>'),
    "failed": ("bad", '<path d="M4 4l8 8M12 4l-8 8"/>'),
    "engine_failed": ("bad", '<path d="M4 4l8 8M12 4l-8 8"/>'),
    "timed_out": ("bad", '<circle cx="8" cy="8" r="5.5"/><path d="M8 5v3l2 2"/>'),
    "lost": ("bad", '<path d="M8 2.5 14 13H2z"/><path d="M8 6.5v3M8 11.3v.01"/>'),
    "no_capacity": ("bad", '<path d="M8 2.5 14 13H2z"/><path d="M8 6.5v3M8 11.3v.01"/>'),
    "away": ("bad", '<path d="M8 2.5 14 13H2z"/><path d="M8 6.5v3M8 11.3v.01"/>'),
    "refused": ("bad", '<circle cx="8" cy="8" r="5"/><path d="M4.5 11.5l7-7"/>'),
    "revoked": ("idle", '<path d="M4 4l8 8M12 4l-8 8"/>'),
    "expired": ("idle", '<circle cx="8" cy="8" r="5.5"/><path d="M8 5v3l2 2"/>'),
    "stopped": ("idle", '<rect x="4" y="4" width="8" height="8" fill="currentColor"/>'),
    "client_left": ("idle", '<path d="M9.5 3h-6v10h6M7 8h7M11.5 5.5 14 8l-2.5 2.5"/>'),
    "unknown": ("unknown", '<path d="M5.5 6a2.5 2.5 0 1 1 3.5 2.3c-.700.4-1 .8-1 1.7M8 12.5v.01"/>'),
}
