"""The source of a move to another framework: its conversation, and the records of its calls."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.errors import (
    ApprovalPendingError,
    ConversionError,
    EffectUnknownError,
    HoldfastError,
    LeaseHeldError,
    UsageError,
)
from holdfast.format.rows import head
from holdfast.format.state import run_journal
from holdfast.format.state.record import StoredRecord
from holdfast.model.approval import Approval, ApprovalStatus
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import ToolCallPart, Transcript, TranscriptMessage
from holdfast.model.effect import EffectKind, EffectRecord, EffectState
from holdfast.model.framework import Framework
from holdfast.model.transcript_moves import find_open
from holdfast.model.transcript_repair import CallOutcome, Outcome
from holdfast.operations import approval as approvals
from holdfast.operations import lease as leasing
from holdfast.operations import ledger, lookup
from holdfast.operations import restore as restoring
from holdfast.operations.context import StoreContext
from holdfast.operations.convert_transcript import Converter

LoadConverter = Callable[[Framework], Converter]
_NOT_YET = "it waited for a person's approval. If it is still needed, make it again: the approval is asked for again"


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveSource:
    """A checkpoint that is to continue elsewhere, with its conversation and its open approvals."""

    record: StoredRecord
    checkpoint: Checkpoint
    transcript: Transcript
    effects: Sequence[EffectRecord]
    waiting: Sequence[Approval]
    tool_hashes: dict[str, str]
    context: dict[str, Any]  # the developer's


def plain_context(ctx: StoreContext) -> StoreContext:
    """Return the context with a codec that reads objects of unknown types as plain data, silently."""
    return replace(ctx, codec=Codec(ctx.codec.types, ctx.codec.limits, "plain", warns=False))


async def load_source(ctx: StoreContext, id_: bytes, load: LoadConverter) -> MoveSource:
    """Load a checkpoint, its conversation, and what the ledger and the approvals of its tree say."""
    plain = plain_context(ctx)
    record = await lookup.live_record(plain, id_)
    checkpoint = await restoring.loaded(plain, record)
    for adapter in ctx.load_adapters():
        if adapter.name == checkpoint.framework and adapter.apply_writes is not None:
            checkpoint = await adapter.apply_writes(plain, checkpoint)
    what = f"checkpoint {checkpoint.checkpoint_id}"
    context = checkpoint.agent_context
    own, hashes = context, dict[str, str]()
    if isinstance(context, dict):
        own, _, hashes = run_journal.from_context(context, what)
    effects = [entry.effect(plain.codec) for entry in await ledger.of_tree(plain, record.tree)]
    of_line = await _sessions_of(plain, record)
    return MoveSource(
        record=record,
        checkpoint=checkpoint,
        transcript=read_transcript(load(Framework.of(checkpoint.framework)), checkpoint),
        effects=[one for one in effects if one.session_id in of_line],
        waiting=[
            one
            for one in await approvals.listed(plain, record.session, pending=False)
            if one.status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED, ApprovalStatus.MODIFIED)
        ],
        tool_hashes=hashes,
        context=own if isinstance(own, dict) else {"context": own},
    )


def read_transcript(converter: Converter, checkpoint: Checkpoint) -> Transcript:
    """Return the conversation of a checkpoint; raise `ConversionError` if its state can't be one."""
    try:
        return converter.to_transcript(checkpoint)
    except HoldfastError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ConversionError(
            f"the state of checkpoint {checkpoint.checkpoint_id} can't be read as a conversation of "
            f"{checkpoint.framework}: {error!r:.200}. Save it by that framework's adapter, or as a list of messages"
        ) from error


async def _sessions_of(ctx: StoreContext, record: StoredRecord) -> set[str]:
    """Return the sessions on the line that leads to a checkpoint."""
    found: set[str] = set()
    at: StoredRecord | None = record
    while at is not None:
        found.add(at.session)
        at = await lookup.nearest_live(ctx, at.parent, at.tree) if at.parent is not None else None
    return found


# -- refusals ----------------------------------------------------------------------------------------------------------


async def refuse_held(ctx: StoreContext, record: StoredRecord, *, own_session: str | None) -> None:
    """Raise if a live process has the lease of the source's session."""
    found = await lookup.find_head(ctx, head.session_key(record.session), record.tree)
    if found is None or record.session == own_session:
        return
    if found[0].lease is not None and found[0].lease.cancellation is not None:
        return  # its work goes on in the target, if at all
    try:
        leasing.refuse(ctx, record.session, found[0], None)
    except LeaseHeldError as error:
        raise LeaseHeldError(
            f"session {record.session!r:.60} is being worked on by {error.holder!r:.60}: what it does next would be "
            "missing in the target. Stop that process, or wait until it has ended; while_running=True moves the "
            "checkpoint as it is",
            error.holder,
            error.expires_at,
        ) from None


def refuse_in_doubt(source: MoveSource) -> None:
    """Raise if an effect on the source's line has an unknown outcome."""
    doubted = [one for one in source.effects if one.is_in_doubt and one.kind is not EffectKind.READ]
    if not doubted:
        return
    told = ", ".join(f"{one.tool!r:.60} ({one.short_id})" for one in doubted[:5])
    raise EffectUnknownError(
        f"it is unknown whether these effects of session {source.record.session!r:.60} were carried out: {told}. "
        "The target could repeat them, so nothing was moved. Find out, and say so: `holdfast resolve "
        f"{doubted[0].short_id} --done` or `--not-done`; or let the source resume, if it has a probe",
        doubted[0],
    )


