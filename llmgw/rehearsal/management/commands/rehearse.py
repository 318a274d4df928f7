"""`llmgw rehearse`: a whole cluster without GPUs, for training, sizing and bad days."""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml
from django.conf import settings
from django.core.management.base import CommandParser

from llmgw.cluster.commands import NounCommand, table
from llmgw.cluster.errors import Conflict, Invalid
from llmgw.rehearsal import home as own_home
from llmgw.rehearsal import invariants, worldfile
from llmgw.rehearsal.ports import free_ports

_OWN = "LLMGW_REHEARSAL_HOME"
"""In the environment of the process that conducts: whose home its Django was set up on."""
_VERBS = ("run", "check", "templates", "faults", "week", "change")


class Command(NounCommand):
    help = "Rehearse: a cluster of pretended nodes, beside a control plane of its own."
    examples = (
        "  llmgw rehearse docs/rehearsal/three-nodes.yaml\n"
        "  llmgw rehearse docs/rehearsal/bad-day.yaml --json\n"
        "  llmgw rehearse run WORLD.yaml --stay\n"
        "  llmgw rehearse check WORLD.yaml\n"
        "  llmgw rehearse faults\n"
        "  llmgw rehearse week docs/rehearsal/week.yaml\n"
        "  llmgw rehearse change docs/rehearsal/change.yaml --days 7"
    )

    def run_from_argv(self, argv: list[str]) -> None:
        # `llmgw rehearse WORLD.yaml` is what people type.
        if len(argv) > 2 and argv[2] not in _VERBS and not argv[2].startswith("-"):
            argv = [*argv[:2], "run", *argv[2:]]
        super().run_from_argv(argv)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        kwargs.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        return super().create_parser(prog_name, subcommand, **kwargs)

    def build(self) -> None:
        run = self.verb("run", _run, "play a world from its first join to its last fault", _show)
        run.add_argument("world", type=Path, metavar="WORLD.yaml")
        run.add_argument("--home", type=Path, help="its own state directory, kept; else one that is thrown away")
        run.add_argument("--into", action="store_true", help="go on in --home, where an earlier rehearsal was")
        run.add_argument("--stay", action="store_true", help="stay after the last fault, to look around; Ctrl-C ends")
        check = self.verb("check", _check, "read a world file and name every problem")
        check.add_argument("world", type=Path, metavar="WORLD.yaml")
        week = self.verb("week", _week, "a pretended week of a world in minutes, without a process", _show_week)
        week.add_argument("world", type=Path, metavar="WORLD.yaml")
        week.add_argument("--days", type=float, default=7.0)
        week.add_argument("--losses", type=int, default=3, help="nodes that are lost at random, and come back")
        week.add_argument("--look", type=float, default=10.0, help="seconds between two passes of the planner")
        change = self.verb("change", _change, "what a change would have made of the traffic there was", _show_change)
        change.add_argument("change", type=Path, metavar="CHANGE.yaml")
        change.add_argument("--days", type=float, default=7.0, help="of traffic, until now")
        self.verb("templates", _templates, "the machines that a world may be made of")
        self.verb("faults", _faults, "the faults that a world may hold")


def _yaml(path: Path) -> Any:
    try:
        raw = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        raise Invalid("no_world", f"there is no file {path}") from None
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as e:
        raise Invalid("bad_world", f"{path} cannot be read: {' '.join(str(e).split())}") from None
    return raw


def _read(path: Path) -> worldfile.World:
    return worldfile.read(_yaml(path))


def _week(world: Path, days: float, losses: int, look: float) -> dict[str, Any]:
    from llmgw.rehearsal import pretended_week

    return pretended_week.play(_read(world), days=days, losses=losses, look_s=look)


def _change(change: Path, days: float) -> dict[str, Any]:
    from llmgw.rehearsal.change import rehearse

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr, flush=True)

    return rehearse(_yaml(change), days=days, now=time.time(), say=say)


def _show_week(told: dict[str, Any]) -> None:
    print(f"{told['world']}: {told['days']:g} days, {told['looks']} looks, {told['node_losses']} node losses\n")
    table([told["week"]], [n for n in told["week"] if n != "gpu_hours_by_class"])
    print()
    table(told["models"])
    for problem in told["broken"]:
        print(f"BROKEN: {problem}")


def _show_change(told: dict[str, Any]) -> None:
    print(f"{told['change']}: {told['days']:g} days of traffic\n")
    columns = {"measured": told["measured"], "as it is": told["as_it_is"], "as it would be": told["as_it_would_be"]}
    difference = told["difference"]
    table(
        [
            {
                "figure": name.replace("_", " "),
                **{column: figures.get(name) for column, figures in columns.items()},
                "difference": difference.get(name),
            }
            for name in told["as_it_is"]
            if name != "gpu_hours_by_class"
        ]
    )
    print()
    for sentence in told["sureness"]:
        print(f"- {sentence}")
    for problem in told["broken"]:
        print(f"BROKEN: {problem}")


def _check(world: Path) -> dict[str, Any]:
    found = _read(world)
    return {
        "name": found.name,
        "nodes": len(found.node_ids),
        "cards": sum(len(n.facts.gpus or ()) for n in found.nodes(64)),
        "models": [m.definition.name for m in found.models],
        "faults": [f.title for f in found.faults],
    }


