"""group: the protocol by which the consumers of a group share the messages of a topic.

1. *Claim*: the group's row is replaced by compare-and-set. A claim gives messages a new token.
2. *Consume*: the commit of the consumer's checkpoint also writes the decision `DONE` for the token,
   in the consumer's own tree, where there must be none.
3. *Acknowledge*: with the next claim, the message leaves the group's row.
4. *Take over*: of a consumer that has lost its lease, or whose time is over. First `REVOKED` is
   written for its token, in its tree, where there must be none. If `DONE` is there, the message is
   acknowledged. Otherwise it is open again, and the old consumer's commit is refused.

The group's row is a guess; the decision counts. Consumers without a session have no decisions:
their acknowledgement is that of the token in the row, so a message may be delivered again.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.backends.port import ABSENT, Commit, CommitConflict, RowKey, RowWrite
from holdfast.errors import CheckpointNotFoundError, CorruptError, NewerVersionError, StoreBusyError
from holdfast.format.rows import head
from holdfast.format.rows import topic as rows
from holdfast.format.rows.topic import DeadRow
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.event import Cursor
from holdfast.model.group_state import DeadEntry, GroupEntry, GroupState, Holder, failed_first
from holdfast.operations import events, lookup, read_topic
from holdfast.operations import lease as leasing
from holdfast.operations.context import StoreContext
from holdfast.operations.group_memory import GroupMemory
from holdfast.operations.message_write import check_header

SEEN_EVERY_US = 60 * 1_000_000  # a group without news is noted as seen once in so long
SHORTEST_PAUSE, LONGEST_PAUSE = 0.001, 0.1  # of an update that was overtaken, in seconds
PATIENCE, PAUSE_OF_OLDEST = 7, 0.004  # from so many conflicts on
Read = Callable[[StoredRecord], Awaitable[object]]


class TopicGroup(NamedTuple):
    """A group of a topic, by its names."""

    topic: str
    name: str

    @property
    def key(self) -> RowKey:
        return rows.group_key(self.topic, self.name)

    @property
    def tree(self) -> bytes:
        return rows.group_tree(self.topic, self.name)


class ClaimedMessage(NamedTuple):
    """A message that was claimed: its record, what the reader made of it, its token, failed attempts."""

    stored: StoredRecord
    value: object
    token: int
    attempts: int
    position: int


class PassedOverError(Exception):
    """A signal of a reader: another consumer may read the message. Users never see it."""


class UnreadableMessageError(Exception):
    """A signal of a reader: no consumer can read the message. Users never see it."""


class _Change(NamedTuple):
    state: GroupState
    rows: Sequence[RowWrite] = ()


class _ClaimReads(NamedTuple):
    """What a claim has read: records of the topic, values, and messages that it leaves to others."""

    read: Read
    memory: GroupMemory
    records: dict[bytes, StoredRecord]
    values: dict[bytes, tuple[StoredRecord, object]]
    passed_over: set[bytes]


async def begin(ctx: StoreContext, group: TopicGroup, start: Cursor | None) -> GroupState:
    """Return the state of a group; create it at a cursor (None: after the messages of now), if it is new."""
    found = await _load(ctx, group)
    if found is not None:
        return found[0]
    at = (await events.get_end_cursor(ctx) if start is None else await events.check_cursor(ctx, start)).position
    now = ctx.now_us()
    state = GroupState(at, seen_us=now, began_us=now)
    write = RowWrite(group.key, rows.pack_group(group.key, state), ABSENT)
    try:
        await ctx.backend.commit(Commit(tree=group.tree, rows=[write]))
    except CommitConflict:  # another consumer creates it at this moment
        found = await _load(ctx, group)
        assert found is not None
        return found[0]
    return state


async def claim(
    ctx: StoreContext,
    group: TopicGroup,
    holder: Callable[[int], Holder],
    read: Read,
    *,
    count: int = 1,
    settled: Collection[tuple[bytes, int]] = (),
    contract: str | None = None,
    memory: GroupMemory | None = None,
    forgotten: Callable[[Holder], bool] = lambda _: False,
) -> list[ClaimedMessage]:
    """Claim up to `count` messages, and acknowledge those that are settled; empty if there is none.

    `forgotten` says of a holder whether it is this consumer, by a claim whose outcome it never got:
    it was cancelled meanwhile, or the reply was lost. Such messages are open again.

    `read` makes the value of a message, before it is claimed. It raises `PassedOverError` for one
    that is left to others, and `UnreadableMessageError` for one that is dead.
    """
    reads = _ClaimReads(read, memory or GroupMemory(), {}, {}, set())
    claimed: list[ClaimedMessage] = []

    async def change(state: GroupState) -> _Change | None:
        nonlocal claimed
        before = state
        state, writes = await _take_over(ctx, group, state.settle(settled), forgotten)
        wanted: dict[bytes, GroupEntry] = {}
        while len(wanted) < count:
            state, dead = await _read_on(ctx, group, state, count, reads)
            writes += dead
            opened = [
                group_entry
                for group_entry in state.claimable(ctx.now_us(), reads.passed_over)
                if group_entry.id not in wanted
            ]
            if not opened:
                break
            for entry in opened[: count - len(wanted)]:
                state, dead = await _read_value(ctx, group, state, entry, reads)
                writes += dead
                if entry.id in reads.values:
                    wanted[entry.id] = entry
        claimed = []
        if wanted:
            state = state.claim(wanted.keys(), holder)
            claimed = [
                ClaimedMessage(*reads.values[group_entry.id], state.token, group_entry.attempts, group_entry.position)
                for group_entry in wanted.values()
            ]
        now = ctx.now_us()
        reads.memory.note_claim(state, now)
        if state == before and now < state.seen_us + SEEN_EVERY_US and not writes:
            return None
        return _Change(state._replace(seen_us=now, contract=contract or state.contract), writes)

    await _update(ctx, group, change, reads.memory)
    return claimed


class PreparedClaim(NamedTuple):
    """A claim that was made without the store: its commit, and what it comes to if that is not refused."""

    commit: Commit
    message: ClaimedMessage
    state: GroupState
    version: int


async def prepare_claim(
    ctx: StoreContext,
    group: TopicGroup,
    holder: Callable[[int], Holder],
    read: Read,
    memory: GroupMemory,
    *,
    settled: Collection[tuple[bytes, int]],
    is_own: Callable[[Holder], bool],
) -> PreparedClaim | None:
    """Return the claim of the next message, for a commit together with another one.

    None if that takes a look at the store: for more than one message of this consumer in flight and
    the next one of the topic, both remembered.
    """
    now = ctx.now_us()
    change = None if memory.cursor is None else memory.next_change(memory.cursor, now)
    row = None if change is None else memory.take_row(now)
    if change is None or row is None:
        return None
    state, version = row
    state = state.settle(settled)
    if state.has_imports or not all(entry.holder is not None and is_own(entry.holder) for entry in state.entries):
        return None
    try:
        stored = read_topic.unpack_message(ctx, change, group.topic)
        if stored.is_expired(now):
            return None
        value = await read(stored)
    except (PassedOverError, UnreadableMessageError, CorruptError, NewerVersionError, LookupError):
        return None
    entry = GroupEntry(change.position, stored.id, stored.header.get("key"), stored.header["at"])
    state = state.read([entry], change.position)
    if state.claimable(now) != [entry]:  # a message with the same key is in flight
        return None
    state = state.claim({entry.id}, holder)._replace(seen_us=now)
    write = RowWrite(group.key, rows.pack_group(group.key, state), version)
    message = ClaimedMessage(stored, value, state.token, 0, change.position)
    return PreparedClaim(Commit(tree=group.tree, rows=[write]), message, state, version + 1)


async def release(
    ctx: StoreContext,
    group: TopicGroup,
    given_up: Iterable[tuple[bytes, int]],
    settled: Collection[tuple[bytes, int]] = (),
    memory: GroupMemory | None = None,
) -> None:
    """Open messages again for others, with no attempt counted, and acknowledge those that are settled."""
    wanted = list(given_up)

    async def change(state: GroupState) -> _Change | None:
        before = state
        state = state.settle(settled)
        for id_, token in wanted:
            state = state.release(id_, token)
        return None if state == before else _Change(state)

    if wanted or settled:
        await _update(ctx, group, change, memory)


async def expect_imports(ctx: StoreContext, group: TopicGroup) -> None:
    """Note that imported messages may be settled already. Comes before their import."""
    await begin(ctx, group, Cursor(0))

    async def change(state: GroupState) -> _Change | None:
        return None if state.has_imports else _Change(state._replace(has_imports=True))

    await _update(ctx, group, change)


async def acknowledge(
    ctx: StoreContext, group: TopicGroup, id_: bytes, token: int, memory: GroupMemory | None = None
) -> bool:
    """Settle a message; False if its token is over, since another consumer has it or had it."""
    return await _settle(ctx, group, id_, token, lambda state: _Change(state.settle([(id_, token)])), memory)


async def fail(
    ctx: StoreContext,
    group: TopicGroup,
    id_: bytes,
    token: int,
    reason: str,
    *,
    is_final: bool = False,
    memory: GroupMemory | None = None,
) -> bool:
    """Count a failed attempt, after which the message is open again, or dead; False if its token is over."""

    def change(state: GroupState) -> _Change:
        after, dead = state.fail(id_, token, reason, ctx.now_us(), is_final=is_final)
        return _Change(after, _dead_writes(ctx, group, dead))

    return await _settle(ctx, group, id_, token, change, memory)


async def renew(
    ctx: StoreContext, group: TopicGroup, id_: bytes, token: int, until_us: int, memory: GroupMemory | None = None
) -> bool:
    """Extend the time of a consumer without a session; False if it was over."""
    return await _settle(ctx, group, id_, token, lambda state: _Change(state.renew(id_, token, until_us)), memory)


async def _settle(
    ctx: StoreContext,
    group: TopicGroup,
    id_: bytes,
    token: int,
    make: Callable[[GroupState], _Change],
    memory: GroupMemory | None = None,
) -> bool:
    is_held = False

    async def change(state: GroupState) -> _Change | None:
        nonlocal is_held
        is_held = state.in_flight(id_, token) is not None
        return make(state) if is_held else None

    await _update(ctx, group, change, memory)
    return is_held


async def redeliver(ctx: StoreContext, group: TopicGroup, id_: bytes) -> None:
    """Open a message for a group that was consumed or is dead, by a person's decision."""
    stored = check_header(await lookup.load_live_record(ctx, id_))
    position = await _position_of(ctx, group.topic, id_)

    async def change(state: GroupState) -> _Change | None:
        if position > state.cursor or any(group_entry.id == id_ for group_entry in state.entries):
            return None  # it is delivered anyway
        dead = rows.dead_key(group.topic, group.name, id_)
        [was_dead] = await ctx.backend.rows([dead])
        entry = GroupEntry(position, id_, stored.header.get("key"), stored.header["at"])
        state = state.reopen(entry)._replace(dead=state.dead - (was_dead is not None))
        return _Change(state, [] if was_dead is None else [RowWrite(dead, None, was_dead.version)])

    await _update(ctx, group, change)


