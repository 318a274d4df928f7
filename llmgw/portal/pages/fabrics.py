"""Fabrics: NVLink domains as racks, InfiniBand, RoCE and Ethernet with their nodes."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from fleet.selectors import machines
from llmgw.portal import fabric_racks
from llmgw.portal.gate import administrators


@administrators
def fabrics(request: HttpRequest) -> HttpResponse:
    return render(request, "portal/fabrics.html", {"page": fabric_racks.page(machines.look())})