def _templates() -> list[dict[str, Any]]:
    from agent.rehearsal.hardware import TEMPLATES

    return [{"template": n, "what": t.what, "cards": t.cards, "cpus": t.cpus} for n, t in TEMPLATES.items()]


def _faults() -> list[dict[str, Any]]:
    from llmgw.rehearsal.faults import KINDS

    return [
        {
            "fault": name,
            "what": kind.what,
            "takes": [w for w, has in (("nodes", kind.nodes), ("model", kind.model), ("for", kind.held)) if has],
        }
        for name, kind in KINDS.items()
    ]


def _run(world: Path, home: Path | None, into: bool, stay: bool) -> dict[str, Any] | None:
    found = _read(world)
    if os.environ.get(_OWN) != str(settings.MACHINE.home):
        _conduct_elsewhere(home, into)
    return _conduct(found, stay)


def _conduct_elsewhere(home: Path | None, into: bool) -> None:
    """This process's Django is set up on the caller's home: another one begins on the rehearsal's."""
    thrown_away = home is None
    if home is None:
        if into:
            raise Invalid("no_home", "--into goes on in a home that is there: name it with --home")
        home = Path(tempfile.mkdtemp(prefix="llmgw-rehearsal-"))
    home = home.expanduser().absolute()
    if into and not own_home.marked(home):
        raise Conflict(
            "not_a_rehearsal",
            f"{home} is no rehearsal's; a rehearsal never touches a real cluster",
            "llmgw rehearse WORLD.yaml --home NEW-FOLDER",
        )
    if not into and not thrown_away and home.exists() and any(home.iterdir()):
        raise Conflict("home_taken", f"{home} is not empty", f"llmgw rehearse WORLD.yaml --home {home} --into")
    own_home.prepare(home)
    ports = free_ports(3)
    plain = {k: v for k, v in os.environ.items() if not k.startswith("LLMGW_") or k in ("LLMGW_LANGUAGE",)}
    environment = {
        **plain,
        "DJANGO_SETTINGS_MODULE": "llmgw.settings",
        "LLMGW_HOME": str(home),
        _OWN: str(home),
        **({"LLMGW_STORE": os.environ["LLMGW_REHEARSAL_STORE"]} if "LLMGW_REHEARSAL_STORE" in os.environ else {}),
        "PORT": str(ports[0]),
        "LINK_PORT": str(ports[1]),
        "METRICS_PORT": str(ports[2]),
        "HOST": "127.0.0.1",
        "PYTHONPATH": os.pathsep.join(filter(None, (str(settings.BASE_DIR), os.environ.get("PYTHONPATH")))),
    }
    pid = os.fork()
    if pid == 0:
        os.execve(sys.executable, [sys.executable, "-m", "django", *sys.argv[1:]], environment)  # noqa: S606
    status = _wait(pid)
    if thrown_away:
        shutil.rmtree(home, ignore_errors=True)
    raise SystemExit(status)


def _wait(pid: int) -> int:
    """The child's end; a Ctrl-C is the child's too, and a SIGTERM is passed on."""
    import signal

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, lambda *_: os.kill(pid, signal.SIGTERM))
    while True:
        try:
            _, status = os.waitpid(pid, 0)
            return os.waitstatus_to_exitcode(status)
        except InterruptedError:
            continue


def _conduct(world: worldfile.World, stay: bool) -> dict[str, Any]:
    from llmgw.rehearsal.conduct import Rehearsal

    as_json = "--json" in sys.argv

    def say(sentence: str) -> None:
        print(sentence, file=sys.stderr if as_json else sys.stdout, flush=True)

    rehearsal = Rehearsal(world, settings.MACHINE, say)
    outcomes = rehearsal.run(stay)
    told = {
        "world": world.name,
        "held": bool(outcomes) and all(o.held for o in outcomes) and len(outcomes) > len(world.faults),
        "acts": [o.told() for o in outcomes],
        **rehearsal.told(),
    }
    if not told["held"]:
        _print(told, as_json)
        raise SystemExit(1)
    return told


def _print(told: dict[str, Any], as_json: bool) -> None:
    import json

    print(json.dumps(told, indent=2)) if as_json else _show(told)


def _show(told: dict[str, Any]) -> None:
    print()
    table(
        [
            {
                "fault": act["fault"],
                "back after": "-" if act["back_s"] is None else f"{act['back_s']:.1f} s",
                **{name: "held" if act[name] else "BROKEN" for name in invariants.NAMES},
                "ended": act["engines_ended"],
            }
            for act in told["acts"]
        ]
    )
    print()
    for name in invariants.NAMES:
        print(f"  {name:<8} {invariants.TITLES[name]}")
    for act in told["acts"]:
        for problem in act["problems"][:5]:
            print(f"\n{act['fault']}: {problem}", end="")
    requests = told["requests"]
    if requests["answered"] or requests["failed"]:
        print(f"\n{requests['answered']} requests answered, {requests['failed']} not; usage rows: one each", end="")
        for why, count in requests["failures"].items():
            print(f"\n  {count} × {why}", end="")
    print(f"\n{'everything held' if told['held'] else 'NOT everything held'}")
