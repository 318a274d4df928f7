"""Stopped while its machine is away: as far as can be, and what is left is told. Over rows."""

from __future__ import annotations

import re
from datetime import timedelta

import pytest
from django.utils import timezone

from catalog.actions import models as actions
from fleet import models, passes
from fleet.selectors import details, serving, telling
from fleet.selectors.system import system
from llmgw.cluster.actions.serving import stop as system_stop
from tests.fleet import rows

pytestmark = pytest.mark.django_db


def test_stopped_while_its_machine_is_away_it_is_stopped_and_what_is_left_is_told() -> None:
    rows.link_is_up()
    rows.joined()
    replica = rows.serving()
    models.Node.objects.update(connected=False, last_seen=timezone.now() - timedelta(hours=1))
    rows.grace_is_over()
    actions.stop(name="tiny", actor="test")
    passes.run()
    replica.refresh_from_db()
    assert replica.state == "stopping"
    assert serving.model_states()["tiny"].state == "stopped"
    found = details.replica(replica.public_id)
    assert found["reason_code"] == "machine_silent"
    assert re.search(r"tiny was stopped; its machine n1 has been silent since 20.* UTC: it ends when", found["reason"])
    answer, left = telling.model("tiny")
    assert (answer.code, left.code, left.command) == ("stopped", "machine_silent", "llmgw node remove n1")
    assert telling.replica(replica.public_id)[0].command == "llmgw node remove n1"

    rows.joined("n2")
    actions.start(name="tiny", actor="test")
    passes.run()
    fresh = models.Replica.objects.exclude(pk=replica.pk).get()
    assert [s.node.node_id for s in fresh.shards.all()] == ["n2"], "it is started elsewhere meanwhile"
    rows.joined()
    rows.beat()
    assert list(models.Replica.objects.all()) == [fresh], "it ends when its machine is back"


def test_a_stopped_system_waits_for_no_machine_that_is_away() -> None:
    rows.link_is_up()
    rows.joined()
    rows.serving()
    models.Node.objects.update(connected=False, last_seen=timezone.now() - timedelta(hours=1))
    rows.grace_is_over()
    system_stop(actor="test")
    passes.run()
    told = system()
    assert told["waits_for"] == []
    assert "its machine n1 has been silent since" in told["left"][0]
