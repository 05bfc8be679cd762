"""A conversation as a target can keep it: ordered, with notes for what the target can't hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.model.conversation import (
    BlobPart,
    CompactionPart,
    FilePart,
    GenericPart,
    MessagePart,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolResponsePart,
    Transcript,
    TranscriptMessage,
    UriPart,
)
from holdfast.model.conversion_target import ConversionTarget
from holdfast.model.loss import Loss
from holdfast.model.transcript_facets import ERROR, is_image_link
from holdfast.model.transcript_order import find_disorder, order_messages

RAW = "raw_arguments"
"""The argument that quotes what a model wrote instead of a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTranscript:
    """A conversation that fits a target, and the instructions that were taken out of it."""

    transcript: Transcript
    instructions: Sequence[str]
    losses: Sequence[Loss]


def fit_transcript(transcript: Transcript, target: ConversionTarget) -> FittedTranscript:
    """Return the conversation in a form that the target keeps and every provider takes.

    Calls have results, and ids and names that every provider takes, already. The source's
    instructions are taken out: the target's win.
    """
    instructions = [one.text for one in transcript if one.role == "system" and one.text]
    plain = [_fit_message(one, target) for one in transcript if one.role != "system"]
    ordered, losses = order_messages(plain)
    problem = find_disorder(ordered)
    assert problem is None, problem
    return FittedTranscript(
        transcript=Transcript(messages=tuple(ordered), tools=transcript.tools),
        instructions=tuple(instructions),
        losses=tuple(losses),
    )


def _fit_message(message: TranscriptMessage, target: ConversionTarget) -> TranscriptMessage:
    parts = tuple(fitted for part in message.parts for fitted in _fit_part(part, message.role, target))
    author = None if "authors" in target.loses or message.role != "assistant" else message.author
    return TranscriptMessage(role=message.role, parts=parts, author=author)


def _fit_part(part: MessagePart, role: str, target: ConversionTarget) -> Iterator[MessagePart]:
    match part:
        case ReasoningPart():
            if part.content and "reasoning" not in target.loses:
                yield ReasoningPart(content=part.content)
        case ToolCallPart(arguments=None):
            yield replace(part, arguments={RAW: part.raw_arguments or ""}, raw_arguments=None)
        case ToolCallPart():
            yield part
        case ToolResponsePart():
            yield _fit_response(part, target)
        case BlobPart() | UriPart() if role == "assistant":
            yield _note(part)
        case _:
            yield _fit_media(part, target, "images", "files", "image_links")


def _fit_response(part: ToolResponsePart, target: ConversionTarget) -> ToolResponsePart:
    inner = [_fit_media(one, target, "result_images", "result_files", "result_images") for one in part.content]
    texts = [one.content for one in inner if isinstance(one, TextPart)]
    media = [one for one in inner if not isinstance(one, TextPart)]
    text = "\n".join(texts)
    if part.is_error and "error_flags" in target.loses and not text.startswith(ERROR):
        text = f"{ERROR}{text}"
    content: list[MessagePart] = [TextPart(content=text)] if text or not media else []
    return replace(part, content=(*content, *media))


def _fit_media(part: MessagePart, target: ConversionTarget, image: str, file: str, link: str) -> MessagePart:
    """Return a part that the target can hold: itself, or a note."""
    match part:
        case BlobPart(data=bytes()):
            kind = image if part.mime_type.startswith("image/") else file
            return part if kind not in target.loses else _note(part)
        case UriPart():
            kind = link if is_image_link(part) else file
            return part if kind not in target.loses else _note(part)
        case CompactionPart():
            return TextPart(content=part.content)
        case TextPart():
            return part
        case _:
            return _note(part)


def _note(part: MessagePart) -> TextPart:
    match part:
        case BlobPart():
            size = "" if part.data is None else f", {len(part.data):,} bytes"
            what = f"{part.mime_type or 'data'}{size}"
        case UriPart():
            what = f"link: {part.uri:.200}"
        case FilePart():
            what = f"file {part.file_id:.80} at {part.provider or 'a provider'}"
        case GenericPart():
            what = f"part of type {part.type:.60}"
        case _:
            what = f"part of type {part.kind}"
    return TextPart(content=f"[not carried over: {what}]")
