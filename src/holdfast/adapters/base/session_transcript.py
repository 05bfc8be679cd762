"""The transcript of a session that an adapter has saved, with the calls of a turn that was cut off.

A finished turn is in the adapter's state, as the framework's own messages. The answers and results
of an unfinished turn are in the journal of its run only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.adapters.base.digest import digest
from holdfast.adapters.base.session import TURN
from holdfast.adapters.base.step_function import step_name
from holdfast.codec.codec import Codec
from holdfast.codec.redacted import has_redacted
from holdfast.errors import HoldfastError
from holdfast.format.rows import ledger
from holdfast.format.state import run_journal
from holdfast.format.state.run_journal import EFFECT, OK, STEP
from holdfast.model.checkpoint import Checkpoint
from holdfast.model.conversation import (
    MessagePart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptCursor,
    TranscriptMessage,
    text_parts,
)
from holdfast.model.transcript_repair import as_text

MESSAGES = "messages"
_CODEC = Codec(on_unknown_type="plain", warns=False)
Convert = Callable[[Any], Sequence[TranscriptMessage]]
ConvertResult = Callable[[Any], Sequence[MessagePart] | None]


class RecordedResult(NamedTuple):
    """A result that a run has recorded: of which call, and the digests of an effect's identity."""

    number: int  # of the record
    kind: str
    name: str
    value: Any
    place: str
    identities: frozenset[bytes]


def parts_of_text(result: Any) -> Sequence[MessagePart]:
    """Return a result of a tool as one text."""
    return (TextPart(content=as_text(result)),)


def build_transcript(
    checkpoint: Checkpoint,
    messages_of_state: Convert,
    messages_of_answer: Convert,
    *,
    parts_of_result: ConvertResult = parts_of_text,
    state_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    pending_of: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
) -> Transcript:
    """Return the transcript of a checkpoint.

    `messages_of_state` converts the adapter's state, `messages_of_answer` an answer of the model as
    the adapter has recorded it, `parts_of_result` a result of a tool. None stands for a call that
    has no result yet. `state_of` returns the values of the state that are not the
    conversation; by default all but `messages`. `pending_of` returns the waiting parts of a
    graph or crew whose turn was cut off.
    """
    state = checkpoint.execution_state if isinstance(checkpoint.execution_state, Mapping) else {}
    turn = state.get(TURN)
    kept = {name: value for name, value in state.items() if name != TURN}
    messages = list(messages_of_state(kept))
    if isinstance(turn, Mapping):
        messages += _messages_of_turn(checkpoint, turn, messages_of_answer, parts_of_result)
    position = checkpoint.step_name if isinstance(turn, Mapping) else None
    pending = tuple(pending_of(turn)) if pending_of is not None and isinstance(turn, Mapping) else ()
    cursor = TranscriptCursor(
        framework=str(checkpoint.framework), position=position, is_finished=turn is None, pending=pending
    )
    others = state_of(kept) if state_of is not None else {n: v for n, v in kept.items() if n != MESSAGES}
    return Transcript(messages=tuple(messages), cursor=cursor, state=others)


def _messages_of_turn(
    checkpoint: Checkpoint, turn: Mapping[str, Any], messages_of_answer: Convert, parts_of_result: ConvertResult
) -> Iterator[TranscriptMessage]:
    given = turn.get("input")
    yield TranscriptMessage(role="user", parts=text_parts(given if isinstance(given, str) else as_text(given)))
    open_calls: dict[str, ToolCallPart] = {}
    for found in read_results(checkpoint, int(turn.get("first_record", 0))):
        value = found.value
        if found.kind == STEP and isinstance(value, Mapping) and "model" in value:
            for message in messages_of_answer(value["model"]):
                yield replace(message, parts=tuple([_open(part, open_calls) for part in message.parts]))
        elif found.kind == EFFECT or (isinstance(value, Mapping) and "result" in value):
            parts = parts_of_result(value if found.kind == EFFECT else value["result"])
            id_ = value.get("id") if found.kind == STEP else None
            ids = _find_calls(open_calls, found, id_)
            if parts is None or len(ids) > 1:
                continue
            for item in ids:
                del open_calls[item]
            answered = ToolResponsePart(id=ids[0] if ids else str(id_ or ""), name=found.name, content=tuple(parts))
            yield TranscriptMessage(role="tool", parts=(answered,))


def _open(part: MessagePart, open_calls: dict[str, ToolCallPart]) -> MessagePart:
    """Add a call to those that are open, by an id that no other of them has; return it with that id."""
    if not isinstance(part, ToolCallPart):
        return part
    id_ = part.id
    while id_ in open_calls:
        id_ = f"{id_}_{len(open_calls)}"
    open_calls[id_] = part
    return replace(part, id=id_)


def _find_calls(open_calls: Mapping[str, ToolCallPart], found: RecordedResult, id_: Any) -> Sequence[str]:
    """Return the id of the call that a result belongs to; several ids if that is unknown.

    Calls that were made at once end in any order, and those of sub-agents may have equal ids: their
    arguments tell them apart.
    """
    calls = {own: call for own, call in open_calls.items() if call.id == id_}
    calls = calls or {own: call for own, call in open_calls.items() if step_name(call.name) == found.name}
    matching = [own for own, call in calls.items() if len(calls) == 1 or _may_be_of(call, found, id_)]
    # Equal calls are told apart by their order, but not those that only redaction has made equal.
    first = calls[matching[0]].arguments if matching else None
    are_equal = all(calls[item].arguments == first and not has_redacted(calls[item].arguments) for item in matching[1:])
    return matching[:1] if matching and are_equal else matching or list(calls)


def _may_be_of(call: ToolCallPart, found: RecordedResult, id_: Any) -> bool:
    """Return whether a result may be of a call, as its arguments tell; any of them may be an effect's key."""
    arguments = dict(call.arguments or {})
    try:
        if found.kind == STEP:
            return digest([call.name, [id_, arguments]]) in found.place
        keys = {ledger.key_digest(str(argument)) for argument in arguments.values() if argument is not None}
        return not found.identities.isdisjoint({ledger.digest(_CODEC, arguments), *keys})
    except (HoldfastError, TypeError, ValueError, RecursionError):  # arguments that are no data
        return False


def read_results(checkpoint: Checkpoint, first: int) -> Iterator[RecordedResult]:
    """Yield the results that the run has recorded since record `first`."""
    context = checkpoint.agent_context
    if not isinstance(context, dict) or run_journal.KEY not in context:
        return
    _, journal, _ = run_journal.from_context(dict(context), f"checkpoint {checkpoint.checkpoint_id}")
    for number, entry in enumerate(journal.entries[first:], first):
        record = run_journal.JournalRecord(*entry)
        if record.status == OK and record.kind in (STEP, EFFECT):
            is_effect = record.kind == EFFECT
            name = record.about[1] if is_effect else run_journal.name_of(record.place)
            # Also of the call that the model asked for, if a person approved other arguments.
            identities = frozenset((*record.about[2:3], *record.about[4:5]) if is_effect else ())
            yield RecordedResult(number, record.kind, name, _CODEC.decode(record.payload), record.place, identities)
