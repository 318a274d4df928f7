"""The command lines and environments that llmgw builds, as text: what changes here restarts engines, so it is read.

`python -m tests.agent.engines.test_golden` writes them anew.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.engine import Command
from agent.engines import ENGINES
from agent.launchers import llamacpp_server
from tests.agent.engines.profiles import KEY, PATHS, SHARDS, WHEEL

GOLDEN = Path(__file__).parent / "golden"
HOST = "10.0.0.1"


def built(name: str) -> tuple[Command, ...]:
    shard = SHARDS[name]
    paths = WHEEL if "-wheel-" in name else PATHS[shard.profile.engine]
    return ENGINES[shard.profile.engine].commands(shard, paths, HOST)


def shown(name: str) -> str:
    """An argument a line, a flag with its value; the environment above; of secrets their names."""
    lines = []
    for command in built(name):
        if command.waits_for is not None:
            meeting = command.waits_for
            lines.append(f"# once {meeting.host} listens on {meeting.port}, for at most {meeting.timeout_s:g} s")
        lines += [f"{k}={v}" for k, v in sorted(command.env.items())]
        lines += [f"{k}=(secret)" for k in sorted(command.secret_env)]
        lines += [f"    {argument}" for argument in command.argv]
        lines.append("")
    return "\n".join(lines)


@pytest.mark.parametrize("name", sorted(SHARDS))
def test_commands_are_the_golden_ones(name: str) -> None:
    assert shown(name) == (GOLDEN / f"{name}.txt").read_text()


def test_nothing_lies_there_that_nobody_builds() -> None:
    assert sorted(p.stem for p in GOLDEN.glob("*.txt")) == sorted(SHARDS)


def test_our_launcher_of_llama_cpp_knows_what_is_built() -> None:
    (command,) = built("llamacpp-wheel-layers")
    flags = dict(llamacpp_server.parse(command.argv[command.argv.index("--model") :]))
    assert flags["--split-mode"] == "layer"
    assert flags["--tensor-split"] == "3,1"


@pytest.mark.parametrize("name", sorted(SHARDS))
def test_what_is_built_is_not_refused(name: str) -> None:
    profile = SHARDS[name].profile
    assert ENGINES[profile.engine].problems(profile, None) == ()


@pytest.mark.parametrize("name", sorted(SHARDS))
def test_the_key_is_nowhere_that_others_can_read(name: str) -> None:
    for command in built(name):
        assert KEY not in " ".join(command.argv)
        assert KEY not in str(command.env)
        assert KEY not in repr(command)
        assert command.secret_env


if __name__ == "__main__":
    for each in SHARDS:
        (GOLDEN / f"{each}.txt").write_text(shown(each))
