"""Which sentences the source can make: reasons, findings and refusals, as templates. For developers; no process
imports it.

A sentence is found where it is said (`source`): as the second argument of a `Reason` or a `Refusal`, or as what a field
or a parameter called `reason` is given. From there its text is followed back through names, parameters, calls, branches
and the errors that were caught, as far as the source shows it (`walk`). An f-string becomes a template whose gaps are
named by what fills them, with its format where it has one: `{node} has {free:.1f} GiB free` (`template`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from llmgw.portal.sentences.source import Source
from llmgw.portal.sentences.walk import Walk

NOT_SHOWN = re.compile(
    r"(^|/)(migrations|management)/|^llmgw/(up/|rehearsal/(?!change|overlay)|machine\.py)"
    r"|^agent/(launchers/|rehearsal/|node/(agent|commands|joining)\.py)"
    r"|^gateway/(compiling/|conform/|edge/(?!key_files)|core/(ledger/|admission/|answers|principal|request|sieve|tags))"
)
"""Whose sentences no page shows: they go to a terminal, or to the programs that call the gateway."""


def templates(root: Path, packages: Iterable[str]) -> Iterator[tuple[Path, str]]:
    """Every sentence that these packages can make and a page may show, with the module that says it."""
    source = Source.read(path for package in packages for path in sorted((root / package).rglob("*.py")))
    walk = Walk(source)
    for path, expression in source.said():
        if not NOT_SHOWN.search(path.relative_to(root).as_posix()):
            walk.keep_all(path, expression)
    yield from sorted(walk.found)
