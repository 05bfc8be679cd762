"""The source of a move to another framework: its conversation, and the records of its calls."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from holdfast.codec.codec import Codec
from holdfast.codec.redacted import has_redacted
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
from holdfast.model.conversation import ToolCallPart, Transcript, TranscriptMessage, with_texts
from holdfast.model.effect import EffectKind, EffectRecord, EffectState
from holdfast.model.framework import Framework
from holdfast.model.loss import Loss
from holdfast.model.transcript_moves import find_open
from holdfast.model.transcript_order import has_content
from holdfast.model.transcript_repair import CallOutcome, Outcome
from holdfast.model.transcript_unread import list_unread_losses
from holdfast.operations import approval as approvals
from holdfast.operations import lease as leasing
from holdfast.operations import ledger, lookup
from holdfast.operations import restore as restoring
from holdfast.operations.context import StoreContext
from holdfast.operations.convert_transcript import Converter
from holdfast.operations.lineage import live_line

TURN = "turn"  # of the state of adapters: the turn that was not finished
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
    losses: Sequence[Loss]  # what the stored state has, and the transcript has not


def plain_context(ctx: StoreContext) -> StoreContext:
    """Return the context with a codec that reads objects of unknown types as plain data, silently."""
    return replace(ctx, codec=ctx.codec.derive(on_unknown_type="plain", warns=False))


async def load_source(ctx: StoreContext, id_: bytes, load: LoadConverter) -> MoveSource:
    """Load a checkpoint, its conversation, and what the ledger and the approvals of its tree say."""
    plain = plain_context(ctx)
    record = await lookup.load_live_record(plain, id_)
    checkpoint = await load_checkpoint(plain, record)
    owner = f"checkpoint {checkpoint.checkpoint_id}"
    context = checkpoint.agent_context
    own, hashes, unfinished = context, dict[str, str](), list[Any]()
    if isinstance(context, dict):
        own, journal, hashes = run_journal.from_context(context, owner)
        unfinished = _values_of_turn(plain, checkpoint.execution_state, journal)
    transcript = read_transcript(load(Framework.of(checkpoint.framework)), checkpoint)
    return MoveSource(
        record=record,
        checkpoint=checkpoint,
        transcript=transcript,
        effects=await load_effects(plain, record),
        waiting=[
            item
            for item in await approvals.list_approvals(plain, record.session, pending=False)
            if item.status in (ApprovalStatus.PENDING, ApprovalStatus.APPROVED, ApprovalStatus.MODIFIED)
        ],
        tool_hashes=hashes,
        context=own if isinstance(own, dict) else {"context": own},
        losses=[
            *list_unread_losses(checkpoint.execution_state, transcript, "state"),
            *list_unread_losses(unfinished, transcript, "journal"),
        ],
    )


def _values_of_turn(ctx: StoreContext, state: Any, journal: run_journal.RunJournal) -> list[Any]:
    """Return the answers and results that are in the journal only: of a turn that was cut off."""
    turn = state.get(TURN) if isinstance(state, Mapping) else None
    first = turn.get("first_record") if isinstance(turn, Mapping) else None
    if not isinstance(first, int):
        return []
    records = [run_journal.JournalRecord(*entry) for entry in journal.entries[max(first, 0) :]]
    values = [ctx.codec.decode(item.payload) for item in records if item.status == run_journal.OK]
    return [
        value[name] for value in values if isinstance(value, Mapping) for name in ("model", "result") if name in value
    ]


async def load_checkpoint(ctx: StoreContext, record: StoredRecord) -> Checkpoint:
    """Load a checkpoint, with what its framework has written since, apart from it."""
    checkpoint = await restoring.load_checkpoint(ctx, record)
    for adapter in ctx.load_adapters():
        if adapter.name == checkpoint.framework and adapter.apply_writes is not None:
            checkpoint = await adapter.apply_writes(ctx, checkpoint)
    return checkpoint


def read_transcript(converter: Converter, checkpoint: Checkpoint) -> Transcript:
    """Return the conversation of a checkpoint; raise `ConversionError` if its state can't be one."""
    try:
        found = converter.to_transcript(checkpoint)
        state = {str(name): value for name, value in found.state.items()}
        return replace(found, messages=tuple(map(with_texts, found.messages)), state=state)
    except HoldfastError:
        raise
    except (AttributeError, KeyError, TypeError, ValueError, IndexError) as error:
        raise ConversionError(
            f"the state of checkpoint {checkpoint.checkpoint_id} can't be read as a conversation of "
            f"{checkpoint.framework}: {error!r:.200}. Save it by that framework's adapter, or as a list of messages"
        ) from error


async def load_effects(ctx: StoreContext, record: StoredRecord) -> list[EffectRecord]:
    """Load the effects of the sessions on the line that leads to a checkpoint."""
    effects = [entry.effect(ctx.codec) for entry in await ledger.load_entries(ctx, record.tree)]
    sought = {effect.session_id for effect in effects} - {record.session}
    of_line = {record.session}
    if sought:
        async for item in live_line(ctx, record):
            of_line.add(item.session)
            if sought <= of_line:
                break
    return [effect for effect in effects if effect.session_id in of_line]


# -- refusals ----------------------------------------------------------------------------------------------------------


