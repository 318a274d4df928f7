"""Answers the control plane's questions: bounded, idempotent, without side effects."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

import msgspec

from agent.core.doctor import findings
from agent.node import examination, logs, model_files
from agent.node.context import Context
from agent.node.edits import Edits
from agent.node.engine_check import check
from agent.node.settings import Settings, read
from agent.node.supervisor import Supervisor
from agent.wire.facts import NodeFacts
from agent.wire.messages import Answer, Question

_log = logging.getLogger("llmgw.agent")

_MOST_LINES = 1000
_MOST_BYTES = 256 * 1024


class Unanswerable(Exception):
    """The question makes no sense here; the sentence says why."""


class Questions:
    def __init__(
        self,
        ctx: Context,
        supervisor: Supervisor,
        facts: Callable[[], NodeFacts],
        noted: Callable[[], examination.Noted],
        edits: Edits | None = None,
    ) -> None:
        self._ctx = ctx
        self._supervisor = supervisor
        self._facts = facts
        self._noted = noted
        self._edits = edits

    async def answer(self, question: Question) -> Answer:
        kinds: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "log": self._log_tail,
            "doctor": self._doctor,
            "weights": self._weights,
            "model": self._model,
            "engine_check": self._engine_check,
        }
        kind = kinds.get(question.kind)
        if kind is None:
            return Answer(
                question.id, ok=False, problem=f"this agent does not know the question {question.kind[:40]!r}"
            )
        try:
            return Answer(question.id, ok=True, body=await asyncio.to_thread(kind, question.args))
        except Unanswerable as e:
            return Answer(question.id, ok=False, problem=str(e))
        except Exception as e:  # one question must not cost the link
            _log.exception("the question %r could not be answered", question.kind)
            return Answer(question.id, ok=False, problem=f"{type(e).__name__}: {e}")

    def _log_tail(self, args: dict[str, Any]) -> dict[str, Any]:
        shard_id, lines = args.get("shard_id", "agent"), args.get("lines", 100)
        if not isinstance(lines, int) or isinstance(lines, bool) or lines < 1:
            raise Unanswerable("lines must be a number of at least 1")
        if shard_id == "agent":
            path, secrets = self._ctx.home.agent_log, ("",)
        else:
            found = self._supervisor.log_of(str(shard_id))
            if found is None:
                raise Unanswerable(f"this node has no shard {str(shard_id)[:80]!r}")
            path, secrets = found[0], (found[1],)
        return {"lines": _fitting(logs.tail(path, min(lines, _MOST_LINES), secrets))}

    def _doctor(self, args: dict[str, Any]) -> dict[str, Any]:
        seen = examination.look(
            self._ctx.home,
            self._settings(),
            self._facts(),
            noted=self._noted(),
            settings_problem=self._edits.problem if self._edits is not None else None,
        )
        return {"findings": msgspec.to_builtins(findings(seen))}

    def _settings(self) -> Settings:
        if self._edits is not None:
            return self._edits.running
        match read(self._ctx.home.settings, self._ctx.environ):
            case Settings() as settings:
                return settings
            case problems:
                raise Unanswerable("; ".join(p.sentence for p in problems))

    def _weights(self, args: dict[str, Any]) -> dict[str, Any]:
        return {"folder": str(self._ctx.weights.folder), "files": self._ctx.weights.listed()[:1000]}

    def _model(self, args: dict[str, Any]) -> dict[str, Any]:
        """What the files of the weights that `source` names say of the model, where they lie whole on this node."""
        found = self._ctx.weights.there(str(args.get("source", "")))
        facts = model_files.facts(found) if found is not None else None
        return {"facts": msgspec.to_builtins(facts) if facts is not None else None}

    def _engine_check(self, args: dict[str, Any]) -> dict[str, Any]:
        """Of an engine that this node uses; which program that is is not for whoever asks to say."""
        engine = str(args.get("engine", ""))
        path = self._ctx.engine_path(engine)
        if path is None:
            raise Unanswerable(f"{engine[:40]!r} is not installed on this node")
        found: dict[str, Any] = msgspec.to_builtins(check(engine, path))
        return found


def _fitting(lines: tuple[str, ...]) -> list[str]:
    """The last of them that fit into an answer."""
    kept: list[str] = []
    room = _MOST_BYTES
    for line in reversed(lines):
        room -= len(line.encode()) + 1
        if room < 0:
            break
        kept.append(line)
    return kept[::-1]