async def discard(ctx: StoreContext, group: TopicGroup, id_: bytes) -> bool:
    """Forget a dead message; False if it is not dead."""
    dead = rows.dead_key(group.topic, group.name, id_)
    existed = False

    async def change(state: GroupState) -> _Change | None:
        nonlocal existed
        [row] = await ctx.backend.rows([dead])
        existed = row is not None
        return (
            None if row is None else _Change(state._replace(dead=state.dead - 1), [RowWrite(dead, None, row.version)])
        )

    await _update(ctx, group, change)
    return existed


async def dead_of(ctx: StoreContext, topic: str, group: str | None) -> list[tuple[str, bytes, DeadRow]]:
    """Return the dead messages of a topic: the group, the id, and the row of each."""
    prefix = rows.topic_prefix(topic) if group is None else rows.group_key(topic, group).key
    found = []
    for key, row in await ctx.backend.scan(rows.DEAD, prefix=prefix):
        name = rows.names_of(key._replace(key=key.key[:-16]))[1]
        if group in (None, name):
            found.append((name, key.key[-16:], rows.unpack_dead(key, row)))
    return found


async def _position_of(ctx: StoreContext, topic: str, id_: bytes) -> int:
    after = 0
    while True:
        page, after = await read_topic.changes_of(ctx, topic, after, read_topic.PAGE)
        for change in page:
            if change.record.id == id_:
                return change.position
        if len(page) < read_topic.PAGE:
            raise CheckpointNotFoundError(f"message {ids.to_text(id_)} is not one of topic {topic!r:.60}")


