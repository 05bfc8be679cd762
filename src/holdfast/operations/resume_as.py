"""resume_as: a session continues in another framework, as a new session of the same tree.

`plan_move` reads and converts, and writes nothing. `save_move` writes the first checkpoint of the new
session, in one commit. The source stays as it is.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, count
from typing import Any

from holdfast.backends.port import ABSENT, CommitConflict
from holdfast.errors import ConflictError, ConversionError, StoreError, UsageError
from holdfast.format.rows import head as rows
from holdfast.format.rows import operation_log
from holdfast.format.rows.operation_log import LoggedChange, Origin
from holdfast.format.state.record import StoredRecord
from holdfast.format.state.split import Split
from holdfast.model import ids
from holdfast.model.conversation import ToolCallPart, Transcript, TranscriptMessage
from holdfast.model.conversion_target import SHAPES, ConversionOptions, ConversionTarget
from holdfast.model.framework import Framework
from holdfast.model.loss import Loss, make_loss
from holdfast.model.tool_map import ToolMap
from holdfast.model.transcript import write_object
from holdfast.model.transcript_moves import close_calls, cut_last_turn, find_open, refuse_hosted, unique_ids
from holdfast.model.transcript_repair import CallOutcome, Outcome
from holdfast.operations import lookup, session_names
from holdfast.operations import operation_log as log
from holdfast.operations.context import StoreContext
from holdfast.operations.convert_transcript import (
    Converter,
    MeasuredConversion,
    convert_transcript,
    name_calls,
    refuse_losses,
)
from holdfast.operations.encode_state import plan_writes
from holdfast.operations.move_source import (
    CallRecords,
    LoadConverter,
    MoveSource,
    check_conversation,
    is_conversation,
    load_effects,
    load_source,
    plain_context,
    refuse_held,
    refuse_in_doubt,
    refuse_position,
    refuse_waiting,
)
from holdfast.operations.native_state import CONVERTED, NativeState, find_native
from holdfast.operations.new_checkpoint import build_commit, header_fields
from holdfast.operations.session_cache import SessionTip
from holdfast.operations.validate import SaveRequest

LAST_TURN = "last_turn"
MAX_ATTEMPTS = 200
_NEW = SessionTip(tree=None, version=ABSENT, head=rows.Head(None, 0), head_value=None, checkpoint=None)
_OF_THE_TREE = ("ttl", "tasks", "ws", "dir")  # header fields that the target's first checkpoint inherits
# The name of a session that came from another one by a conversion.
_CONVERTED_NAME = re.compile(rf"(.+)-(?:{'|'.join((*Framework, *SHAPES))})-[0-9]+", re.DOTALL)
_PLACEHOLDER = "planned"  # the name of a session that has none yet

Execute = Callable[[ToolCallPart], Awaitable[Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveRequest:
    """The checked arguments of `client.resume_as`. `execute` carries out a call as an effect of a run."""

    source: bytes
    target: ConversionTarget
    tools: ToolMap = field(default_factory=ToolMap)
    dangling: str = "ledger"
    accept: frozenset[str] = frozenset()
    carry: Mapping[str, str] = field(default_factory=dict)
    at: str | None = None
    approvals: str = "reask"
    while_running: bool = False
    execute: Execute | None = None
    own_session: str | None = None  # whose lease the caller has


@dataclass(frozen=True, slots=True, kw_only=True)
class MovePlan:
    """A conversation that is ready to continue in its target, and what that loses."""

    source: MoveSource
    target: ConversionTarget
    messages: Sequence[TranscriptMessage]  # as the target has them
    losses: Sequence[Loss]
    transcript: Transcript  # what is converted: all messages, or those since the earlier state
    native: NativeState | None
    carried: Mapping[str, Any]
    context: Mapping[str, Any]
    renamed: Mapping[str, str]
    instructions: Sequence[str]
    while_running: bool = False
    own_session: str | None = None


async def plan_move(ctx: StoreContext, request: MoveRequest, load: LoadConverter) -> MovePlan:
    """Return the plan; raise the error that says why the session can't move. Writes nothing."""
    source = await load_source(ctx, request.source, load)
    check_conversation(source)
    _check_carry(source, request.carry)
    if request.execute is not None and request.own_session is not None:
        tree = await lookup.find_tree(ctx, rows.session_key(request.own_session))
        if tree != source.record.tree:
            raise UsageError(
                f"the run is of session {request.own_session!r:.60}, which belongs to another tree: its ledger would "
                "not know the effects. Open the run on the source's session, or on a fork of it"
            )
    if not request.while_running:
        await refuse_held(ctx, source.record, own_session=request.own_session)
    refuse_in_doubt(source.record, source.effects)
    if request.approvals == "raise":
        refuse_waiting(source)
    (messages, renamed), losses = await _close(ctx, source, request)
    found = await find_native(ctx, source, messages, request.target, load)
    if isinstance(found, NativeState):
        try:
            return _make_plan(ctx, source, request, messages, renamed, losses, found, load)
        except UsageError:  # the adapter says that the earlier state can't be appended to
            found = found.checkpoint_id
    if found is not None:
        losses.append(make_loss("native_state", f"checkpoint {found}"))
    return _make_plan(ctx, source, request, messages, renamed, losses, None, load)


