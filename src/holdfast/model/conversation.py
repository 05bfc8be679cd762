"""A conversation in neutral form: messages with typed parts, whatever framework it comes from.

A transcript is a view. Frameworks store their own messages; `to_transcript` of each adapter
converts them when a person or another framework reads them. Beside the messages stand the facts
that are no message: the tools, the open questions to people, and the position in the framework.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar

ROLES = ("system", "user", "assistant", "tool")
_TEXTS = frozenset(  # fields of parts
    (
        *("content", "id", "name", "raw_arguments", "provider", "signature", "encrypted"),
        *("mime_type", "sha256", "uri", "file_id", "type"),
    )
)


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePart:
    """A part of a message. `kind` names its class in JSON."""

    kind: ClassVar[str] = "generic"

    def to_json(self) -> dict[str, Any]:
        """Return the part as JSON values; fields that are empty are left out."""
        values = {item.name: _simplify_value(getattr(self, item.name)) for item in fields(self)}
        return {"type": self.kind, **{name: value for name, value in values.items() if value not in (None, (), {}, [])}}


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPart(MessagePart):
    kind: ClassVar[str] = "text"

    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningPart(MessagePart):
    """The model's reasoning; `signature` and `encrypted` are valid for its provider only."""

    kind: ClassVar[str] = "reasoning"

    content: str = ""
    provider: str | None = None
    signature: str | None = None
    encrypted: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCallPart(MessagePart):
    """A call that the model asked for.

    `arguments` is None if the model did not write an object; `raw_arguments` is what it wrote.
    """

    kind: ClassVar[str] = "tool_call"

    id: str
    name: str
    arguments: Mapping[str, Any] | None = field(default_factory=dict)
    raw_arguments: str | None = None
    hosted: bool = False  # carried out by the model's provider

    def to_json(self) -> dict[str, Any]:
        # Not `super()`: a dataclass with slots is another class than the one this was defined in.
        return {**MessagePart.to_json(self), "arguments": _simplify_value(self.arguments)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResponsePart(MessagePart):
    """The answer to a call."""

    kind: ClassVar[str] = "tool_call_response"

    id: str
    name: str = ""
    content: Sequence[MessagePart] = ()
    is_error: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobPart(MessagePart):
    """Data of a media type: an image, a sound, a file. `sha256` names data that is stored elsewhere."""

    kind: ClassVar[str] = "blob"

    mime_type: str
    data: bytes | None = None
    sha256: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UriPart(MessagePart):
    kind: ClassVar[str] = "uri"

    uri: str
    mime_type: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePart(MessagePart):
    """A file that was uploaded to a provider."""

    kind: ClassVar[str] = "file"

    file_id: str
    provider: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPart(MessagePart):
    """A summary that stands for earlier messages."""

    kind: ClassVar[str] = "compaction"

    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GenericPart(MessagePart):
    """A part of another type, with its fields as they are."""

    type: str
    values: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**_simplify_value(self.values), "type": self.type}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptMessage:
    """One message. `ext` has the fields of the framework that have no place elsewhere."""

    role: str
    parts: Sequence[MessagePart] = ()
    id: str | None = None
    author: str | None = None  # the agent that speaks, if there are several
    created_at: str | None = None
    finish_reason: str | None = None
    model: str | None = None
    provider: str | None = None
    usage: Mapping[str, Any] | None = None
    ext: Mapping[str, Any] = field(default_factory=dict)

    @property
    def text(self) -> str:
        """The text parts, joined."""
        return "".join(part.content for part in self.parts if isinstance(part, TextPart))

    @property
    def tool_calls(self) -> list[ToolCallPart]:
        return [part for part in self.parts if isinstance(part, ToolCallPart)]

    @property
    def tool_responses(self) -> list[ToolResponsePart]:
        return [part for part in self.parts if isinstance(part, ToolResponsePart)]

    def to_json(self) -> dict[str, Any]:
        kept = {item.name: _simplify_value(getattr(self, item.name)) for item in fields(self)}
        return {name: value for name, value in kept.items() if name in ("role", "parts") or value not in (None, {}, [])}


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptInterrupt:
    """A question to a person that is open, or was answered."""

    id: str
    kind: str  # "approval" or "input"
    tool_call_id: str | None = None
    payload: Any = None
    answer: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TranscriptCursor:
    """The position in the framework: its name, and the agent, node or task that is next.

    `pending` has the nodes or tasks of a graph that wait, if the messages don't tell the position.
    """

    framework: str
    position: str | None = None
    is_finished: bool = True  # False: a turn was cut off
    pending: Sequence[str] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Transcript:
    """A conversation, with the facts beside it that are no message.

    `state` has the values of the framework's state that are not the conversation, as they are
    stored. They are no part of `to_json`.
    """

    messages: Sequence[TranscriptMessage] = ()
    tools: Sequence[str] = ()
    interrupts: Sequence[TranscriptInterrupt] = ()
    cursor: TranscriptCursor | None = None
    state: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.messages)

    def __iter__(self) -> Iterator[TranscriptMessage]:
        return iter(self.messages)

    @property
    def open_calls(self) -> list[ToolCallPart]:
        """The calls without an answer, in order."""
        answered = {part.id for message in self.messages for part in message.tool_responses}
        return [call for message in self.messages for call in message.tool_calls if call.id not in answered]

    def to_json(self) -> dict[str, Any]:
        return {
            "messages": [message.to_json() for message in self.messages],
            "tools": list(self.tools),
            "interrupts": [_fields_of(interrupt) for interrupt in self.interrupts],
            "cursor": None if self.cursor is None else _fields_of(self.cursor),
        }


def with_texts(message: TranscriptMessage) -> TranscriptMessage:
    """Return the message with texts where texts belong: a state from elsewhere may have anything there."""
    author = None if message.author is None else _make_text(message.author)
    return replace(message, author=author, parts=tuple(map(_part_with_texts, message.parts)))


def _part_with_texts(part: MessagePart) -> MessagePart:
    if isinstance(part, ToolResponsePart):
        content = tuple(map(_part_with_texts, part.content))
        return replace(part, id=_make_text(part.id), name=_make_text(part.name), content=content)
    given = {item.name: getattr(part, item.name) for item in fields(part) if item.name in _TEXTS}
    wrong = {name: _make_text(value) for name, value in given.items() if not isinstance(value, str | None)}
    return replace(part, **wrong) if wrong else part


def _make_text(value: Any) -> str:
    try:
        return value if isinstance(value, str) else str(value)
    except (ValueError, RecursionError):  # a number with thousands of digits
        return f"({type(value).__name__})"


def text_parts(text: Any) -> tuple[MessagePart, ...]:
    """Return a text as the parts of a message: none if it is empty."""
    return (TextPart(content=text),) if isinstance(text, str) and text else ()


def _fields_of(value: Any) -> dict[str, Any]:
    return {item.name: _simplify_value(getattr(value, item.name)) for item in fields(value)}


def _simplify_value(value: Any) -> Any:
    if isinstance(value, MessagePart | TranscriptMessage):
        return value.to_json()
    if isinstance(value, Mapping):
        return {str(key): _simplify_value(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_simplify_value(item) for item in value]
    return value