# -- steps of a claim ------------------------------------------------------------------------------------------------


async def _read_on(
    ctx: StoreContext, group: TopicGroup, state: GroupState, count: int, reads: _ClaimReads
) -> tuple[GroupState, list[RowWrite]]:
    """Return the state after it has read on to messages that can be claimed, with those found dead."""
    writes: list[RowWrite] = []
    while state.has_room and len(state.claimable(ctx.now_us(), reads.passed_over)) < count:
        page, cursor = await reads.memory.changes_of(ctx, group.topic, state.cursor, count)
        found: list[GroupEntry] = []
        for change in page:
            try:
                stored = read_topic.unpack_message(ctx, change, group.topic)
            except (CorruptError, NewerVersionError) as error:
                dead = DeadEntry(change.record.id, 0, (_format_error(error),))
                writes += _dead_writes(ctx, group, [dead])
                state = state._replace(dead=state.dead + 1)
                continue
            is_expired = await lookup.is_expired(ctx, stored)
            if not is_expired and not (state.has_imports and await _is_settled_elsewhere(ctx, group, stored)):
                reads.records[stored.id] = stored
                found.append(GroupEntry(change.position, stored.id, stored.header.get("key"), stored.header["at"]))
        state = state.read(found, cursor)
        if len(page) < count:
            break
    return state, writes


