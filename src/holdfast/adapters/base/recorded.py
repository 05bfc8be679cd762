"""The transcript of a session that an adapter has saved, with the calls of a turn that was cut off.

A finished turn is in the adapter's state, as the framework's own messages. The answers and results
of an unfinished turn are in the journal of its run only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from holdfast.adapters.base.session import TURN
from holdfast.codec.codec import Codec
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
Convert = Callable[[Any], Sequence[TranscriptMessage]]
ConvertResult = Callable[[Any], Sequence[MessagePart] | None]


def parts_of_text(result: Any) -> Sequence[MessagePart]:
    """Return a result of a tool as one text."""
    return (TextPart(content=as_text(result)),)


def build_transcript(
    checkpoint: Checkpoint,
    messages_of_state: Convert,
    messages_of_answer: Convert,
    tools: Sequence[str] = (),
    *,
    parts_of_result: ConvertResult = parts_of_text,
    state_of: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None,
    pending_of: Callable[[Mapping[str, Any]], Sequence[str]] | None = None,
) -> Transcript:
    """Return the transcript of a checkpoint.

    `messages_of_state` converts the adapter's state, `messages_of_answer` an answer of the model as
    the adapter has recorded it, `parts_of_result` a result of a tool. None stands for a call that
    has no result yet. `state_of` returns the values of the state that are not the
    conversation; by default all but `messages`. `pending_of` tells of a turn that was cut off which
    parts of a graph or crew wait.
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
    beside = state_of(kept) if state_of is not None else {n: v for n, v in kept.items() if n != MESSAGES}
    return Transcript(messages=tuple(messages), tools=tuple(tools), cursor=cursor, state=beside)


def _messages_of_turn(
    checkpoint: Checkpoint, turn: Mapping[str, Any], messages_of_answer: Convert, parts_of_result: ConvertResult
) -> Iterator[TranscriptMessage]:
    given = turn.get("input")
    yield TranscriptMessage(role="user", parts=text_parts(given if isinstance(given, str) else as_text(given)))
    open_calls: list[ToolCallPart] = []
    for kind, name, value in read_results(checkpoint, int(turn.get("first_record", 0))):
        if kind == STEP and isinstance(value, Mapping) and "model" in value:
            for message in messages_of_answer(value["model"]):
                open_calls += message.tool_calls
                yield message
        elif kind == EFFECT or (isinstance(value, Mapping) and "result" in value):
            parts = parts_of_result(value if kind == EFFECT else value["result"])
            if parts is None:
                continue
            id_ = value.get("id") if kind == STEP else None
            call = next((one for one in open_calls if one.id == id_ or (id_ is None and one.name == name)), None)
            if call is not None:
                open_calls.remove(call)
            answered = ToolResponsePart(
                id=str(id_ or (call.id if call is not None else "")),
                name=name,
                content=tuple(parts),
            )
            yield TranscriptMessage(role="tool", parts=(answered,))


def read_results(checkpoint: Checkpoint, first: int) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, name and value of the results that the run has recorded since record `first`."""
    context = checkpoint.agent_context
    if not isinstance(context, dict) or run_journal.KEY not in context:
        return
    codec = Codec(on_unknown_type="plain", warns=False)
    _, journal, _ = run_journal.from_context(dict(context), f"checkpoint {checkpoint.checkpoint_id}")
    for entry in journal.entries[first:]:
        record = run_journal.JournalRecord(*entry)
        if record.status == OK and record.kind in (STEP, EFFECT):
            name = record.about[1] if record.kind == EFFECT else run_journal.name_of(record.place)
            yield record.kind, name, codec.decode(record.payload)
