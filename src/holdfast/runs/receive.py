"""receive: messages of a topic, each consumed in the commit of a checkpoint of the run.

A turn of the loop handles one message. When the loop continues, or the run ends without an error,
one commit has the state, what the turn has published, and the decision that the message is
consumed. Saves within the turn have the state of before it. So whatever happens in between, the
message takes effect once: in this session, or in that of a consumer which takes it over.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Awaitable
from typing import Any, Self, TypeVar

from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import CommitConflict
from holdfast.coordination.group_message import GroupMessage, MessageReader, check_batch
from holdfast.coordination.message_stream import check_contract, check_start
from holdfast.errors import NotRecordedError, StoreError, UsageError
from holdfast.format.rows.run import RECEIVE
from holdfast.format.state import run_journal
from holdfast.model.event import Cursor
from holdfast.model.group_state import Holder
from holdfast.model.message import check_topic
from holdfast.operations import group as groups
from holdfast.operations import validate
from holdfast.operations.group import ClaimedMessage, PreparedClaim, TopicGroup
from holdfast.operations.group_memory import GroupMemory
from holdfast.operations.message_write import Consumption
from holdfast.operations.wait import NotedWait
from holdfast.runs import outcome, suspend
from holdfast.runs.call_sites import LoopFrame
from holdfast.runs.engine import RunEngine
from holdfast.runs.sleep import refuse_lost

LEASE_CHECK_SECONDS = 2.0  # an idle loop asks whether its run was cancelled once in so long
RELEASED, FAILED, REJECTED = "released", "failed", "rejected"


class ReceivedMessage(GroupMessage):
    """A message in a turn of `run.receive`. It is consumed when the loop continues, unless given back.

    `release`, `fail` and `reject` give it back: then the state of before the turn is restored.
    """

    def __init__(self, delivered: ClaimedMessage) -> None:
        super().__init__(delivered)
        self.outcome: str | None = None
        self.reason = ""
        self.is_over = False

    def release(self) -> None:
        """Leave the message to this or another consumer. No attempt is counted."""
        self._decide(RELEASED)

    def fail(self, reason: str) -> None:
        """Count a failed attempt: the message is delivered again after a pause, or dead after five."""
        self._decide(FAILED, str(reason))

    def reject(self, reason: str) -> None:
        """Make the message dead at once: it is not delivered again unless a person decides so."""
        self._decide(REJECTED, str(reason))

    def _decide(self, outcome: str, reason: str = "") -> None:
        if self.is_over:
            raise UsageError(
                f"the turn of message {self.message_id} is over: a loop has begun another one. Decide before the next "
                "message, also before that of a loop inside the turn"
            )
        self.outcome, self.reason = outcome, reason


class MessageLoop:
    """A loop over the messages of a topic, for a group."""

    def __init__(
        self,
        core: RunEngine,
        path: str,
        group: TopicGroup,
        reader: MessageReader,
        start: Cursor | None,
        *,
        batch: int,
        timeout: float | None,
    ) -> None:
        self._core = core
        self._group = group
        self._reader = reader
        self._start = start
        self._batch = batch
        self._timeout = timeout
        self._place = f"{path}{run_journal.part(f'receive {group.topic} {group.name}')}"
        self._has_begun = False
        self._has_waited = False
        self._checked = 0.0  # when the lease was known to live, by the monotonic clock
        self._memory = GroupMemory()
        self._claimed: deque[ClaimedMessage] = deque()
        self._settled: list[Consumption] = []
        self._current: tuple[ReceivedMessage, ClaimedMessage, str] | None = None
        self._consumption: Consumption | None = None  # of the last turn
        self._frame: LoopFrame | None = None
        core.turns.receivers.append(self)

    async def _get_next(self) -> ReceivedMessage | None:
        """Consume the message of the turn that is over, and begin the next; None once the time is over."""
        core, turns = self._core, self._core.turns
        with core.lock:
            owner = next((receiver for receiver in self._loops() if receiver._current is not None), None)
            if turns.is_between or (turns.turn is not None and owner is not self and turns.turn.is_elsewhere()):
                raise UsageError(
                    f"this run can't receive from topic {self._group.topic!r:.60}: another task or thread of it "
                    "receives, and a run has one message at a time. Give each loop a run with a session of its own"
                )
            turns.is_between = True
        try:
            return await self._begin_turn(owner)
        finally:
            turns.is_between = False

    async def _begin_turn(self, owner: MessageLoop | None) -> ReceivedMessage | None:
        core = self._core
        if owner is not None and core.turns.turn is not None:
            await owner._end_turn(continues=owner is self)
        elif core.turns.taken:  # the commit at the end of a turn failed, or was cancelled
            await core.save(f"{self._group.topic}: again")
        if not self._has_begun:
            await self._reader.begin(self._group, self._start)
            self._has_begun = True
        if self not in core.turns.receivers:
            core.turns.receivers.append(self)
        if not self._claimed:
            await self._replace_earlier()
            with suspend.note_wait(core, self._place):
                if not await self._wait():
                    return None
        delivered = self._claimed.popleft()
        received = ReceivedMessage(delivered)
        path = f"{self._place}//{run_journal.part(received.message_id)}/"
        if core.begin(path):
            core.try_again(path)
        stored = delivered.stored
        group, lease = self._group, core.lease
        self._consumption = Consumption(
            group.topic, group.name, stored.id, delivered.token, group.tree, lease.session_id, lease.token
        )
        self._frame = LoopFrame(core, path)
        core.turns.begin(core, self._consumption, self._frame)
        self._current = received, delivered, path
        return received

    def _loops(self) -> list[MessageLoop]:
        return [receiver for receiver in self._core.turns.receivers if isinstance(receiver, MessageLoop)]

    async def _replace_earlier(self) -> None:
        """Take the place of the run's earlier loops over this group, which were left without their end.

        Otherwise what they have claimed, and what waits for its key, would not come until the run ends.
        """
        core = self._core
        for earlier in self._loops():
            if earlier is not self and earlier._group == self._group:
                given_up = [(message.stored.id, message.token) for message in earlier._claimed]
                await groups.release(core.ctx, self._group, given_up)
                self._settled += earlier._settled
                earlier._claimed.clear()
                earlier._settled.clear()
                core.turns.receivers.remove(earlier)

    async def _end_turn(self, *, continues: bool) -> None:
        """Consume the message in one commit, or give it back; if the loop `continues`, claim the next with it."""
        if self._current is None:
            return
        core, (received, delivered, path) = self._core, self._current
        self._leave()
        received.is_over = True
        turn = core.turns.turn
        assert turn is not None
        if received.outcome is None:
            self._current = None
            core.turns.consume(core)
            settled = self._list_settled()
            self._settled.append(turn.consumption)
            began = time.monotonic()
            ahead = await self._prepare_claim(settled) if continues and not self._claimed else None
            claiming = None if ahead is None else core.ctx.backend.commit(ahead.commit)  # it goes with the next one
            try:
                await core.save(f"{self._group.topic}: {received.message_id}")
            finally:
                if ahead is not None and claiming is not None:
                    await self._finish_claim(ahead, claiming, settled)
            if core.turns.has_saved(turn.consumption):
                self._checked = began  # that commit was made under the lease
            return
        await self._give_back(received, delivered, path)

    async def _give_back(self, received: ReceivedMessage, delivered: ClaimedMessage, path: str) -> None:
        core, ctx, id_ = self._core, self._core.ctx, delivered.stored.id
        self._current = None
        core.turns.abandon(core)
        core.try_again(path)
        if received.outcome == RELEASED:
            await groups.release(ctx, self._group, [(id_, delivered.token)], memory=self._memory)
        else:
            is_final = received.outcome == REJECTED
            await groups.fail(
                ctx, self._group, id_, delivered.token, received.reason, is_final=is_final, memory=self._memory
            )

    async def _wait(self) -> bool:
        """Claim messages, and wait for them; return False once the time is over."""
        core, ctx = self._core, self._core.ctx
        wait = None if self._has_waited else await self._begin_wait()  # the first may go on with that of another life
        is_poll = False  # nothing was committed since the last look
        while True:
            seen = ctx.backend.committed  # before reading: any later commit ends the wait
            is_last = wait is not None and wait.is_over
            is_quiet = is_poll and not is_last and await self._memory.is_quiet(ctx, self._group.topic)
            await self._check_lease()
            if not is_quiet:
                await self._claim()
            if self._claimed or is_last:
                if wait is not None:
                    await wait.end()
                return bool(self._claimed)
            if wait is None:
                wait = await self._begin_wait()
                continue
            await suspend.pause(core, self._place, wait, seen, (self._group.topic,), group=self._group.name)
            is_poll = ctx.backend.committed == seen

    async def _begin_wait(self) -> NotedWait:
        core = self._core
        self._has_waited = True
        return await NotedWait.begin(core.ctx, core.tree, core.lease.session_id, self._place, RECEIVE, self._timeout)

    async def _check_lease(self) -> None:
        """Raise if the run was cancelled or has lost its lease; ask the store once in a while."""
        if time.monotonic() > self._checked + LEASE_CHECK_SECONDS:
            await refuse_lost(self._core)
            self._checked = time.monotonic()

    def _list_settled(self) -> list[Consumption]:
        return [consumption for consumption in self._settled if self._core.turns.has_saved(consumption)]

    async def _prepare_claim(self, settled: list[Consumption]) -> PreparedClaim | None:
        """Return the claim of the next message, if it takes no look at the store."""
        return await groups.prepare_claim(
            self._core.ctx,
            self._group,
            self._holder,
            self._reader.read,
            self._memory,
            settled=[(consumption.id, consumption.token) for consumption in settled],
            is_own=lambda holder: self._is_ours(holder) and not self._is_forgotten(holder),
        )

    async def _finish_claim(self, ahead: PreparedClaim, claiming: Awaitable[None], settled: list[Consumption]) -> None:
        """Note what was claimed together with the end of a turn; if it was not, the next turn claims as usual."""
        try:
            await claiming
        except CommitConflict:
            self._memory.note_overtaken()
        except StoreError:  # the next claim finds whether it was carried out
            return
        else:
            self._memory.keep_row(ahead.state, ahead.version, self._core.ctx.now_us())
            self._claimed.append(ahead.message)
            self._note_settled(settled)

    def _note_settled(self, settled: list[Consumption]) -> None:
        """Note messages that the group has acknowledged: the decisions about them may go."""
        core = self._core
        core.turns.settled_rows += [consumption.key(core.tree) for consumption in settled]
        self._settled = [consumption for consumption in self._settled if consumption not in settled]

    async def _claim(self) -> None:
        """Claim messages, and acknowledge those that a checkpoint has consumed."""
        core = self._core
        settled = self._list_settled()
        self._claimed += await groups.claim(
            core.ctx,
            self._group,
            self._holder,
            self._reader.read,
            count=self._batch,
            settled=[(consumption.id, consumption.token) for consumption in settled],
            contract=self._reader.label,
            memory=self._memory,
            forgotten=self._is_forgotten,
        )
        self._note_settled(settled)

    def _is_ours(self, holder: Holder) -> bool:
        lease = self._core.lease
        return (holder.session, holder.fence) == (lease.session_id, lease.token)

    def _is_forgotten(self, holder: Holder) -> bool:
        """Return whether the run has this claim, and a cancellation or a lost reply hid its outcome."""
        if not self._is_ours(holder):
            return False
        known = {consumption.token for consumption in (*self._settled, *self._core.turns.taken)}
        return holder.token not in known

    def _holder(self, token: int) -> Holder:
        core = self._core
        return Holder(token, core.tree, core.lease.session_id, core.lease.token, 0, core.ctx.this_process())

    async def close(self, error: BaseException | None) -> None:
        """Give back what is claimed; count a failed attempt of the message that raised the error."""
        core, current = self._core, self._current
        self._leave()
        if current is not None and core.turns.turn is not None:
            received, delivered, path = current
            if received.outcome is None:
                received.outcome = FAILED if isinstance(error, Exception) else RELEASED
                shown = "" if error is None else f"{outcome.error_name(error)}: {error}"
                received.reason = core.ctx.codec.redact_text(shown, "exception")[:500]
            await self._give_back(received, delivered, path)
        elif current is not None and self._consumption is not None:
            self._settled.append(self._consumption)  # the run has consumed it with its last checkpoint
        self._current = None
        claimed = [(message.stored.id, message.token) for message in self._claimed]
        self._claimed.clear()
        settled = [(consumption.id, consumption.token) for consumption in self._list_settled()]
        await groups.release(core.ctx, self._group, claimed, settled)

    def _leave(self) -> None:
        frame, self._frame = self._frame, None
        if frame is not None:
            frame.end()


L = TypeVar("L", bound=MessageLoop)


def open_loop(
    core: RunEngine,
    path: str,
    kind: type[L],
    topic: Any,
    group: Any,
    contract: Any,
    from_: Any,
    batch: Any,
    timeout: Any,
) -> L:
    """Return a loop with checked arguments."""
    if not core.consumes:
        raise NotRecordedError("a replay consumes no messages. Replay the function that handles one, or use `fork`")
    return kind(
        core,
        path,
        TopicGroup(check_topic(topic), check_topic(group, "group")),
        MessageReader(core.ctx, check_contract(contract)),
        check_start(from_),
        batch=check_batch(batch),
        timeout=None if timeout is None else validate.seconds("timeout", timeout, least=0),
    )


class AsyncMessageLoop(MessageLoop):
    """`async for message in run.receive("drafts", "reviewers"):`."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ReceivedMessage:
        received = await self._get_next()
        if received is None:
            raise StopAsyncIteration
        return received


class SyncMessageLoop(MessageLoop):
    """`for message in run.receive("drafts", "reviewers"):`."""

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ReceivedMessage:
        received = run_inline(self._get_next())
        if received is None:
            raise StopIteration
        return received
