"""Kill one process after another under load for as long as asked, and see that money and books agree.

FAULT_MINUTES=60 python -m pytest -s tests/e2e/test_faults.py
"""

from __future__ import annotations

import os
import random
import tempfile
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.e2e.conftest import Cluster
from tests.e2e.test_survival import Load, booked

MINUTES = float(os.environ.get("FAULT_MINUTES", "0"))
VICTIMS = ("edge", "web", "worker", "beat", "link", "metrics", "redis", "agent", "engine")

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.timeout(MINUTES * 60 + 600),
    pytest.mark.skipif(not MINUTES, reason="takes as long as FAULT_MINUTES says, and it says nothing"),
    pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"),
]


def test_money_agrees_after_faults() -> None:
    killed: Counter[str] = Counter()
    dice = random.Random(7)
    with tempfile.TemporaryDirectory(prefix="llmgw-e2e-") as folder:
        cluster = Cluster(Path(folder))
        try:
            cluster.start()
            cluster.command("config", "set", "limits.default_rpm", "0")
            cluster.command("config", "set", "limits.default_tpm", "0")
            cluster.command("limits", "set", "default/default/default", "--budget", "1000", "--concurrent", "64")
            cluster.command("ledger", "verify")  # from here on the edges' counters are compared too
            until = time.monotonic() + MINUTES * 60
            with Load(cluster) as load:
                while time.monotonic() < until:
                    victim = dice.choice(VICTIMS)
                    if victim == "engine":
                        os.kill(cluster.engine_pid(), 9)
                    else:
                        dead = cluster.kill(victim)
                        cluster.until(lambda v=victim, d=dead: cluster.pid(v) not in (None, d), 30)
                    killed[victim] += 1
                    load.more(20, 90)
                    time.sleep(dice.uniform(0.5, 3))
            booked(cluster, load.answered)
            cluster.until(lambda: _agrees(cluster), 60, "the ledger does not agree")
            unknown = cluster.rows("SELECT count(*) FROM gateway_usage WHERE outcome = 'unknown'")[0][0]
            found = cluster.command("ledger", "verify")
            print(f"\n{MINUTES:g} min: killed {dict(killed)}; {len(load.answered)} answered and booked once each, ")
            print(f"{len(load.failed)} failed, {unknown} of unknown end; ledger verify: {found}")
        finally:
            cluster.close()


def _agrees(cluster: Cluster) -> bool:
    try:
        cluster.command("ledger", "verify")
    except AssertionError:
        return False
    return True