def _make_plan(
    ctx: StoreContext,
    source: MoveSource,
    request: MoveRequest,
    messages: Sequence[TranscriptMessage],
    renamed_ids: Mapping[str, str],
    losses: Sequence[Loss],
    native: NativeState | None,
    load: LoadConverter,
) -> MovePlan:
    """Return the plan for messages whose calls have results, after an earlier state if there is one."""
    carried, context, state_losses = _divide_state(source, request.carry)
    source_messages = messages if native is None else native.messages
    effects = {effect.tool for effect in source.effects}
    moved, more, renamed = name_calls(source_messages, request.tools, source.tool_hashes, effects)
    plan = MovePlan(
        source=source,
        target=request.target,
        messages=(),
        losses=(),
        transcript=replace(source.transcript, messages=tuple(moved)),
        native=native,
        carried=carried,
        context=context,
        renamed={**renamed_ids, **renamed},
        instructions=(),
        while_running=request.while_running,
        own_session=request.own_session,
    )
    measured = _convert(ctx, plan, load(request.target.framework), agent_id="agent", session_id=_PLACEHOLDER)
    left = measured.converted.left
    _check_left(context, left)
    state_losses += [make_loss("state", f"state.{old:.100}", old) for old, new in request.carry.items() if new in left]
    asked_again = [make_loss("approvals", f"approval {item.short_id}", item.call.tool) for item in source.waiting]
    asked_again += [
        make_loss("approvals", f"interrupt {interrupt.id:.40}") for interrupt in source.transcript.interrupts
    ]
    every = [*losses, *more, *measured.losses, *source.losses, *state_losses, *asked_again]
    refuse_losses(every, request.accept)
    return replace(
        plan, messages=tuple(measured.in_target), losses=tuple(every), instructions=measured.fitted.instructions
    )


# -- decisions ---------------------------------------------------------------------------------------------------------


async def _close(
    ctx: StoreContext, source: MoveSource, request: MoveRequest
) -> tuple[tuple[list[TranscriptMessage], dict[str, str]], list[Loss]]:
    """Return the messages with unique ids, cut and closed as asked for; and what that loses."""
    listed, renamed = unique_ids(source.transcript.messages)
    losses = [make_loss("call_ids", f"call {old:.80}", made) for old, made in renamed.items()]
    if request.at == LAST_TURN:
        cursor = source.transcript.cursor
        cut = cut_last_turn(listed, is_finished=cursor is None or cursor.is_finished)
        listed, losses = cut.messages, [*losses, *cut.losses]
        if not is_conversation(listed):
            raise ConversionError(
                f"checkpoint {source.checkpoint.checkpoint_id} is in its first turn: without it nothing is left to "
                "convert. Let the source finish the turn, or begin a new session in the target"
            )
    else:
        refuse_position(source)
    refuse_hosted(listed)
    records = CallRecords(source, listed, ctx.codec)
    known: dict[str, Outcome] = {}
    for call in find_open(listed) if request.dangling != "raise" else ():
        outcome = records.find(call)
        if outcome is None and request.dangling == "execute":
            outcome = await _execute(call, request)
        if outcome is not None:
            known[call.id] = outcome
    policy = "raise" if request.dangling in ("ledger", "execute") else request.dangling
    closed = close_calls(listed, policy, lambda call: known.get(call.id))
    return (closed.messages, renamed), [*losses, *closed.losses]


