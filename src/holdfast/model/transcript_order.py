"""The order of a conversation: turns in alternation, results right after their calls.

Providers refuse a conversation in which a call has no result, a result does not follow its call, or
a turn is empty; some refuse two turns of the user in a row.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from holdfast.model.conversation import (
    BlobPart,
    FilePart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.loss import Loss, make_loss
from holdfast.model.provider_names import is_valid_id, is_valid_name
from holdfast.model.transcript import quote_object

CONTINUED = "(The conversation continues.)"
"""The user's message before a conversation that the model begins: some providers want the user to begin."""

_USER_IS_NEXT = (None, "system", "assistant")  # roles of the message before


class GroupedMessage(NamedTuple):
    """Messages that are one turn, and the message and place of each of its parts."""

    message: TranscriptMessage
    paths: Sequence[tuple[int, int]]


def group_messages(messages: Sequence[TranscriptMessage]) -> Iterator[GroupedMessage]:
    """Yield the turns of a conversation: successive messages of the same role and author become one."""
    first: TranscriptMessage | None = None
    parts: list[MessagePart] = []
    paths: list[tuple[int, int]] = []
    for number, message in enumerate(messages):
        if first is not None and not _continues(first, message):
            yield GroupedMessage(replace(first, parts=tuple(parts)), tuple(paths))
            first, parts, paths = None, [], []
        first = message if first is None else first
        parts += message.parts
        paths += [(number, place) for place in range(len(message.parts))]
    if first is not None:
        yield GroupedMessage(replace(first, parts=tuple(parts)), tuple(paths))


def _continues(first: TranscriptMessage, message: TranscriptMessage) -> bool:
    return message.role == first.role and (message.role != "assistant" or message.author == first.author)


@dataclass(slots=True)
class _Turn:
    """A turn of the model: its message, and the results of its calls by id."""

    message: TranscriptMessage
    results: dict[str, ToolResponsePart]


def order_messages(
    messages: Sequence[TranscriptMessage], follows: str | None = None
) -> tuple[list[TranscriptMessage], list[Loss]]:
    """Return the conversation in an order that every provider takes, without system messages.

    Ids are unique in it already, and every call has a result. A result without a call becomes a
    note, and so does a second result of one call. `follows` is the role of the message that is
    before these, if there is one.
    """
    losses: list[Loss] = []
    ordered: list[TranscriptMessage | _Turn] = []
    turns: dict[str, _Turn] = {}
    for message, paths in group_messages([item for item in messages if item.role != "system"]):
        rest: list[MessagePart] = []
        turn = _Turn(message, {})
        for part, (number, place) in zip(message.parts, paths, strict=True):
            if isinstance(part, ToolResponsePart):
                note = _put_result(part, turns, f"messages.{number}.parts.{place}", losses)
                is_models = message.role == "assistant"  # who can't say images
                rest += [
                    describe_media(item) if is_models and not isinstance(item, TextPart) else item for item in note
                ]
            elif isinstance(part, ToolCallPart) and message.role != "assistant":
                rest.append(TextPart(content=describe_call(part)))
            else:
                if isinstance(part, ToolCallPart):
                    turns[part.id] = turn
                rest.append(part)
        # The calls are last: results must follow them at once.
        turn.message = replace(message, parts=tuple(sorted(rest, key=lambda item: isinstance(item, ToolCallPart))))
        if message.role == "assistant" and turn.message.tool_calls:
            ordered.append(turn)
        elif rest:
            role = "assistant" if message.role == "assistant" else "user"
            ordered.append(replace(turn.message, role=role))
    return _alternate([item for entry in ordered for item in _flat(entry)], follows), losses


def _put_result(
    part: ToolResponsePart, turns: dict[str, _Turn], path: str, losses: list[Loss]
) -> Sequence[MessagePart]:
    """Put a result to its call; return a note if there is none, or if the call has one already."""
    turn = turns.get(part.id)
    if turn is not None and part.id not in turn.results:
        turn.results[part.id] = part
        return ()
    kind = "stray_results" if turn is None else "repeated_results"
    losses.append(make_loss(kind, path, part.name or part.id))
    return () if turn is not None else describe_result(part)


def _flat(entry: TranscriptMessage | _Turn) -> Iterator[TranscriptMessage]:
    if isinstance(entry, TranscriptMessage):
        yield entry
        return
    yield entry.message
    answered = [entry.results[call.id] for call in entry.message.tool_calls if call.id in entry.results]
    if answered:
        names = {call.id: call.name for call in entry.message.tool_calls}
        parts = tuple(replace(response_part, name=names[response_part.id]) for response_part in answered)
        yield TranscriptMessage(role="tool", parts=parts)