async def _is_settled_elsewhere(ctx: StoreContext, group: TopicGroup, stored: StoredRecord) -> bool:
    """Return whether the group had settled an imported message in the store that it comes from."""
    key = rows.consumed_key(group.topic, group.name, stored.id)
    [row] = await ctx.backend.rows([RowKey(rows.CONSUMED, key, stored.tree)])
    return row is not None


async def _read_value(
    ctx: StoreContext, group: TopicGroup, state: GroupState, entry: GroupEntry, reads: _ClaimReads
) -> tuple[GroupState, list[RowWrite]]:
    """Note the value of a message that can be claimed; return the state without one that is gone or dead."""
    if entry.id in reads.values:
        return state, []
    without = state._replace(entries=tuple(group_entry for group_entry in state.entries if group_entry.id != entry.id))
    try:
        stored = reads.records.get(entry.id) or check_header(await lookup.load_live_record(ctx, entry.id))
        reads.values[entry.id] = stored, await reads.read(stored)
    except PassedOverError:
        reads.passed_over.add(entry.id)
        return state, []
    except LookupError:  # it has expired meanwhile
        return without, []
    except (UnreadableMessageError, CorruptError, NewerVersionError) as error:
        dead = DeadEntry(entry.id, entry.attempts, (*entry.reasons, _format_error(error)))
        return without._replace(dead=state.dead + 1), _dead_writes(ctx, group, [dead])
    return state, []


async def _take_over(
    ctx: StoreContext, group: TopicGroup, state: GroupState, forgotten: Callable[[Holder], bool]
) -> tuple[GroupState, list[RowWrite]]:
    """Return the state after messages of consumers that are gone were taken over, and forgotten ones."""
    writes: list[RowWrite] = []
    for batch, is_forgotten in _batches_in_flight(state, forgotten):
        holder, _ = batch[0]
        if not is_forgotten and await _is_holding(ctx, holder):
            continue
        done = {entry.id for held, entry in batch if held.fence and not await _revoke(ctx, group, entry.id, held)}
        failed = None if is_forgotten else failed_first([entry for _, entry in batch], done)
        for held, entry in batch:
            if entry.id in done:
                state = state.settle([(entry.id, held.token)])
            elif entry is failed:
                reason = f"the consumer {held.session!r:.60} died or lost its lease"
                state, dead = state.fail(entry.id, held.token, reason, ctx.now_us())
                writes += _dead_writes(ctx, group, dead)
            else:
                state = state.release(entry.id, held.token)
    return state, writes


def _batches_in_flight(
    state: GroupState, forgotten: Callable[[Holder], bool]
) -> list[tuple[list[tuple[Holder, GroupEntry]], bool]]:
    """Return the messages in flight by their consumers, and whether the claim is a forgotten one.

    A session has one message at work, and may have claimed the next with the commit before.
    """
    batches: dict[tuple[Holder, bool], list[tuple[Holder, GroupEntry]]] = {}
    for entry in state.entries:
        if (holder := entry.holder) is not None:
            is_forgotten = forgotten(holder)
            owner = holder if is_forgotten or not holder.fence else holder._replace(token=0)
            batches.setdefault((owner, is_forgotten), []).append((holder, entry))
    return [(batch, is_forgotten) for (_, is_forgotten), batch in batches.items()]


async def _is_holding(ctx: StoreContext, holder: Holder) -> bool:
    """Return whether a consumer still has its messages: its lease lives, or its time is not over."""
    if not holder.fence:
        return ctx.now_us() < holder.until_us and not ctx.has_ended(holder.process)
    found = await lookup.find_head(ctx, head.session_key(holder.session), holder.tree)
    return (
        found is not None
        and found[0].fence == holder.fence
        and found[0].lease is not None
        and leasing.is_alive(ctx, found[0].lease)
    )


