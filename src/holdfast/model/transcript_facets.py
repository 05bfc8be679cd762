"""The facets of a conversation: what may be lost, each by itself, to compare two conversations.

Texts are compared by their lines, so that it makes no difference whether two texts are two parts or
two paragraphs of one. Blank lines are left out.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

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
from holdfast.model.loss import MEASURED
from holdfast.model.transcript import quote_object, write_object
from holdfast.model.transcript_order import group_messages

ERROR = "Error: "
"""The beginning of a result that is an error, where the target can't mark it as one."""

_USER = ("user", "human")  # names that say no more than the role

TEXT_WITH_CALLS = "text_with_calls"
"""The kind of texts beside calls. Whether a text is beside calls may change: it is compared as any text."""


# Fields of facts about a message, or a part of it, that no model reads.
_ABOUT = re.compile(
    r"id|ids|.*[_-]ids?|.*Id|uuid|.*Uuid|.*_at|ts|time|timestamp|.*_time|usage.*|.*_usage|.*tokens|model|model_name|"
    r"provider|provider_.*|finish_reason|stop_reason|stop_sequence|logprobs|cache_control|service_tier|"
    r"response_metadata|system_fingerprint|invocation_.*|node_info|branch|phase|caller|index|index_.*|identifier|"
    r"example|ext|dynamic_ref|.*signature|.*Signature|encrypted.*|status|type"
)


def is_about(name: Any) -> bool:
    """Return whether a field has facts about a message that no model reads: an id, a time, a count."""
    return _ABOUT.fullmatch(str(name)) is not None


OTHER_FIELDS = "other_fields"
"""The kind of a field of a message that a model may read."""


class FacetItem(NamedTuple):
    """A value of a facet, where the conversation has it, and the kind of loss if it is missing."""

    value: Any
    path: str
    kind: str = ""  # if it is not the facet's own


def list_facets(transcript: Transcript) -> dict[str, list[FacetItem]]:
    """Return the values of each kind of `MEASURED`, in the order of the conversation.

    Results are in the order of their calls, each call's first one; of results without a call, there
    is only what a note about them may have: images and files.
    """
    found: dict[str, list[FacetItem]] = {kind: [] for kind in MEASURED}
    calls: dict[str, None] = {}
    results: dict[str, tuple[ToolResponsePart, str]] = {}
    model_messages = 0  # messages of the model
    for number, message in enumerate(transcript):
        for name, value in _data_of(message):
            own = "" if is_about(name) else OTHER_FIELDS
            found["message_data"].append(FacetItem([name, _text(value)], f"messages.{number}.{name}", own))
        if message.role == "user" and message.parts and message.author not in (None, "", *_USER):
            found["user_names"].append(FacetItem(message.author, f"messages.{number}"))
        if len(message.tool_calls) > 1:
            found["parallel_calls"].append(FacetItem(len(message.tool_calls), f"messages.{number}"))
    for grouped in group_messages(transcript.messages):
        message = grouped.message
        has_calls = message.role == "assistant" and bool(message.tool_calls)
        if message.role == "assistant":
            model_messages += 1
            if message.author is not None and grouped.paths:
                found["authors"].append(FacetItem([model_messages, message.author], f"messages.{grouped.paths[0][0]}"))
        for part, (number, place) in zip(message.parts, grouped.paths, strict=True):
            path = f"messages.{number}.parts.{place}"
            if isinstance(part, ToolResponsePart):
                results.setdefault(part.id, (part, path))
                stray = () if part.id in calls else part.content
                for kind, value in [pair for item in stray for pair in _media(item, "images", "files", "image_links")]:
                    found[kind].append(FacetItem(value, path))
                continue
            if isinstance(part, ToolCallPart):
                calls[part.id] = None
            for kind, value in _values(message, part):
                own = TEXT_WITH_CALLS if kind == "text" and has_calls else ""
                found[kind].append(FacetItem(value, path, own))
    for part, path in [results[id_] for id_ in calls if id_ in results]:
        for kind, value in _result_values(part):
            found[kind].append(FacetItem(value, path))
    return found


def _data_of(message: TranscriptMessage) -> Iterator[tuple[str, Any]]:
    for name in ("id", "created_at", "finish_reason", "model", "provider", "usage"):
        value = getattr(message, name)
        if value:
            yield name, value
    yield from message.ext.items()


def _values(message: TranscriptMessage, part: MessagePart) -> Iterator[tuple[str, Any]]:
    match part:
        case TextPart():
            role = "user" if message.role == "tool" else message.role  # in Anthropic's shape, beside results
            for line in _lines(part.content):
                yield "instructions" if message.role == "system" else "text", [role, line]
        case ReasoningPart():
            for line in _lines(part.content):
                yield "reasoning", line
            for secret in (part.signature, part.encrypted):
                if secret:
                    yield "reasoning_signatures", secret
        case ToolCallPart():
            yield "tool_names", part.name
            written = write_object(part.arguments)
            yield ("raw_arguments", quote_arguments(part)) if written is None else ("arguments", written)
        case _ if message.role == "assistant":
            for kind, value in _media(part, "model_images", "model_images", "model_images"):
                if kind not in ("media_types", "link_types"):  # it is lost as a whole
                    yield kind, value
        case _:
            yield from _media(part, "images", "files", "image_links")


def _result_values(part: ToolResponsePart) -> Iterator[tuple[str, Any]]:
    for line in _lines("\n".join(item.content for item in part.content if isinstance(item, TextPart))):
        yield "results", line.removeprefix(ERROR)
    if part.is_error:
        yield "error_flags", part.id
    for inner in part.content:
        yield from _media(inner, "result_images", "result_files", "result_images")


def _media(part: MessagePart, image: str, file: str, link: str) -> Iterator[tuple[str, Any]]:
    match part:
        case BlobPart():
            yield image if part.mime_type.startswith("image/") else file, digest_of(part)
            yield "media_types", [digest_of(part), part.mime_type]
        case UriPart():
            yield link if is_image_link(part) else file, part.uri
            if part.mime_type:
                yield "link_types", [part.uri, part.mime_type]
        case FilePart():
            yield "provider_files", part.file_id
        case CompactionPart():
            yield "summaries", part.content
        case GenericPart():
            yield "other_parts", _text(part.to_json())
        case _:
            pass


def quote_arguments(call: ToolCallPart) -> str:
    """Return what a model wrote as arguments, if it is no JSON object."""
    return call.raw_arguments or "" if call.arguments is None else quote_object(call.arguments)


def digest_of(part: BlobPart) -> str:
    return part.sha256 or hashlib.sha256(part.data or b"").hexdigest()


def is_image_link(part: UriPart) -> bool:
    """Return whether a link leads to an image, as far as its media type tells."""
    return part.mime_type is None or part.mime_type.startswith("image/")


def _lines(text: str) -> Sequence[str]:
    return [line for line in text.splitlines() if line.strip()]


def _text(value: Any) -> str:
    """Return a value as text that is equal for equal values, whatever the order of keys."""
    try:
        return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):  # keys that are no texts
        return repr(value)
