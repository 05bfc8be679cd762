"""A conversation as plain text, for a prompt: texts, calls of tools, and results."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from holdfast.model.conversation import ReasoningPart, TextPart, ToolCallPart, ToolResponsePart, TranscriptMessage
from holdfast.model.transcript_order import describe_call, describe_result


def write_text(messages: Iterable[TranscriptMessage]) -> str:
    """Return the messages as paragraphs; a model can't take a call in them for one of its own."""
    return "\n\n".join(_paragraphs(messages))


def _paragraphs(messages: Iterable[TranscriptMessage]) -> Iterator[str]:
    for message in messages:
        texts = [text for part in message.parts for text in _texts(part)]
        author = message.author or message.role
        if texts:
            yield f"{author}: {' '.join(texts)}" if message.role != "tool" else " ".join(texts)


def _texts(part: object) -> Iterator[str]:
    match part:
        case TextPart():
            yield part.content
        case ToolCallPart():
            yield describe_call(part)
        case ToolResponsePart():
            yield from (item.content for item in describe_result(part) if isinstance(item, TextPart))
        case ReasoningPart():
            pass
        case _:
            yield f"[{getattr(part, 'kind', 'part')}]"