async def _execute(call: ToolCallPart, request: MoveRequest) -> Outcome:
    assert request.execute is not None
    if write_object(call.arguments) is None:
        return Outcome(CallOutcome.FAILED, words="its arguments are no JSON object")
    return Outcome(CallOutcome.FINISHED, await request.execute(call))


def _check_carry(source: MoveSource, carry: Mapping[str, str]) -> None:
    state = source.transcript.state
    unknown = next((name for name in carry if name not in state), None)
    if unknown is not None:
        keys = ", ".join(map(repr, state)) or "none"
        raise UsageError(f"carry names {unknown!r:.60}, which the source's state does not have. It has {keys:.300}")


def _check_left(context: Mapping[str, Any], left: Sequence[str]) -> None:
    """Raise for a carried value that would replace one of the developer's own."""
    taken = next((name for name in left if name in context), None)
    if taken is not None:
        raise UsageError(
            f"carry gives a value the name {taken!r:.60}: it goes to agent_context, which has another one of that "
            "name. Choose a name that is free"
        )


def _divide_state(source: MoveSource, carry: Mapping[str, str]) -> tuple[dict[str, Any], dict[str, Any], list[Loss]]:
    """Return the values for the target's state, the new session's context, and what is lost of the rest."""
    state = source.transcript.state
    carried = {carry[name]: state[name] for name in carry}
    rest = {name: value for name, value in state.items() if name not in carry}
    context = dict(source.context)
    if rest:
        context[_free_key(context, f"{source.checkpoint.framework}_state")] = rest
    return carried, context, [make_loss("state", f"state.{name:.100}", name) for name in rest]


def _free_key(context: Mapping[str, Any], key: str) -> str:
    """Return the key, or one with a number: the developer, or an earlier move, may have used it."""
    return next(item for item in chain([key], (f"{key}_{number}" for number in count(2))) if item not in context)


def _convert(
    ctx: StoreContext, plan: MovePlan, converter: Converter, *, agent_id: str, session_id: str
) -> MeasuredConversion:
    options = ConversionOptions(
        agent_id=agent_id,
        session_id=session_id,
        created_at=plan.source.checkpoint.created_at.timestamp(),
        seed=plan.source.checkpoint.checkpoint_id,
        native=plan.native.state if plan.native is not None else None,
        carried=plan.carried,
    )
    continuation = plan.native.continuation if plan.native is not None else None
    return convert_transcript(ctx.codec, converter, plan.transcript, plan.target, options, continuation)


# -- saving ------------------------------------------------------------------------------------------------------------


async def save_move(
    ctx: StoreContext,
    plan: MovePlan,
    load: LoadConverter,
    *,
    agent_id: str,
    session_id: str | None,
    version: str,
    origin: Origin,
    source_prefix: str = "",
) -> str:
    """Write the first checkpoint of the new session; return the session's name.

    A repeated call with the same name is a no-op: the checkpoint's id follows from what it is.
    Sessions of the source's framework begin with `source_prefix`, which a generated name lacks.
    """
    source = plan.source.record
    converter = load(plan.target.framework)
    for _ in range(MAX_ATTEMPTS):
        name = session_id if session_id is not None else await _free_name(ctx, plan, source_prefix)
        measured = _convert(ctx, plan, converter, agent_id=agent_id, session_id=name)
        converted = measured.converted
        session = converted.session_id or name
        request = SaveRequest(
            agent_id=agent_id,
            session_id=session,
            framework=plan.target.framework,
            execution_state=dict(converted.state),
            agent_context=_context_of(plan, converted.left),
            step_name=converted.step_name,
            metadata={**converted.metadata, CONVERTED: _describe_origin(plan, version)},
        )
        split = Split(ctx.codec, _NEW.find_list).take(request.execution_state, request.agent_context)
        id_ = _first_id(ctx, source, request) if session_id is not None else None
        if id_ is not None and await lookup.find_record(ctx, id_) is not None:
            return session
        key = rows.session_key(session)
        if await lookup.find_tree(ctx, key) is not None:
            raise _make_taken_error(session)
        await _refuse_since(ctx, plan)
        inherited = {item: source.header[item] for item in _OF_THE_TREE if item in source.header}
        planned = await plan_writes(ctx, split, _NEW, frozenset())
        commit, stored, _ = build_commit(
            ctx,
            _NEW,
            source,
            {**inherited, **header_fields(ctx, request)},
            planned.manifest,
            id_=id_,
            segments=planned.segments,
            blobs=planned.blobs,
        )
        begun = [LoggedChange(operation_log.SESSION, key, None, stored.id)]
        logged = log.writes(ctx, origin, source.tree, "convert", begun, session)
        own = converted.rows(stored) if converted.rows is not None else ()
        commit.rows = [*commit.rows, *own, *logged]
        ctx.memory.drop(key)
        try:
            await ctx.backend.commit(commit)
        except CommitConflict as conflict:
            if conflict.kind == "require":
                await lookup.load_live_record(ctx, source.id)
            if id_ is not None and await lookup.find_record(ctx, id_) is not None:
                return session
            if session_id is not None:
                raise _make_taken_error(session) from None
        except StoreError as error:
            error.checkpoint_id = ids.to_text(stored.id)
            raise
        else:
            return session
    raise ConflictError("no free name was found for the new session: choose a session_id")