async def refuse_held(ctx: StoreContext, record: StoredRecord, *, own_session: str | None) -> None:
    """Raise if a live process has the lease of the source's session."""
    found = await lookup.find_head(ctx, head.session_key(record.session), record.tree)
    if found is None or record.session == own_session:
        return
    if found[0].lease is not None and found[0].lease.cancellation is not None:
        return  # its work continues in the target, if at all
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


def refuse_in_doubt(record: StoredRecord, effects: Sequence[EffectRecord]) -> None:
    """Raise if an effect on the source's line has an unknown outcome."""
    doubted = [effect for effect in effects if effect.is_in_doubt and effect.kind is not EffectKind.READ]
    if not doubted:
        return
    named = ", ".join(f"{item.tool!r:.60} ({item.short_id})" for item in doubted[:5])
    raise EffectUnknownError(
        f"it is unknown whether these effects of session {record.session!r:.60} were carried out: {named}. "
        "The target could repeat them, so nothing was moved. Find out, and say so: `holdfast resolve "
        f"{doubted[0].short_id} --done` or `--not-done`; or let the source resume, if it has a probe",
        doubted[0],
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
    if cursor.pending == ("__start__",) or _is_next_task(messages):
        return
    raise ConversionError(
        f"checkpoint {source.checkpoint.checkpoint_id} stands within a graph, before {cursor.pending[0]!r:.60}: the "
        f"target has no such place. Nothing was changed. {remedy}"
    )


def _is_next_task(messages: Sequence[TranscriptMessage]) -> bool:
    """Return whether an answer of the model is next, or results of its calls."""
    return bool(messages) and (bool(find_open(messages)) or messages[-1].role != "assistant")


# -- outcomes of calls -------------------------------------------------------------------------------------------------


class CallRecords:
    """What the ledger and the approvals say about calls, each record for one call."""

    def __init__(self, source: MoveSource, messages: Sequence[TranscriptMessage], codec: Codec) -> None:
        self._codec = codec
        self._is_interrupted = bool(source.transcript.interrupts) and len(find_open(messages)) == 1
        answered = {part.id for message in messages for part in message.tool_responses}
        calls = [call for message in messages for call in message.tool_calls]
        # Calls whose arguments redaction has made equal: a record of one may be of any of them.
        alike = Counter(self._key(item.name, item.arguments) for item in calls if self._is_redacted(item.arguments))
        self._ambiguous = {key for key, count in alike.items() if count > 1}
        known_results = Counter(self._key(item.name, item.arguments) for item in calls if item.id in answered)
        self._effects: defaultdict[bytes, deque[EffectRecord]] = defaultdict(deque)
        for item in sorted(source.effects, key=lambda effect: effect.ordinal):
            self._effects[self._key(item.tool, item.arguments)].append(item)
        for key, count in known_results.items():  # as many of them as the conversation has results for are told already
            self._effects[key] = deque(islice(self._effects[key], count, None))
        self._waiting = Counter(self._key(item.call.tool, item.call.arguments) for item in source.waiting)
        asked = [request for item in source.transcript.interrupts for request in _requests_of(item.payload)]
        self._waiting.update(self._key(str(item.get("name")), item["args"]) for item in asked)

    def find(self, call: ToolCallPart) -> Outcome | None:
        """Return the outcome of a call without a result; None if nothing is known."""
        key = self._key(call.name, call.arguments)
        if key in self._ambiguous:
            return None
        if self._effects[key]:
            return _outcome_of(self._effects[key].popleft())
        if self._waiting[key] > 0:
            self._waiting[key] -= 1
            return Outcome(CallOutcome.NOT_STARTED, words=_NOT_YET)
        # A question of the framework's own, about the only call that is open.
        return Outcome(CallOutcome.NOT_STARTED, words=_NOT_YET) if self._is_interrupted else None

    def _is_redacted(self, arguments: Any) -> bool:
        return has_redacted(self._codec.redact(dict(arguments or {})))

    def _key(self, tool: str, arguments: Any) -> bytes:
        given = dict(arguments) if arguments is not None else None
        try:
            return self._codec.encode([tool, _sort_keys(given)])
        except HoldfastError:
            return tool.encode("utf-8", "surrogatepass")


def _requests_of(payload: Any) -> Iterator[Mapping[str, Any]]:
    """Yield the calls that LangChain asks a person about, if this is what it asks."""
    listed = payload.get("action_requests") if isinstance(payload, Mapping) else None
    for item in listed if isinstance(listed, list | tuple) else ():
        if isinstance(item, Mapping) and isinstance(item.get("args"), Mapping):
            yield item


def _sort_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sort_keys(value[name]) for name in sorted(value, key=str)}
    return [_sort_keys(item) for item in value] if isinstance(value, list | tuple) else value


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
    for item in source.waiting:
        raise ApprovalPendingError(
            f"approval {item.short_id} of {item.call.tool!r:.60} waits in session {item.session_id!r:.60}: it is bound "
            "to that session. Decide it and let the source continue, or have it asked again: approvals='reask'",
            item.approval_id,
        )


def is_conversation(messages: Sequence[TranscriptMessage]) -> bool:
    """Return whether anything was said, beside the instructions."""
    return any(message.role != "system" and has_content(message) for message in messages)


def check_conversation(source: MoveSource) -> None:
    if not is_conversation(source.transcript.messages):
        raise UsageError(
            f"checkpoint {source.checkpoint.checkpoint_id} has no conversation: there is nothing to convert. "
            "`holdfast show --messages` shows the messages of a checkpoint"
        )
