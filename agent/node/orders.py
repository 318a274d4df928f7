"""What the control plane wants of this node, as it was told last: state, not commands. It is on disk, so that an agent
that starts while nobody answers brings back what was wanted."""

from __future__ import annotations

import asyncio
import logging

import msgspec

from agent.core.converge import Taken, accepts, take
from agent.node import kept
from agent.node.context import Context
from agent.node.home import write_atomically
from agent.node.kept import Kept
from agent.node.supervisor import Supervisor
from agent.wire.messages import Desired

_log = logging.getLogger("llmgw.agent")


class Orders:
    """`desired` is what holds now; None: nothing is known to be wanted."""

    def __init__(self, ctx: Context, supervisor: Supervisor) -> None:
        self._ctx, self._supervisor = ctx, supervisor
        self.desired: Desired | None = None
        self._taken = _read(ctx)
        self._heard = False
        """An order came from the control plane since this agent began: until then it goes by the one that was kept."""

    @property
    def generation(self) -> int | None:
        return self._taken[-1].generation if self._taken else None

    @property
    def store_id(self) -> str | None:
        return self._taken[-1].store_id if self._taken else None

    def take(self, desired: Desired, address: str) -> bool:
        """Whether it holds from now on; an older one does not. `address`: where this node's engines listen."""
        if not accepts(self._taken, desired):
            _log.warning("an older order is ignored: term %d, generation %d", desired.term, desired.generation)
            return False
        taken = take(self._taken, desired)
        if taken != self._taken:
            self._taken = taken
            try:
                kept.write(self._ctx.home, Kept(desired, address))
                write_atomically(self._ctx.home.taken, msgspec.json.encode(taken))
            except OSError as e:
                _log.warning("the order could not be noted: %s", e)
        self.desired, self._heard = desired, True
        return True

    def begin_with_kept(self) -> str | None:
        """What was wanted last is wanted until the control plane says otherwise; where its engines listened then."""
        found = kept.read(self._ctx.home, self._taken)
        if found is None:
            return None
        self.desired = found.order
        _log.info("until the control plane is reached its last order holds: %d shards", len(found.order.shards))
        return found.address

    def leave(self, why: str) -> None:
        """This node is out of the cluster: nothing is begun in its name any more; what the kept order alone has begun
        ends."""
        kept.drop(self._ctx.home)
        self.desired = None
        if not self._heard:
            self._supervisor.stop_begun(f"this node is no longer in the cluster: {why}")

    async def drop_unwanted(self) -> bool:
        """Weights that nobody wants go, once nothing runs here that is not wanted. True: some went."""
        order = self.desired
        if order is None or not order.synced or not order.unwanted:
            return False
        wanted = {spec.shard_id for spec in order.shards}
        if any(h.lives and h.shard_id not in wanted for h in self._supervisor.held()):
            return False
        used = {spec.source.url for spec in order.shards}
        gone = False
        for source in order.unwanted:
            if source in used:
                continue
            try:
                if await asyncio.to_thread(self._ctx.weights.drop, source):
                    _log.info("the weights of a model that was removed with its files are deleted")
                    gone = True
            except OSError as e:
                _log.warning("weights that nobody wants could not be deleted: %s", e)
        return gone


def _read(ctx: Context) -> tuple[Taken, ...]:
    try:
        return msgspec.json.decode(ctx.home.taken.read_bytes(), type=tuple[Taken, ...])
    except (OSError, msgspec.MsgspecError):
        return ()
