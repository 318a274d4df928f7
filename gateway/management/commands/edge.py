"""`llmgw edge`: in which form the inference path runs on this machine, and its compiled one."""

from __future__ import annotations

import sys
import time
from typing import Any

from django.conf import settings

from gateway.compiling import building, loading, walk
from llmgw.cluster.commands import NounCommand
from llmgw.cluster.errors import Invalid, Refusal


class Command(NounCommand):
    help = "The inference path on this machine: interpreted, or compiled to machine code, which takes half the CPU."
    examples = "  llmgw edge compile\n  llmgw edge show --json"

    def build(self) -> None:
        self.verb("compile", _compile, "compile it for this machine's edges; they take it up when they start", _made)
        self.verb("show", _show, "which form the edges of this machine take when they start", _shown)


def _compile() -> dict[str, Any]:
    where = settings.MACHINE.compiled_dir
    if where is None:
        said = "compiled forms are switched off here: take back `compiled: off` in config.yaml, or LLMGW_COMPILED=off"
        raise Invalid("compiled_off", said)
    began = time.monotonic()
    try:
        made = building.build(where, _say)
    except building.CannotCompile as e:
        raise Refusal("cannot_compile", str(e)) from None
    return {"folder": str(made), "modules": len(walk.MODULES), "took_s": round(time.monotonic() - began, 1)}


def _show() -> dict[str, Any]:
    form = loading.form(settings.MACHINE.compiled_dir)
    return {"compiled": form.compiled, "said": form.sentence, "modules": len(walk.MODULES)}


def _say(words: str) -> None:
    end = "\r" if sys.stderr.isatty() else "\n"
    print(f"{words:60}", end=end, file=sys.stderr, flush=True)


def _made(found: dict[str, Any]) -> None:
    print(f"{found['modules']} modules in {found['took_s']} s: edges of this machine take them when they start again")


def _shown(found: dict[str, Any]) -> None:
    print(found["said"])
