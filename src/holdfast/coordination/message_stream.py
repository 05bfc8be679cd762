"""The messages of a topic as a stream, without a group, and its sync twin."""

from __future__ import annotations

from typing import Any, Self

from holdfast.backends.bridge.step import run_inline
from holdfast.backends.port import Change
from holdfast.coordination import contract_use
from holdfast.coordination.contract import Contract
from holdfast.errors import UsageError
from holdfast.format.state.record import StoredRecord
from holdfast.model import ids
from holdfast.model.event import START, Cursor
from holdfast.model.message import Message, TopicMessage, check_topic
from holdfast.model.moment import moment_of
from holdfast.operations import events, lookup, read_topic, validate
from holdfast.operations.context import StoreContext
from holdfast.operations.message_write import is_lane


class MessageStream(events.ChangeStream[TopicMessage]):
    """The messages of a topic, in the order of their commits: `async for message in stream`."""

    def __init__(
        self,
        ctx: StoreContext,
        topic: str,
        contract: Contract[Any] | None,
        *,
        after: Cursor | None,
        follow: bool,
        longest_wait: float,
    ) -> None:
        super().__init__(ctx, after=after, follow=follow, longest_wait=longest_wait)
        self._topic = topic
        self._contract = contract

    async def _page(self, after: int) -> list[Change]:
        return (await read_topic.changes_of(self._ctx, self._topic, after, events.PAGE))[0]

    async def _event(self, change: Change) -> TopicMessage | None:
        ctx = self._ctx
        stored = read_topic.unpack_message(ctx, change, self._topic)
        if await lookup.is_expired(ctx, stored):
            return None
        value = await contract_use.read_message(ctx, stored, self._contract)
        return make_message(stored, value, Cursor.of(change.position, stored.id).text)


class SyncMessageStream:
    """`MessageStream` without `await`: `for message in stream` blocks its own thread until there is one."""

    def __init__(self, stream: MessageStream) -> None:
        self._stream = stream

    @property
    def cursor(self) -> str | None:
        return self._stream.cursor

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> TopicMessage:
        try:
            return run_inline(self._stream.__anext__())
        except StopAsyncIteration:
            raise StopIteration from None


def open_messages(
    ctx: StoreContext, topic: Any, contract: Any, after: Any, *, follow: bool, poll_seconds: Any
) -> MessageStream:
    """Open a stream with checked arguments."""
    return MessageStream(
        ctx,
        check_topic(topic),
        check_contract(contract),
        after=None if after is None else Cursor.from_text(after),
        follow=follow,
        longest_wait=validate.seconds("poll_seconds", poll_seconds, least=0.001),
    )


def make_message(stored: StoredRecord, value: Any, cursor: str) -> TopicMessage:
    """Return a message as its readers get it."""
    header = stored.header
    return TopicMessage(
        message_id=ids.to_text(stored.id),
        topic=header["topic"],
        value=value,
        key=header.get("key"),
        agent_id=header["agent"],
        session_id=None if is_lane(stored) else stored.session,
        contract=header.get("toschema"),
        published_at=moment_of(header["at"]),
        cursor=cursor,
    )


# -- arguments -------------------------------------------------------------------------------------------------------


def check_message(given: Message) -> Message:
    """Return a message if it can be published."""
    if not isinstance(given, Message):
        raise UsageError(f"publish has a {type(given).__name__}: give Message(topic, value) objects")
    check_topic(given.topic)
    check_contract(given.contract)
    validate.optional_name("key", given.key)
    for option, seconds, least in (
        ("ttl", given.ttl, 0.001),
        ("max_ttl", given.max_ttl, 0.001),
        ("wait", given.wait, 0),
    ):
        validate.seconds(option, seconds, least=least)
    if given.max_ttl < given.ttl:
        raise UsageError(f"max_ttl is {given.max_ttl:g} s: it must be at least ttl, {given.ttl:g} s")
    if isinstance(given.max_waiting, bool) or not isinstance(given.max_waiting, int) or given.max_waiting < 1:
        raise UsageError(f"max_waiting is {given.max_waiting!r:.60}: it must be a whole number from 1 on")
    return given


def check_contract(given: Any) -> Contract[Any] | None:
    if given is not None and not isinstance(given, Contract):
        raise UsageError(f"contract is a {type(given).__name__}: it must be what `holdfast.contract(...)` gave")
    return given


def check_start(from_: Any) -> Cursor | None:
    """Return where a new group begins: None after the messages of now."""
    return None if from_ == "now" else Cursor.from_text(START if from_ is None else from_)