async def _revoke(ctx: StoreContext, group: TopicGroup, id_: bytes, holder: Holder) -> bool:
    """Decide that a consumer does not consume a message any more; False if it has."""
    key = rows.decision_key(group.tree, id_, holder.token, holder.tree)
    try:
        revoked = rows.DeliveryDecision(rows.REVOKED, holder.session, holder.fence).write(key)
        await ctx.backend.commit(Commit(tree=holder.tree, rows=[revoked]))
    except CommitConflict:
        [row] = await ctx.backend.rows([key])
        return row is None or not rows.unpack_decision(key, row).is_done
    return True


def _dead_writes(ctx: StoreContext, group: TopicGroup, dead: Iterable[DeadEntry]) -> list[RowWrite]:
    writes = []
    for dead_entry in dead:
        key = rows.dead_key(group.topic, group.name, dead_entry.id)
        writes.append(RowWrite(key, DeadRow(dead_entry.attempts, ctx.now_us(), dead_entry.reasons).pack(key)))
    return writes


def _format_error(error: BaseException) -> str:
    shown = error.__cause__ or error if isinstance(error, UnreadableMessageError) else error
    return f"{type(shown).__name__}: {shown}"[:500]


# -- compare and set -------------------------------------------------------------------------------------------------


async def has_open(ctx: StoreContext, group: TopicGroup) -> bool:
    """Return whether a claim would get a message, unless another consumer is first; it writes nothing."""
    found = await _load(ctx, group)
    if found is None:
        return True
    state, _ = found
    if state.claimable(ctx.now_us()):
        return True
    if state.has_room and (await read_topic.changes_of(ctx, group.topic, state.cursor, 1))[0]:
        return True
    holders = {entry.holder for entry in state.entries if entry.holder is not None}
    return not all([await _is_holding(ctx, holder) for holder in holders])


async def _load(ctx: StoreContext, group: TopicGroup) -> tuple[GroupState, int] | None:
    key = group.key
    [row] = await ctx.backend.rows([key])
    return None if row is None else (rows.unpack_group(key, row), row.version)


async def _update(
    ctx: StoreContext,
    group: TopicGroup,
    change: Callable[[GroupState], Awaitable[_Change | None]],
    memory: GroupMemory | None = None,
) -> None:
    """Replace the group's row by what `change` makes of it, until no other consumer was first.

    The first attempt is made on the row in `memory`, if there is one. Consumers of one process take
    turns. Between processes, the one that has lost pauses for a random time, which grows. One that
    has often lost hardly pauses: so the oldest comes first.
    """
    key = group.key
    timeout = ctx.backend.capabilities.timeout
    waited, conflicts = 0.0, 0
    async with ctx.backend.fair_lock(b"\xfdgroup" + key.key, timeout):
        remembered = None if memory is None else memory.take_row(ctx.now_us())
        unchanged: int | None = None  # the version of the remembered row, if nothing is to be changed in it
        while waited < timeout:
            is_remembered, found = remembered is not None, remembered or await _load(ctx, group)
            remembered = None
            if found is None:
                raise CheckpointNotFoundError(
                    f"topic {group.topic!r:.60} has no group {group.name!r:.60}. `topics` lists those that are there"
                )
            state, version = found
            if version == unchanged:
                return
            made = await change(state)
            if made is None and is_remembered:
                unchanged = version
                continue  # the row in the store may be another one
            if made is None:
                return
            write = RowWrite(key, rows.pack_group(key, made.state), version)
            try:
                await ctx.backend.commit(Commit(tree=group.tree, rows=[write, *made.rows]))
            except CommitConflict:
                if memory is not None and is_remembered:
                    memory.note_overtaken()
                    continue
                seconds = random.random() * _longest_pause(conflicts)  # noqa: S311 - so that consumers don't meet again
                waited += seconds
                conflicts += 1
                await ctx.backend.sleep(seconds)
                continue
            if memory is not None:
                memory.keep_row(made.state, version + 1, ctx.now_us())
            return
    raise StoreBusyError(
        f"group {group.name!r:.60} of topic {group.topic!r:.60} is used by so many consumers that this one was "
        f"overtaken for {timeout:g} s. Try again"
    )


def _longest_pause(conflicts: int) -> float:
    """Return the most seconds that an update pauses after it was overtaken, that often before."""
    return float(min(SHORTEST_PAUSE * 2**conflicts, LONGEST_PAUSE)) if conflicts < PATIENCE else PAUSE_OF_OLDEST
