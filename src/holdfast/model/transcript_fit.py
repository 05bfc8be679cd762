"""A conversation as a target can keep it: ordered, with notes for what the target can't hold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from holdfast.model.conversation import (
    BlobPart,
    CompactionPart,
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
from holdfast.model.transcript import write_object
from holdfast.model.transcript_facets import ERROR, is_image_link, quote_arguments
from holdfast.model.transcript_order import describe_media, find_disorder, order_messages

RAW = "raw_arguments"
"""The argument that quotes what a model wrote instead of a JSON object."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedTranscript:
    """A conversation that fits a target, and the instructions that were taken out of it."""

    transcript: Transcript
    instructions: Sequence[str]
    losses: Sequence[Loss]


def fit_transcript(transcript: Transcript, target: ConversionTarget, follows: str | None = None) -> FittedTranscript:
    """Return the conversation in a form that the target keeps and every provider takes.

    Calls have results, and ids and names that every provider takes, already. The source's
    instructions are taken out: the target's win. `follows` is the role of the message that is
    before the conversation, if there is one.
    """
    instructions = [message.text for message in transcript if message.role == "system" and message.text]
    plain = [_fit_message(message, target) for message in transcript if message.role != "system"]
    ordered, losses = order_messages(plain, follows)
    problem = find_disorder(ordered, follows)
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
            if part.content and role == "assistant" and "reasoning" not in target.loses:
                yield ReasoningPart(content=part.content)
        case ToolCallPart() if write_object(part.arguments) is None:
            yield replace(part, arguments={RAW: quote_arguments(part)}, raw_arguments=None)
        case ToolCallPart():
            yield part
        case ToolResponsePart():
            yield _fit_response(part, target)
        case BlobPart() | UriPart() if role == "assistant":
            yield describe_media(part)
        case _:
            yield _fit_media(part, target, "images", "files", "image_links")


def _fit_response(part: ToolResponsePart, target: ConversionTarget) -> ToolResponsePart:
    inner = [_fit_media(item, target, "result_images", "result_files", "result_images") for item in part.content]
    texts = [item.content for item in inner if isinstance(item, TextPart)]
    media = [item for item in inner if not isinstance(item, TextPart)]
    text = "\n".join(texts)
    if part.is_error and "error_flags" in target.loses and not text.startswith(ERROR):
        text = f"{ERROR}{text}"
    content: list[MessagePart] = [TextPart(content=text)] if text or not media else []
    return replace(part, content=(*content, *media))


def _fit_media(part: MessagePart, target: ConversionTarget, image: str, file: str, link: str) -> MessagePart:
    """Return a part that the target can hold: itself, or a note."""
    match part:
        case BlobPart(data=bytes() as data) if data:
            kind = image if part.mime_type.startswith("image/") else file
            return part if kind not in target.loses else describe_media(part)
        case UriPart():
            typed = replace(part, mime_type=part.mime_type or None)
            kind = link if is_image_link(typed) else file
            return typed if kind not in target.loses else describe_media(typed)
        case CompactionPart():
            return TextPart(content=part.content)
        case TextPart():
            return part
        case _:
            return describe_media(part)
