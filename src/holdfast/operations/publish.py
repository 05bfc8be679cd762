"""publish: messages as records, in the commit of a checkpoint or in a lane of their topic.

A message of a session is a leaf: a child of the checkpoint in whose commit it is written. The head
does not move to it. A message without a session is a checkpoint in a lane, a session of the topic
that belongs to one process and one day: so publishers don't wait for each other, and a lane is
collected whole.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple

from holdfast.backends.port import Commit, CommitConflict, RowWrite
from holdfast.errors import (
    ConflictError,
    LeaseHeldError,
    RunCancelledError,
    TopicFullError,
    UnsupportedValueError,
    UsageError,
)
from holdfast.format.rows import topic as rows
from holdfast.format.state import write_plan
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.split import ROOTS, Split, encode_whole
from holdfast.format.state.write_plan import WritePlan
from holdfast.model.lease import Process
from holdfast.model.message import DAY, MAX_BYTES, Message
from holdfast.operations import due, read_topic
from holdfast.operations import save as saving
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import MessageWrite
from holdfast.operations.validate import SaveRequest

CHECK_SECONDS = 1.0  # between two looks at how many messages wait
MAX_LANES = 100
SHORTEST_PAUSE, LONGEST_PAUSE = 0.05, 1.0  # while a topic is full
_DAY_US = round(DAY * 1e6)


class PlainMessage(NamedTuple):
    """A checked message: its value as plain data, and its contract's label."""

    message: Message
    plain: Any
    label: str | None


async def prepare(ctx: StoreContext, given: PlainMessage, *, id_: bytes | None = None) -> MessageWrite:
    """Return a message that is encoded, ready for a commit, once its topic is registered and has room."""
    fields = message_fields(given)
    with _naming_value():
        plan = await _plan(ctx, given.message.topic, given.plain)
    await register(ctx, given.message.topic)
    await await_room(ctx, given.message)
    return MessageWrite(fields, plan, id_, ctx.topics[given.message.topic].hints)


def message_fields(given: PlainMessage) -> dict[str, Any]:
    """Return the header fields that make a checkpoint a message."""
    message = given.message
    fields: dict[str, Any] = {"topic": message.topic, "ttl": message.max_ttl, "keep": message.ttl}
    if message.key is not None:
        fields["key"] = message.key
    if given.label is not None:
        fields["toschema"] = given.label
    return fields


async def _plan(ctx: StoreContext, topic: str, value: Any) -> WritePlan:
    """Return the writes of a message's value, which shares nothing with other states."""
    skeleton = encode_whole(ctx.codec, value, {})
    small = None if skeleton is None else write_plan.build_small(skeleton, None)
    if small is not None:
        return WritePlan(small, (), {})
    nothing_known = lambda _: None  # noqa: E731 - the value of a message follows no other
    split = Split(ctx.codec, nothing_known) if skeleton is None else Split(ctx.codec, nothing_known, skeleton)
    if skeleton is None:
        split.take(value, {})
    needed = write_plan.logs_needed(split, None, ())
    numbers = await ctx.logs.take(ctx.backend, needed) if needed else []
    plan = write_plan.Planner({}, numbers.pop).plan(split, None)
    ctx.logs.give_back(numbers)
    manifest = plan.manifest
    refuse_large(topic, sum(list_.size for list_ in manifest.lists) + sum(blob.size for blob in manifest.blobs))
    return plan


def refuse_large(topic: str, size: int) -> None:
    if size > MAX_BYTES:
        raise UsageError(
            f"a message to {topic!r:.60} has {size:,} bytes: at most {MAX_BYTES:,} are allowed. Save the value as a "
            "checkpoint, and publish its id"
        )