async def _refuse_since(ctx: StoreContext, plan: MovePlan) -> None:
    """Raise if a process has taken the source since it was planned, or left an effect in doubt."""
    record = plan.source.record
    if not plan.while_running:
        await refuse_held(ctx, record, own_session=plan.own_session)
    refuse_in_doubt(record, await load_effects(plain_context(ctx), record))


async def _free_name(ctx: StoreContext, plan: MovePlan, source_prefix: str) -> str:
    """Return a free name: that of the first session, the target's, and a number."""
    session = plan.source.record.session.removeprefix(source_prefix)
    converted = _CONVERTED_NAME.fullmatch(session)
    stem, prefix = session_names.find_stem(converted[1] if converted else session), plan.target.session_prefix
    if prefix:  # what follows it is a name of the framework's own
        stem = stem.replace("/", "-").replace("%", "-")
    name = await session_names.free_name(ctx, plan.source.record.tree, f"{prefix}{stem}-{plan.target.name}-")
    return name.removeprefix(prefix)


def _first_id(ctx: StoreContext, source: StoredRecord, request: SaveRequest) -> bytes:
    """Return the id of the first checkpoint, which follows from its source and its content."""
    content = ctx.codec.encode(
        [source.id, request.agent_id, request.session_id, request.execution_state, request.agent_context]
    )
    noise = hashlib.sha256(b"holdfast converted 1\0" + content).digest()
    milliseconds = int.from_bytes(source.id[:6], "big")  # of the source's own id
    return ids.make(milliseconds, 0, noise[:8], ids.tree_tag(source.tree))


def _context_of(plan: MovePlan, left: Sequence[str]) -> dict[str, Any]:
    """Return the new session's context, with the values that the target's state has no place for."""
    return {**plan.context, **{name: plan.carried[name] for name in left}}


def _describe_origin(plan: MovePlan, version: str) -> dict[str, Any]:
    """Return what the first checkpoint says about where it came from."""
    losses = json.dumps([loss.to_json() for loss in plan.losses], sort_keys=True).encode("utf-8", "surrogatepass")
    return {
        "from": _name_of_source(plan),
        "to": plan.target.name,
        "source": plan.source.checkpoint.checkpoint_id,
        "holdfast": version,
        "losses": hashlib.sha256(losses).hexdigest(),
        "kinds": sorted({loss.kind for loss in plan.losses}),
        "instructions": list(plan.instructions),
        "renamed": dict(plan.renamed),
        "native": plan.native.checkpoint_id if plan.native is not None else None,
    }


def _name_of_source(plan: MovePlan) -> str:
    framework = str(plan.source.checkpoint.framework)
    about = plan.source.checkpoint.metadata.get(CONVERTED)
    return str(about["to"]) if framework == "custom" and isinstance(about, Mapping) and "to" in about else framework


def _make_taken_error(session: str) -> ConflictError:
    return ConflictError(
        f"session {session!r:.60} exists already: a converted conversation begins a new session. Choose another "
        "session_id, or leave it out"
    )