def refuse_hosted(messages: Sequence[TranscriptMessage]) -> None:
    """Raise for calls that a provider carries out and whose results only it has."""
    answered = {part.id for one in messages for part in one.tool_responses}
    for number, message in enumerate(messages):
        for call in message.tool_calls:
            if call.hosted and call.id not in answered:
                raise ConversionError(
                    f"message {number} has the call {call.id:.60} of {call.name!r:.60}, which the model's provider "
                    "carries out: its result is stored there, and no other provider can read it. Nothing was changed. "
                    "Move a checkpoint before that call, or let the source tell the result in a message first"
                )


def refuse_position(source: MoveSource) -> None:
    """Raise if the source stands within a graph, where the messages don't tell what is next."""
    cursor, messages = source.transcript.cursor, source.transcript.messages
    if cursor is None or not cursor.pending:
        return
    remedy = "Let the source finish its turn, or leave the turn out: at='last_turn'"
    if len(cursor.pending) > 1:
        raise ConversionError(
            f"checkpoint {source.checkpoint.checkpoint_id} has {len(cursor.pending)} pending branches "
            f"({', '.join(cursor.pending):.120}): no other framework can continue them. Nothing was changed. {remedy}"
        )
    if cursor.pending == ("__start__",) or _tells_what_is_next(messages):
        return
    raise ConversionError(
        f"checkpoint {source.checkpoint.checkpoint_id} stands within a graph, before {cursor.pending[0]!r:.60}: the "
        f"target has no such place. Nothing was changed. {remedy}"
    )


def _tells_what_is_next(messages: Sequence[TranscriptMessage]) -> bool:
    """Return whether an answer of the model is next, or results of its calls."""
    return bool(messages) and (bool(find_open(messages)) or messages[-1].role != "assistant")


# -- outcomes of calls -------------------------------------------------------------------------------------------------


class CallRecords:
    """What the ledger and the approvals say about calls, each record for one call."""

    def __init__(self, source: MoveSource, messages: Sequence[TranscriptMessage], codec: Codec) -> None:
        self._codec = codec
        self._effects = sorted(source.effects, key=lambda one: one.ordinal)
        self._waiting = list(source.waiting)
        self._is_interrupted = bool(source.transcript.interrupts) and len(find_open(messages)) == 1
        answered = {part.id for one in messages for part in one.tool_responses}
        calls = [call for one in messages for call in one.tool_calls]
        self._told = Counter(self._key(one.name, one.arguments) for one in calls if one.id in answered)

    def find(self, call: ToolCallPart) -> Outcome | None:
        """Return the outcome of a call without a result; None if nothing is known."""
        key = self._key(call.name, call.arguments)
        matching = [one for one in self._effects if self._key(one.tool, one.arguments) == key]
        # As many of them as the conversation has results for are told already.
        told = min(self._told[key], len(matching))
        left = matching[told:]
        if left:
            self._effects.remove(left[0])
            return _outcome_of(left[0])
        return self._find_waiting(key)

    def _find_waiting(self, key: bytes) -> Outcome | None:
        for one in self._waiting:
            if self._key(one.call.tool, one.call.arguments) == key:
                self._waiting.remove(one)
                return Outcome(CallOutcome.NOT_STARTED, words=_NOT_YET)
        # A question of the framework's own, about the only call that is open.
        return Outcome(CallOutcome.NOT_STARTED, words=_NOT_YET) if self._is_interrupted else None

    def _key(self, tool: str, arguments: Any) -> bytes:
        given = dict(arguments) if arguments is not None else None
        try:
            return self._codec.encode([tool, _sorted(given)])
        except HoldfastError:
            return tool.encode("utf-8", "surrogatepass")


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value, key=str)}
    return [_sorted(one) for one in value] if isinstance(value, list | tuple) else value


def _outcome_of(effect: EffectRecord) -> Outcome | None:
    if effect.state is EffectState.DONE:
        if effect.error is not None and effect.result is None:
            return None  # it was carried out, but its result is not stored
        return Outcome(CallOutcome.FINISHED, effect.result)
    if effect.state is EffectState.FAILED:
        return Outcome(CallOutcome.FAILED, words=effect.error)
    return None


def refuse_waiting(source: MoveSource) -> None:
    """Raise for an approval or a question that waits, if the caller does not want it asked again."""
    for asked in source.transcript.interrupts:
        raise ApprovalPendingError(
            f"session {source.record.session!r:.60} waits for a person's answer to {asked.payload!r:.120}. Answer it "
            "and let the source continue, or have it asked again: approvals='reask'",
            asked.id,
        )
    for one in source.waiting:
        raise ApprovalPendingError(
            f"approval {one.short_id} of {one.call.tool!r:.60} waits in session {one.session_id!r:.60}: it is bound to "
            "that session. Decide it and let the source continue, or have it asked again: approvals='reask'",
            one.approval_id,
        )


def check_conversation(source: MoveSource) -> None:
    if not len(source.transcript):
        raise UsageError(
            f"checkpoint {source.checkpoint.checkpoint_id} has no conversation: there is nothing to convert. "
            "`holdfast show --messages` shows the messages of a checkpoint"
        )