async def publish(ctx: StoreContext, given: PlainMessage, agent_id: str, message_id: bytes | None) -> StoredRecord:
    """Publish a message without a session; the same id and content again is a no-op."""
    message = given.message
    with _naming_value():
        encoded = encode_whole(ctx.codec, given.plain, {})
        if encoded is None:
            refuse_large(message.topic, len(ctx.codec.encode(given.plain, "value")))
    await register(ctx, message.topic)
    await await_room(ctx, message)
    backlog = ctx.topics[message.topic]
    for _ in range(MAX_LANES):
        lane = _lane(ctx, message.topic, backlog.lane)
        request = _request(given, lane, agent_id, message_id, backlog.hints)
        request.encoded = encoded
        try:
            return await saving.save(ctx, request)
        except (LeaseHeldError, RunCancelledError):  # a message was handed off or cancelled as a session
            backlog.lane += 1
    raise ConflictError(f"every session for the messages of this process to topic {message.topic!r:.60} is leased")


def _request(
    given: PlainMessage, lane: str, agent_id: str, message_id: bytes | None, hints: list[RowWrite]
) -> SaveRequest:
    fields = message_fields(given)
    return SaveRequest(
        agent_id=agent_id,
        session_id=lane,
        execution_state=given.plain,
        agent_context={},
        ttl_seconds=fields.pop("ttl"),
        handoff_schema=fields.pop("toschema", None),
        checkpoint_id=message_id,
        message=fields,
        extra_rows=(lambda _: hints) if hints else None,
    )


@contextmanager
def _naming_value() -> Iterator[None]:
    """Say `value` in errors about a message's value, which is stored as a state."""
    try:
        yield
    except UnsupportedValueError as error:
        raise error.within(ROOTS[0], "value") from error.__cause__


def _lane(ctx: StoreContext, topic: str, number: int) -> str:
    """Return a session of this process's messages to a topic today."""
    return _lane_of(topic, ctx.now_us() // _DAY_US, ctx.this_process(), number)


@lru_cache(maxsize=1024)
def _lane_of(topic: str, days: int, process: Process, number: int) -> str:
    name = hashlib.sha256(repr(tuple(process)).encode()).hexdigest()[:12]
    day = datetime.fromtimestamp(days * DAY, UTC).strftime("%Y-%m-%d")
    return f"topic/{topic}/{day}/{name}" + (f".{number}" if number else "")


# -- topics ----------------------------------------------------------------------------------------------------------


async def register(ctx: StoreContext, topic: str) -> None:
    """Write the row of a topic, unless it is there."""
    if topic in ctx.topics:
        return
    write = rows.pack_topic(topic, ctx.now_us())
    [row] = await ctx.backend.rows([write.key])
    if row is None:
        with suppress(CommitConflict):  # another program registers it at this moment
            await ctx.backend.commit(Commit(tree=write.key.tree, rows=[write]))
    ctx.topics[topic] = read_topic.Backlog(topic)


async def await_room(ctx: StoreContext, message: Message) -> None:
    """Return once no live group has too many messages left; raise `TopicFullError` if it takes too long.

    Note which parked runs wait for messages, too. The store is asked at most once a second, as long
    as there is room: so the limit is exceeded by what publishers send in a second.
    """
    backlog, backend = ctx.topics[message.topic], ctx.backend
    now = ctx.now_us()
    if now < backlog.checked_us + round(CHECK_SECONDS * 1e6) and not backlog.is_full:
        return
    ends, pause = now + round(message.wait * 1e6), SHORTEST_PAUSE
    while True:
        seen = backend.committed  # before reading: any later commit ends the pause
        slowest, waiting = await read_topic.slowest_group(ctx, backlog)
        backlog.checked_us = ctx.now_us()
        backlog.is_full = slowest is not None and waiting >= message.max_waiting
        left = (ends - backlog.checked_us) / 1e6
        if not backlog.is_full:
            backlog.hints = await due.hints_of_topic(ctx, message.topic)
            return
        if left <= 0:
            raise _make_full_error(message, slowest or "", waiting)
        await backend.wait_for_commit(seen, min(pause, left))
        pause = SHORTEST_PAUSE if backend.committed != seen else min(pause * 2, LONGEST_PAUSE)


def _make_full_error(message: Message, group: str, waiting: int) -> TopicFullError:
    return TopicFullError(
        f"topic {message.topic!r:.60} is full: group {group!r:.60} has {waiting:,} messages left, and max_waiting is "
        f"{message.max_waiting:,}. Nothing was published. Start more consumers of that group, or publish later: with "
        "wait= the call waits for room",
        message.topic,
        group,
        waiting,
    )
