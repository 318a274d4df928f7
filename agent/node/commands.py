"""What each command of `llmgw-agent` does. Each returns the exit status."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Callable
from logging.handlers import RotatingFileHandler

import msgspec

from agent.node import discovery
from agent.node.agent import Agent, Identity
from agent.node.edits import Edits
from agent.node.home import Home, HomeTaken, only_agent, open_home
from agent.node.link import LinkLost, WebsocketLink
from agent.node.linux import reap
from agent.node.renewal import Renewal
from agent.node.settings import Settings, read
from agent.node.status import look, noted, refusal
from agent.node.supervisor import Supervisor
from agent.node.this_machine import EnginesHere, ThisMachine, card_watch, context, ways

Command = Callable[[argparse.Namespace], int]

_log = logging.getLogger("llmgw.agent")
_MARKS = {"ok": "✓", "warning": "!", "problem": "✗"}


def run(args: argparse.Namespace) -> int:
    home = open_home(args.home)
    settings = _settings(home)
    if settings is None:
        return 2
    reap()
    try:
        with only_agent(home):
            _log_to(home, verbose=args.verbose)
            return asyncio.run(_run(home, settings))
    except HomeTaken as e:
        return _fail(str(e))


def join(args: argparse.Namespace) -> int:
    from agent.node import joining

    try:
        name = joining.join(open_home(args.home), args.code, args.node_id, args.address)
    except joining.CannotJoin as e:
        return _fail(str(e))
    except OSError as e:
        return _fail(f"{args.home} cannot be written to: {e}")
    print(f"joined as {name}; now: llmgw-agent run --home {args.home}")
    return 0


def doctor(args: argparse.Namespace) -> int:
    from agent.core.doctor import Level, findings
    from agent.node import examination

    home = open_home(args.home)
    settings = _settings(home)
    if settings is None:
        return 2
    facts = ThisMachine(home, settings).facts(settings.address, ())
    problem = asyncio.run(_unreachable(settings)) or refusal(home)
    found = findings(examination.look(home, settings, facts, noted=noted(home), unreachable=problem))
    if args.json:
        print(msgspec.json.encode({"findings": found, "facts": facts}).decode())
    else:
        for f in found:
            advice = f" ({f.reason.command})" if f.reason.command else ""
            print(f"{_MARKS[f.level]} {f.check}: {f.reason.sentence}{advice}")
    return 1 if any(f.level is Level.PROBLEM for f in found) else 0


def engine_check(args: argparse.Namespace) -> int:
    from agent.node.engine_check import check

    path = args.bin
    if path is None:
        home = open_home(args.home)
        settings = _settings(home)
        if settings is None:
            return 2
        path = EnginesHere(home, settings).path(args.engine)
        if path is None:
            return _fail(f"{args.engine} is not installed on this node: name its program with --bin")
    found = check(args.engine, path)
    if args.json:
        print(msgspec.json.encode(found).decode())
    elif found.problem is not None:
        return _fail(found.problem.sentence)
    else:
        print(f"{found.engine} {found.version or ''} {found.bin}: {len(found.flags)} flags".replace("  ", " "))
        for device in found.devices or ():
            print(f"  {device}")
        for flag in found.unknown:
            print(f"✗ it does not know {flag}, which llmgw builds")
        if not found.unknown:
            print("✓ it knows all that llmgw builds")
    return 1 if found.problem is not None or found.unknown else 0


def stop_engines(args: argparse.Namespace) -> int:
    if not args.home.is_dir():
        return _fail(f"{args.home} does not exist", 2)
    home = open_home(args.home)
    count = asyncio.run(_stop_engines(home))
    print(f"{count} engine{'' if count == 1 else 's'} ended")
    return 0


def status(args: argparse.Namespace) -> int:
    if not args.home.is_dir():
        return _fail(f"{args.home} does not exist", 2)
    found = look(open_home(args.home))
    if args.json:
        print(msgspec.json.encode(found).decode())
        return 0
    pid, link = found["agent_pid"], found["link"]
    print(f"agent: {f'pid {pid}' if pid else 'not running'}; link: {link.get('state', 'unknown')}", end="")
    print(f" ({link['problem']})" if link.get("problem") else "")
    if link.get("renewal_problem"):
        print(f"the node's certificate was not renewed: {link['renewal_problem']}")
    if found["settings_problem"]:
        print(found["settings_problem"])
    for s in found["shards"]:
        print(f"{s['shard_id']}  {s['model']}  {s['state']}  port {s['port']}  {s['reason'] or ''}".rstrip())
    return 0


async def _run(home: Home, settings: Settings) -> int:
    cards = card_watch(settings)
    ctx = context(home, settings, cards)
    agent = Agent(
        ctx,
        Identity(settings.node_id, secrets.token_hex(8), settings.address),
        WebsocketLink(settings, lambda sentence: _log.warning("%s", sentence)),
        ThisMachine(home, settings, cards),
        Edits(home.settings, settings),
        Renewal(settings.tls, settings.node_id),
        ways=ways(home, settings) if settings.installs.on else None,
    )
    task = asyncio.create_task(agent.run())
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    _log.info("llmgw-agent %s as node %s in %s", discovery.version(), settings.node_id, home.path)
    if settings.unknown:
        _log.warning("agent.yaml has names that are not known here: %s", ", ".join(settings.unknown))
    if os.geteuid() == 0 and settings.engine_user is None:
        _log.info("engines run as root, as the agent does: set engine_user in agent.yaml to change that")
    try:
        await task
    except asyncio.CancelledError:
        _log.info("the agent ends; its engines go on serving")
        if ctx.tracing is not None:
            ctx.tracing.close()
        logging.shutdown()
        os._exit(0)  # a thread that reads a large file would be waited for otherwise
    if ctx.tracing is not None:
        ctx.tracing.close()
    _log.info("agent.yaml was edited: the agent starts again on it; its engines go on serving")
    return _again()


def _again() -> int:
    """This process becomes the next agent: whoever watches over it sees nothing end, and engines stay its children."""
    try:
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606 - the very command it was started by
    except OSError as e:
        _log.error("the agent could not start itself again and ends; its engines go on serving: %s", e)
        os._exit(1)


async def _stop_engines(home: Home) -> int:
    supervisor = Supervisor(context(home, None), lambda: None)
    await supervisor.recover()
    count = sum(run.lives for run in supervisor.held())
    await supervisor.end_all("its node was asked to end all engines")
    return count


async def _unreachable(settings: Settings) -> str | None:
    try:
        connection = await WebsocketLink(settings, lambda _: None).dial()
    except LinkLost as e:
        return str(e)
    await connection.close()
    return None


def _settings(home: Home) -> Settings | None:
    match read(home.settings):
        case Settings() as settings:
            return settings
        case problems:
            for p in problems:
                print(f"llmgw-agent: {p.sentence}{f' ({p.command})' if p.command else ''}", file=sys.stderr)
            return None


def _log_to(home: Home, *, verbose: bool) -> None:
    """To stderr for whoever started us, and to a file for the question "log". A full disk costs lines, no more."""
    logging.raiseExceptions = False
    logger = logging.getLogger("llmgw")
    logger.setLevel(logging.DEBUG if verbose else logging.INFO)
    form = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handlers: list[logging.Handler] = [logging.StreamHandler(sys.stderr)]
    with contextlib.suppress(OSError):
        handlers.append(RotatingFileHandler(home.agent_log, maxBytes=2 * 1024 * 1024, backupCount=1, delay=True))
    for handler in handlers:
        handler.setFormatter(form)
        logger.addHandler(handler)


def _fail(sentence: str, exit_status: int = 1) -> int:
    print(f"llmgw-agent: {sentence}", file=sys.stderr)
    return exit_status
