"""wait_for: wait for a message of a topic, and record which one came. It consumes nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields, replace
from typing import Any, NamedTuple

from holdfast.coordination import contract_use
from holdfast.coordination.contract import Contract
from holdfast.coordination.message_stream import MessageStream, check_contract
from holdfast.errors import UsageError
from holdfast.format.rows.run import MESSAGE
from holdfast.format.state.run_journal import OK, STEP, JournalRecord
from holdfast.model.event import Cursor
from holdfast.model.message import TopicMessage, check_topic
from holdfast.operations import events, publish, validate
from holdfast.operations.wait import NotedWait
from holdfast.runs import step as stepping
from holdfast.runs import suspend
from holdfast.runs.engine import RunEngine
from holdfast.runs.sleep import refuse_lost
from holdfast.runs.step import StepCall


class WaitForCall(NamedTuple):
    """A checked call of `wait_for`: its step, and the step that records where it begins."""

    step: StepCall
    start: StepCall
    topic: str
    where: Callable[[TopicMessage], Any] | None
    contract: Contract[Any] | None
    after: Cursor | None
    timeout: float | None


def build_call(
    core: RunEngine, path: str, topic: Any, where: Any, contract: Any, after: Any, timeout: Any, key: str | None
) -> WaitForCall:
    topic = check_topic(topic)
    if where is not None and not callable(where):
        raise UsageError(f"where is a {type(where).__name__}: it must be a function of a message")
    name = f"wait for {topic}"
    place = core.sites.place(path, name, key)
    return WaitForCall(
        StepCall(place, name, build_call, (topic,)),
        StepCall(f"{place}/begin#0", f"{name}: begin", build_call, (topic,)),
        topic,
        where,
        check_contract(contract),
        None if after is None else Cursor.from_text(after),
        None if timeout is None else validate.seconds("timeout", timeout, least=0),
    )


async def wait_for(core: RunEngine, call: WaitForCall) -> TopicMessage | None:
    """Return the recorded message; or wait for one, record it, and save. None once the time is over."""
    codec, ctx, step = core.ctx.codec, core.ctx, call.step
    known = core.find_record(step)
    if known is not None and known.status == OK:
        await core.save_unreturned(step.place, step.name)
        found = codec.decode(known.payload)
        return None if found is None else await _decode_message(core, call, TopicMessage(**found))
    if call.contract is not None:
        await contract_use.register(ctx, call.contract)
    await publish.register(ctx, call.topic)
    started = ctx.now_us()
    try:
        after = await _begin(core, call)
        with suspend.note_wait(core, step.place):
            message = await _wait(core, call, after)
    except BaseException:
        core.sites.give_back(step.place)
        raise
    payload = None if message is None else {field.name: getattr(message, field.name) for field in fields(message)}
    record = JournalRecord(
        step.place, STEP, OK, codec.encode(payload), 1, started, ctx.now_us(), stepping.inputs(codec, step)
    )
    number = core.record(record)
    try:
        await core.after_step(step.name, number)
    except BaseException:
        core.sites.mark_interrupted(step.place)
        core.sites.give_back(step.place)
        raise
    return None if message is None else await _decode_message(core, call, message)


async def _begin(core: RunEngine, call: WaitForCall) -> Cursor:
    """Return where the wait begins: where an earlier life began it, or after what is there now."""
    if call.after is not None:
        return call.after
    codec, ctx, step = core.ctx.codec, core.ctx, call.start
    known = core.find_record(step)
    if known is not None and known.status == OK:
        return Cursor.from_text(codec.decode(known.payload))
    cursor, now = await events.get_end_cursor(ctx), ctx.now_us()
    payload = codec.encode(cursor.text)
    record = JournalRecord(step.place, STEP, OK, payload, 1, now, now, stepping.inputs(codec, step))
    await core.after_step(step.name, core.record(record))
    return cursor


async def _wait(core: RunEngine, call: WaitForCall, after: Cursor) -> TopicMessage | None:
    """Wait for a message that fits; return it with its plain value."""
    ctx = core.ctx
    stream = MessageStream(ctx, call.topic, None, after=after, follow=False, longest_wait=1.0)
    session = core.lease.session_id
    wait = await NotedWait.begin(ctx, core.tree, session, call.step.place, MESSAGE, call.timeout)
    while True:
        seen = ctx.backend.committed  # before reading: any later commit ends the wait
        await refuse_lost(core)
        async for message in stream:
            if call.where is None or call.where(await _decode_message(core, call, message)):
                await wait.end()
                return message
        if wait.is_over:
            await wait.end()
            return None
        await suspend.pause(core, call.step.place, wait, seen, (call.topic,), mark=stream.position)


async def _decode_message(core: RunEngine, call: WaitForCall, message: TopicMessage) -> TopicMessage:
    """Return a message with its value as the class of the contract."""
    if call.contract is None:
        return message
    value = await contract_use.read_answer(core.ctx, message.value, message.contract, call.contract)
    return replace(message, value=value)
