"""What a change would have made of the traffic there was: written by form, by hand or in a file, tried by a worker."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import yaml
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from catalog import selectors as catalog
from catalog.core.writing import written
from fleet import selectors
from llmgw.cluster.errors import Invalid
from llmgw.portal import plot, whatif
from llmgw.portal.gate import administrators, person

STATES = {"waiting": "queued", "running": "reckoning"}
FIGURES: dict[str, tuple[str | Promise, int]] = {
    "requests": (gettext_lazy("Requests"), 0),
    "refused": (gettext_lazy("Refused"), 0),
    "refused_percent": (gettext_lazy("Refused, %"), 2),
    "waited_over_1_s": (gettext_lazy("Waited for over 1 s"), 0),
    "ttft_p50_s": (gettext_lazy("First token, median (s)"), 2),
    "ttft_p95_s": (gettext_lazy("First token, p95 (s)"), 2),
    "gpu_hours": (gettext_lazy("GPU hours"), 1),
    "starts": (gettext_lazy("Starts"), 0),
    "cost": (gettext_lazy("Cost of the cards"), 2),
}
DRAWN = ("refused", "ttft_p95_s", "gpu_hours", "cost")
EXAMPLE = "name: two of it by day\nmodels:\n  MODEL:\n    scaling: {min: 1, max: 2}\ngpu_hour: {h200: 3.10}\n"


@administrators
def whatif_page(request: HttpRequest) -> HttpResponse:
    """The newest trial and the forms for another; POST writes a change, begins a trial or stops it."""
    text = None
    if request.method == "POST":
        match request.POST.get("what"):
            case "write":
                text = yaml.safe_dump(_change(request), allow_unicode=True, sort_keys=False)
            case "begin":
                days = _number(request, "days") or 7.0
                whatif.begin(change=_sent(request), days=days, actor=person(request).email)
                return redirect("portal:whatif")
            case "stop":
                whatif.stop()
                return redirect("portal:whatif")
            case other:
                raise Invalid("bad_change", f"a change is written, tried or stopped, not {other!r}")
    run = whatif.newest()
    context = {
        "run": run,
        "state": STATES.get(run.state, run.state) if run is not None else None,
        "figures": _figures(run.told) if run is not None and run.told else [],
        "plots": _plots(run.told) if run is not None and run.told else [],
        "models": _models(run.told) if run is not None and run.told else [],
        "text": text if text is not None else run.change if run is not None else EXAMPLE,
        "written": text is not None,
        "names": [e.name for e in catalog.entries() if e.definition is not None and e.definition.profiles],
        "nodes": [n["node"] for n in selectors.nodes()],
    }
    return render(request, "portal/whatif.html", context)


def _sent(request: HttpRequest) -> str:
    file = request.FILES.get("file")
    if file is None:
        return str(request.POST.get("change", "")).replace("\r\n", "\n")
    try:
        return str(file.read(whatif.LONGEST + 1).decode())
    except UnicodeDecodeError:
        raise Invalid("bad_change", "the file is no text") from None


def _change(request: HttpRequest) -> dict[str, Any]:
    """The common ones, by form. What a model's scaling says besides stays."""
    said = request.POST
    change: dict[str, Any] = {"name": said.get("name", "").strip() or _("the change")}
    if name := said.get("model"):
        found = catalog.entry(name)
        scaling = dict(written(found.definition).get("scaling") or {}) if found.definition is not None else {}
        for key in ("min", "max"):
            if (value := _number(request, key)) is not None:
                scaling[key] = int(value)
        if said.get("from") and said.get("to"):
            window: dict[str, Any] = {"days": [said.get("week") or "weekdays"], "from": said["from"], "to": said["to"]}
            scaling["schedule"] = [{**window, "min": int(_number(request, "window_min") or 1)}]
        change["models"] = {found.name: {"stopped": True} if "stopped" in said else {"scaling": scaling}}
    if out := said.getlist("nodes_out"):
        change["nodes_out"] = out
    costs = [pair.partition(":") for pair in said.get("gpu_hour", "").split(",") if pair.strip()]
    if costs:
        try:
            change["gpu_hour"] = {kind.strip(): float(cost) for kind, _colon, cost in costs}
        except ValueError:
            raise Invalid("bad_costs", "costs are written like h200: 3.10, l40s: 0.90") from None
    if len(change) == 1:
        messages.info(request, _("The form is empty: nothing would change."))
    return change


def _number(request: HttpRequest, name: str) -> float | None:
    said = request.POST.get(name, "").strip()
    if not said:
        return None
    try:
        return float(said)
    except ValueError:
        raise Invalid("bad_number", f"{name} is a number, and not {said[:40]!r}") from None


def _figures(told: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for name, (label, digits) in FIGURES.items():
        one, other = told["as_it_is"].get(name), told["as_it_would_be"].get(name)
        rows.append(
            {
                "label": label,
                "digits": digits,
                "measured": told["measured"].get(name),
                "as_it_is": one,
                "as_it_would_be": other,
                "difference": None if one is None or other is None else other - one,
            }
        )
    return rows


def _plots(told: dict[str, Any]) -> list[tuple[str | Promise, plot.Plot]]:
    """Two columns a figure: as it is, as it would be. Figures below one are drawn in thousandths."""
    found = []
    for name in DRAWN:
        pair = [told[side].get(name) for side in ("as_it_is", "as_it_would_be")]
        if any(value is None for value in pair) or not any(pair):
            continue
        scale = 1000 if name == "ttft_p95_s" else 1
        one, other = (round(value * scale) for value in pair)
        label = _("First token, p95 (ms)") if name == "ttft_p95_s" else FIGURES[name][0]
        found.append((label, replace(plot.stacked([one, None], [None, other]), labels=())))
    return found


def _models(told: dict[str, Any]) -> list[dict[str, Any]]:
    after = {row["model"]: row for row in told["models_as_it_would_be"]}
    before = {row["model"]: row for row in told["models_as_it_is"]}
    return [{"model": name, "before": before.get(name), "after": after.get(name)} for name in sorted({*before, *after})]
