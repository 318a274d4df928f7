"""`python -m bench`: measure the gateway against a direct connection and nginx, in one interleaved run.

Exits 0 when every request was answered as it must be (but for other gateways': that is only told), 1 when one was not,
2 when nothing could be measured.
"""

from __future__ import annotations

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench import contenders, figures, plot, processes, profile, report, rounds, targets
from bench.peers import PEERS
from bench.programs import HERE, CannotBuild
from bench.rounds import Plan
from bench.workloads import WORKLOADS

OUT = HERE / "out"
EXAMPLES = """examples:
  python -m bench --quick                          a minute, for a first look
  python -m bench                                  five rounds, for figures to write down
  python -m bench --only requests,burst --rounds 9
  python -m bench --contenders direct,nginx,litellm,sglang,sglang-cache,edge,compiled   beside other gateways
  python -m bench --tries 4                        on a machine with other work: measures again what that disturbed
  python -m bench --profile requests               where the edge spends its time"""


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options().parse_args(arguments)
    which = processes.cores()
    if which is None:
        return _refuse("measuring needs two cores, one for the proxy and one for the load; this process may use one")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: nobody we started is left behind
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as scratch:
        try:
            if options.profile:
                print(profile.profiled(options.profile, which, Path(scratch), OUT))
                return 0
            plan = _plan(options)
            run = rounds.run(plan, which, Path(scratch), _say)
        except (CannotBuild, contenders.CannotStart, RuntimeError) as e:
            return _refuse(str(e))
    found = figures.figures(run.cells)
    verdicts = targets.verdicts(found, quiet=report.busy(run.cells) <= rounds.QUIET)
    faults = figures.errors(run.all) + report.books(run)
    document = msgspec.json.encode(report.as_json(found, run.cells, verdicts, faults))
    head = f"{report.machine()}; {report.noise(run.cells)}"
    text = "\n\n".join([head, report.table(found), report.targets(verdicts)])
    _write(document, text, plot.svg(found))
    print(document.decode() if options.json else text, flush=True)
    for fault in faults:
        _say(fault)
    return 1 if any(fault.split(",")[0] not in PEERS for fault in faults) else 0


def _options() -> argparse.ArgumentParser:
    names = [w.name for w in WORKLOADS]
    parser = argparse.ArgumentParser(
        prog="python -m bench",
        description="Measure the gateway beside a direct connection (and nginx, where it is on the PATH).",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--quick", action="store_true", help="two rounds of short cells")
    parser.add_argument("--rounds", type=int, help="how often everybody is visited (5; quick 2)")
    parser.add_argument("--tries", type=int, default=1, help="of a cell, until others leave the cores alone (1)")
    parser.add_argument("--only", type=_list_of(names), help=f"workloads, of {', '.join(names)}")
    parser.add_argument("--contenders", type=_list_of(rounds.NAMES), help=f"of {', '.join(rounds.NAMES)}")
    parser.add_argument("--json", action="store_true", help="print everything as JSON instead of the table")
    parser.add_argument("--profile", choices=names, help="run one workload on an edge under cProfile instead")
    return parser


def _list_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        unknown = [n for n in names if n not in known]
        if unknown:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: known are {', '.join(known)}")
        return names

    return parse


def _plan(options: argparse.Namespace) -> Plan:
    there = tuple(n for n in rounds.NAMES if n != "nginx" or contenders.nginx_binary())
    asked = options.contenders or tuple(n for n in there if n not in PEERS and n != "compiled")
    if "nginx" in asked and "nginx" not in there:
        raise contenders.CannotStart("nginx was asked for and is not on the PATH")
    if "nginx" not in there:
        _say("nginx is not on the PATH: the targets that are ratios to it have no verdict")
    return Plan(
        contenders=tuple(n for n in rounds.NAMES if n in asked),
        workloads=tuple(w for w in WORKLOADS if not options.only or w.name in options.only),
        rounds=options.rounds or (2 if options.quick else 5),
        quick=options.quick,
        tries=options.tries,
    )


def _write(document: bytes, text: str, picture: str) -> None:
    OUT.mkdir(exist_ok=True)
    stem = OUT / time.strftime("%Y%m%d-%H%M%S")
    stem.with_suffix(".json").write_bytes(document)
    stem.with_suffix(".md").write_text(text + "\n")
    stem.with_suffix(".svg").write_text(picture)


def _say(sentence: str) -> None:
    print(f"bench: {sentence}", file=sys.stderr, flush=True)


def _refuse(sentence: str) -> int:
    _say(sentence)
    return 2


if __name__ == "__main__":
    sys.exit(main())