def _alternate(messages: Sequence[TranscriptMessage], follows: str | None) -> list[TranscriptMessage]:
    """Return the messages as turns that are not empty, the user's first."""
    grouped = [
        group_message.message
        for group_message in group_messages([message for message in messages if has_content(message)])
    ]
    if grouped and grouped[0].role == "assistant" and follows in _USER_IS_NEXT:
        grouped.insert(0, TranscriptMessage(role="user", parts=(TextPart(content=CONTINUED),)))
    return [replace(message, parts=tuple(_join_texts(message.parts))) for message in grouped]


def has_content(message: TranscriptMessage) -> bool:
    """Return whether a message has anything that a provider takes as content."""
    return any(
        bool(part.content.strip()) if isinstance(part, TextPart) else not isinstance(part, ReasoningPart)
        for part in message.parts
    )


def _join_texts(parts: Sequence[MessagePart]) -> Iterator[MessagePart]:
    """Yield the parts; texts in a row become one, of several paragraphs, and blank ones are left out."""
    waiting: list[str] = []
    for part in parts:
        if isinstance(part, TextPart):
            waiting += [part.content] if part.content.strip() else []
            continue
        if waiting:
            yield TextPart(content="\n\n".join(waiting))
            waiting = []
        yield part
    if waiting:
        yield TextPart(content="\n\n".join(waiting))


def describe_call(call: ToolCallPart) -> str:
    """Return a call as a note that no model takes for a call of its own."""
    written = call.raw_arguments if call.arguments is None else quote_object(call.arguments)
    return f"[called the tool {call.name} with {written}]"


def describe_result(part: ToolResponsePart) -> list[MessagePart]:
    """Return a result as a note, with the images that it has."""
    texts = [item.content for item in part.content if isinstance(item, TextPart)]
    media = [
        TextPart(content=describe_call(item)) if isinstance(item, ToolCallPart) else item  # a result has no calls
        for item in part.content
        if not isinstance(item, TextPart | ToolResponsePart)
    ]
    word = "failed" if part.is_error else "result"
    named = f" of the tool {part.name}" if part.name else ""
    return [TextPart(content=f"[{word}{named}: {' '.join(texts)}]"), *media]


def describe_media(part: MessagePart) -> TextPart:
    """Return a note that replaces a part which can't be kept."""
    match part:
        case BlobPart():
            size = "" if part.data is None else f", {len(part.data):,} bytes"
            description = f"{part.mime_type or 'data'}{size}"
        case UriPart():
            description = f"link: {part.uri:.200}"
        case FilePart():
            description = f"file {part.file_id:.80} at {part.provider or 'a provider'}"
        case GenericPart():
            description = f"part of type {part.type:.60}"
        case _:
            description = f"part of type {part.kind}"
    return TextPart(content=f"[not carried over: {description}]")


def find_disorder(messages: Sequence[TranscriptMessage], follows: str | None = None) -> str | None:
    """Return what a strict provider would refuse in a conversation, in words; None if there is nothing."""
    used: set[str] = set()
    before: TranscriptMessage | None = None
    for number, message in enumerate(messages):
        where = f"message {number}"
        if message.role not in ("user", "assistant", "tool"):
            return f"{where} has the role {message.role}"
        if not has_content(message):
            return f"{where} is empty"
        if before is None and message.role != "user" and (message.role == "tool" or follows in _USER_IS_NEXT):
            return f"{where} is not the user's"
        if before is not None and message.role == before.role == "user":
            return f"{where} is the user's, as the one before it"
        asked = [call.id for call in before.tool_calls] if before is not None and before.role == "assistant" else []
        given = [part.id for part in message.tool_responses]
        if given != asked:
            return f"{where} has the results {given} after the calls {asked}"
        if (message.role == "tool") != bool(given) or (given and len(given) != len(message.parts)):
            return f"{where} has results and other content"
        if message.tool_calls and message.parts[-len(message.tool_calls) :] != tuple(message.tool_calls):
            return f"{where} says something after its calls"
        for call in message.tool_calls:
            if message.role != "assistant":
                return f"{where} has a call, and is not the model's"
            if call.id in used or not is_valid_id(call.id) or not is_valid_name(call.name):
                return f"{where} has the call {call.id!r:.60} of {call.name!r:.60}"
            used.add(call.id)
        before = message
    if before is not None and before.tool_calls:
        return "the last message has calls without results"
    return None
