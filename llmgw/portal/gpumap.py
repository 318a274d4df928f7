"""The map of every card: nodes as boxes, cards as cells, drawn so compactly that a thousand stay quick.

A cell says by a letter or a figure what its colour says too: a letter is a model (the legend has it), a figure is per
cent. `×` cannot be used, `!` is held by programs that are not ours, `–` hatched is not known, which is never zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from django.utils import translation
from django.utils.functional import Promise
from django.utils.html import format_html
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext

from fleet.core.devices import Device
from fleet.core.replica import State
from fleet.selectors.machines import Machines

MODES: dict[str, str | Promise] = {
    "work": gettext_lazy("Work"),
    "busy": gettext_lazy("Busy"),
    "memory": gettext_lazy("Memory"),
    "draw": gettext_lazy("Draw"),
}
COLOURS = 8
"""Models have a letter each; from the ninth on they share colours."""

NARROW = 4
"""Cells that a narrow box has room for."""


@dataclass(frozen=True, slots=True)
class Key:
    """What a letter stands for, most cards first."""

    letter: str
    colour: int
    model: str
    cards: int


@dataclass(frozen=True, slots=True)
class Box:
    """A node's part of the map; `cells` is markup of ours alone."""

    node: str
    rack: str
    standing: str
    words: str
    cells: SafeString
    count: int

    @property
    def part(self) -> str:
        return f"n-{self.node}"


@dataclass(frozen=True, slots=True)
class Map:
    mode: str
    boxes: Sequence[Box] = ()
    keys: Sequence[Key] = ()
    states: Mapping[str, int] = field(default_factory=dict)

    @property
    def racks(self) -> list[tuple[str, list[Box], bool]]:
        """By rack, in their order, and whether its nodes are narrow; nodes that stand nobody knows where come last."""
        order = sorted(self.boxes, key=lambda b: (not b.rack, b.rack, b.node))
        racks = [(rack, list(found)) for rack, found in groupby(order, key=lambda b: b.rack)]
        return [(rack, found, all(b.count <= NARROW for b in found)) for rack, found in racks]


def keys(devices: Iterable[Device]) -> tuple[Key, ...]:
    """Of every model that works somewhere."""
    counts = Counter(d.work.model for d in devices if d.work is not None)
    ranked = sorted(counts.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(Key(_letter(n), n % COLOURS, model, count) for n, (model, count) in enumerate(ranked))


def draw(mode: str, shown: Iterable[Device], everything: Iterable[Device]) -> Map:
    """The map of `shown`, in the page's language; letters are given by `everything`, so that no filter changes one."""
    legend = keys(everything)
    letters = {key.model: key for key in legend}
    devices = sorted(shown, key=lambda d: d.node)
    boxes = [_box(mode, node, list(mine), letters) for node, mine in groupby(devices, key=lambda d: d.node)]
    states = Counter(d.state for d in devices)
    working = {d.work.model for d in devices if d.work is not None}
    return Map(mode, boxes, [key for key in legend if key.model in working], states)


def render(found: Machines, language: str, mode: str) -> dict[str, str]:
    """Each node's box by its id: what the pages that watch `mode` replace."""
    with translation.override(language):
        drawn = draw(mode if mode in MODES else "work", found.devices, found.devices)
        return {box.part: inner(box) for box in drawn.boxes}


def inner(box: Box) -> SafeString:
    return format_html('<p role="img" aria-label="{}">{}</p>', box.words, box.cells)


def _box(mode: str, node: str, devices: list[Device], letters: Mapping[str, Key]) -> Box:
    cells = []
    for _card, found in groupby(devices, key=lambda d: d.card):
        mine = list(found)
        drawn = "".join(_cell(mode, d, letters) for d in mine)
        cells.append(f"<b>{drawn}</b>" if any(d.gpu.mig_profile for d in mine) else drawn)
    first = devices[0]
    return Box(node, first.rack, first.standing, _words(mode, devices), mark_safe("".join(cells)), len(devices))  # noqa: S308


def _cell(mode: str, device: Device, letters: Mapping[str, Key]) -> str:
    """Letters, figures and classes alone: nothing that somebody else wrote."""
    if device.gpu.problem is not None and device.work is None:
        return "<i class=x>×</i>"
    if mode == "work":
        if device.work is not None:
            key = letters[device.work.model]
            late = "" if device.work.state is State.READY else " s"
            quoted = f'"m{key.colour}{late}"' if late else f"m{key.colour}"
            return f"<i class={quoted}>{key.letter}</i>"
        if device.unusable == "foreign":
            return "<i class=e>!</i>"
        return "<i class=o>·</i>" if device.unusable else "<i></i>"
    value = _value(mode, device)
    if value is None:
        return "<i class=u>–</i>"
    strange = " e" if device.foreign_bytes and mode == "memory" else ""
    level = min(max(int(value / 10), 0), 9)
    return f'<i class="l{level}{strange}">{value:.0f}</i>' if strange else f"<i class=l{level}>{value:.0f}</i>"


def _value(mode: str, device: Device) -> float | None:
    match mode:
        case "busy":
            return device.busy_percent
        case "memory":
            return device.memory_percent
        case _:
            return device.draw_percent


def _words(mode: str, devices: Sequence[Device]) -> str:
    """What a person hears who does not see the cells."""
    if mode == "work":
        models = Counter(d.work.model for d in devices if d.work is not None)
        states = Counter(d.state for d in devices)
        said = [f"{model} {count}" for model, count in models.most_common()]
        said += [f"{word} {states[state]}" for state, word in (("free", _("free")), ("unusable", _("unusable"))) if states[state]]  # fmt: skip # noqa: E501
    else:
        values = [_value(mode, d) for d in devices]
        said = ["–" if v is None else f"{v:.0f} %" for v in values]
    count = ngettext("%(n)s card", "%(n)s cards", len(devices)) % {"n": len(devices)}
    return f"{count}: {', '.join(said)}"


def _letter(n: int) -> str:
    """A … Z, then A2 …"""
    return chr(ord("A") + n % 26) + (str(n // 26 + 1) if n >= 26 else "")
