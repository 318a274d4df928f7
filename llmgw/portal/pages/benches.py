"""Measuring what a replica of a model carries: asked for here, carried out by a worker, watched level by level."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _

from catalog import selectors as catalog
from fleet import benches, selectors
from fleet.actions import bench as actions
from llmgw.cluster.errors import Invalid
from llmgw.portal import plot
from llmgw.portal.gate import administrators, person

STATES = {"waiting": "queued", "running": "measuring"}
"""What a measurement's states are called where other things have states, too."""


@administrators
def one(request: HttpRequest, model: str) -> HttpResponse:
    """The newest measurement and the form for another; POST begins one or stops it."""
    found = catalog.entry(model)
    if request.method == "POST":
        _change(request, found.name)
        return redirect("portal:models-bench", model=found.name)
    run = benches.of(found.name)
    serving = [r for r in selectors.replicas(model=found.name) if r["state"] == "ready"]
    context = {
        "name": found.name,
        "run": run,
        "slo": found.definition.slo if found.definition else None,
        "replicas": serving,
        "measured": found.measured,
        "state": STATES.get(run.state, run.state) if run is not None else None,
        "promised": (_ms(run.ttft_p99_s), _ms(run.tpot_p99_s)) if run is not None else None,
        "levels": [_shown(level) for level in run.levels] if run is not None else [],
        "plots": _plots(run) if run is not None and run.levels else None,
    }
    return render(request, "portal/models/bench.html", context)


def _change(request: HttpRequest, name: str) -> None:
    actor = person(request).email
    match request.POST.get("what"):
        case "begin":
            said = request.POST
            benches.begin(
                name=name,
                actor=actor,
                replica=said.get("replica") or None,
                slo=actions.promise(said.get("ttft", "").strip(), said.get("tpot", "").strip()),
                shape=actions.shaped(
                    seconds=_number(said.get("seconds", ""), 10),
                    words=_number(said.get("words", ""), 200),
                    tokens=_number(said.get("tokens", ""), 64),
                    most=_number(said.get("most", ""), 256),
                ),
                save="save" in said,
            )
        case "stop":
            if benches.stop(name=name) is None:
                messages.info(request, _("It was over already."))
        case other:
            raise Invalid("bad_change", f"a measurement is begun or stopped, not {other!r}")


def _number(said: str, absent: int) -> int:
    said = said.strip()
    if not said:
        return absent
    if not (said.isascii() and said.isdigit()) or len(said) > 9:
        raise Invalid("bad_number", f"seconds, words, tokens and most are whole numbers, and not {said[:40]!r}")
    return int(said)


def _ms(seconds: float | None) -> float | None:
    return None if seconds is None else seconds * 1000


def _shown(level: dict[str, Any]) -> dict[str, Any]:
    kv = level["kv"]
    return {
        **level,
        "ttft_ms": _ms(level["ttft_p99_s"]),
        "tpot_ms": _ms(level["tpot_p99_s"]),
        "kv_percent": None if kv is None else kv * 100,
    }


def _plots(run: benches.Run) -> dict[str, plot.Plot]:
    """Columns by requests at once: the levels that kept the promise in one layer, the one that missed in the other."""

    def of(name: str, scale: float) -> plot.Plot:
        values = [(level["held"], level[name]) for level in run.levels]
        kept = [round(v * scale) if held and v is not None else None for held, v in values]
        missed = [round(v * scale) if not held and v is not None else None for held, v in values]
        found = plot.stacked(kept, missed)
        labels = tuple(plot.Tick(run.levels[t.value]["concurrency"], t.at) for t in found.labels)
        return replace(found, labels=labels)

    return {"tokens": of("tokens_per_s", 1), "ttft": of("ttft_p99_s", 1000), "tpot": of("tpot_p99_s", 1000)}
