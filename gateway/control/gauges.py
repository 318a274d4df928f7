"""Figures of the whole cluster for the exporter: cheap counts, written by whichever worker looks."""

from __future__ import annotations

import time
from pathlib import Path

from django.db.models import Count

from fleet.models import Node, Replica
from gateway.control.journal import journals
from gateway.control.redis import client
from llmgw import metrics, series


def push(spool: Path) -> None:
    """Raises `redis.RedisError`."""
    figures = metrics.Figures()
    for model, state, count in Replica.objects.order_by().values_list("model", "state").annotate(n=Count("id")):
        figures.put(series.REPLICAS, count, (model, state))
    connected = dict(Node.objects.order_by().values_list("connected").annotate(n=Count("id")))
    for node, up in Node.objects.order_by().values_list("node_id", "connected"):
        figures.put(series.NODE_UP, float(up), (node,))
    figures.put(series.NODES, connected.get(True, 0), ("connected",))
    figures.put(series.NODES, connected.get(False, 0), ("away",))
    figures.put(series.NODES, Node.objects.filter(cordoned=True).count(), ("cordoned",))
    if spool.is_dir():
        figures.put(series.INGEST_BACKLOG, sum(j.backlog_bytes() for j in journals(spool)))
    client().set(metrics.FLEET, metrics.encode(figures.state("fleet", time.time())))
