"""Turns of a run's loops over messages: what the end of each consumes and publishes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from holdfast.backends.port import RowKey, RowWrite
from holdfast.codec.codec import Codec
from holdfast.format.rows.ledger import LedgerEntry
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.run_journal import JournalRecord
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import Consumption, MessageWrite
from holdfast.runs import suspend
from holdfast.runs.call_sites import LoopFrame

if TYPE_CHECKING:
    from holdfast.runs.engine import RunEngine


class PublishedInTurn(NamedTuple):
    """A message for the commit that ends the turn, with its entries in ledger and journal."""

    entry: LedgerEntry
    following: LedgerEntry | None
    message: MessageWrite
    record: JournalRecord


@dataclass(slots=True)
class MessageTurn:
    """A message that is being handled: the state of before, and what has been published meanwhile."""

    consumption: Consumption
    packed: bytes  # state and context
    frame: LoopFrame
    owner: threading.Thread | asyncio.Task[Any]  # that handles it
    published: list[PublishedInTurn] = field(default_factory=list)

    def is_elsewhere(self) -> bool:
        """Return whether another task or thread handles the message, in which this one was not begun."""
        if self.owner is suspend.get_current() or self.frame.is_around():
            return False
        return self.owner.is_alive() if isinstance(self.owner, threading.Thread) else not self.owner.done()

    def content(self, codec: Codec) -> tuple[Any, dict[str, Any]]:
        """Return the state and context of before the turn."""
        state, context = codec.decode(self.packed)
        return state, context


class Receiver(Protocol):
    """A loop over messages, which gives back what it has claimed when its run ends."""

    async def close(self, error: BaseException | None) -> None: ...


class MessageTurns:
    """The open turn of a run, and the messages that its next save consumes."""

    def __init__(self) -> None:
        self.turn: MessageTurn | None = None
        self.is_between = False  # a loop ends a turn, waits, and begins the next
        self.receivers: list[Receiver] = []
        self.settled_rows: list[RowKey] = []  # decisions about messages that their groups have acknowledged
        self.taken: list[Consumption] = []  # consumed, and not saved yet

    def begin(self, core: RunEngine, consumption: Consumption, frame: LoopFrame) -> None:
        """Begin to handle a message: until its end, saves have the state of before."""
        packed = core.ctx.codec.encode([core.state, core.context], "state")
        self.turn = MessageTurn(consumption, packed, frame, suspend.get_current())

    def consume(self, core: RunEngine) -> None:
        """End the turn: the next save consumes its message, and publishes what the turn has published."""
        turn, self.turn = self.turn, None
        if turn is not None:
            for item in turn.published:
                core.finish(item.entry, item.following, item.message)
                core.record(item.record)
            with core.lock:
                self.taken.append(turn.consumption)

    def abandon(self, core: RunEngine) -> None:
        """End the turn without its message: the state is that of before, and nothing is published."""
        turn, self.turn = self.turn, None
        if turn is not None:
            core.state, core.context = turn.content(core.ctx.codec)
            for item in turn.published:
                core.sites.give_back(item.record.place)

    def has_saved(self, consumption: Consumption) -> bool:
        """Return whether a checkpoint has consumed the message."""
        return consumption not in self.taken

    def mark_saved(self, taken: list[Consumption], settled_rows: list[RowKey]) -> None:
        self.taken = [consumption for consumption in self.taken if consumption not in taken]
        self.settled_rows = [row for row in self.settled_rows if row not in settled_rows]

    async def settle_taken(self, ctx: StoreContext, tree: bytes) -> None:
        """Drop the messages that a save of unknown outcome has consumed after all."""
        if not self.taken:
            return
        from holdfast.format.rows import topic  # few runs need it

        keys = [consumption.key(tree) for consumption in self.taken]
        for consumption, key, row in zip(list(self.taken), keys, await ctx.backend.rows(keys), strict=True):
            if row is not None and topic.unpack_decision(key, row).is_done:
                self.taken.remove(consumption)

    async def close(self, error: BaseException | None) -> None:
        """Give back what the run's loops have claimed."""
        for receiver in self.receivers:
            await receiver.close(error)


def collect_turn_rows(
    finished: Sequence[tuple[LedgerEntry, LedgerEntry | None]], settled: Sequence[RowKey]
) -> Callable[[StoredRecord], list[RowWrite]]:
    """Return what a save writes of finished effects, given the checkpoint that has their results.

    It also removes decisions about messages that are settled.
    """

    def writes(stored: StoredRecord) -> list[RowWrite]:
        done = [replace(entry, checkpoint=stored.id).write(following) for entry, following in finished]
        return [*done, *(RowWrite(key, None) for key in settled)]

    return writes
