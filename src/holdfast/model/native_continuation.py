"""The continuation of an earlier state of the target: what it has already, under its own names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from holdfast.model.conversation import MessagePart, ToolCallPart, ToolResponsePart, TranscriptMessage
from holdfast.model.provider_names import valid_name
from holdfast.model.transcript_moves import find_open, unique_ids


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeContinuation:
    """What is before the messages that are converted, in the earlier state.

    `lead` is the message with the calls whose results come first, if the state ends with calls.
    `open_ids` has the state's own ids of those of them that it has no results for. `names` has its
    names of tools and agents by those that every provider takes. `follows` is the role of its last
    message.
    """

    lead: Sequence[TranscriptMessage] = ()
    open_ids: Mapping[str, str] = field(default_factory=dict)
    names: Mapping[str, str] = field(default_factory=dict)
    follows: str | None = None

    def restore(self, messages: Sequence[TranscriptMessage]) -> list[TranscriptMessage]:
        """Return the messages without what the state has, under the state's own ids and names."""
        skip = 0 if not self.lead else next(at for at, message in enumerate(messages) if message.role == "tool")
        known = {call.id for message in self.lead for call in message.tool_calls} - self.open_ids.keys()
        restored = [self._restore_message(message, known) for message in messages[skip:]]
        return [message for message in restored if message.parts]

    def _restore_message(self, message: TranscriptMessage, known: set[str]) -> TranscriptMessage:
        parts = (self._restore_part(part) for part in message.parts if not _is_result_of(part, known))
        author = message.author
        return replace(message, parts=tuple(parts), author=None if author is None else self.names.get(author, author))

    def _restore_part(self, part: MessagePart) -> MessagePart:
        if isinstance(part, ToolCallPart | ToolResponsePart):
            id_, name = self.open_ids.get(part.id, part.id), self.names.get(part.name, part.name)
            return replace(part, id=id_, name=name)
        return part


def _is_result_of(part: MessagePart, ids: set[str]) -> bool:
    return isinstance(part, ToolResponsePart) and part.id in ids


def find_own_names(messages: Sequence[TranscriptMessage]) -> dict[str, str]:
    """Return the names of tools and agents that are replaced in a conversion, by what replaces them."""
    named = {call.name for message in messages for call in message.tool_calls}
    named |= {message.author for message in messages if message.author is not None}
    return {made: name for name in sorted(named) if (made := valid_name(name)) != name}


def find_open_ids(messages: Sequence[TranscriptMessage]) -> dict[str, str] | None:
    """Return the ids of the calls without results, by their unique ones.

    None if a call is open that is not in the model's last message: no result can follow it.
    """
    unique, _ = unique_ids(messages)
    waiting = {call.id for call in find_open(unique)}
    own = {
        new.id: old.id
        for before, after in zip(messages, unique, strict=True)
        for old, new in zip(before.tool_calls, after.tool_calls, strict=True)
    }
    last = next((message for message in reversed(unique) if message.role == "assistant"), None)
    is_last = last is not None and waiting <= {call.id for call in last.tool_calls}
    return {id_: own[id_] for id_ in own if id_ in waiting} if is_last or not waiting else None
