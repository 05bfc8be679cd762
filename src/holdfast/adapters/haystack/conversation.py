"""The conversation of an agent: all messages that were said, and which of them the model reads next.

A hook may shorten what the model reads. The messages themselves are never removed from the list, so
each is stored once, and the outputs of earlier runs stay as they were.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from haystack.dataclasses import ChatMessage

from holdfast.adapters.haystack.values import dump_messages, load_messages

Spans = list[list[int]]


class HaystackConversation:
    """Messages, and the spans of them that the next run begins with."""

    def __init__(self, messages: Sequence[ChatMessage], spans: Spans | None = None) -> None:
        self.added: list[dict[str, Any]] = []  # what is to be stored after the messages that were known at first
        self.spans = spans  # None: all of them
        self._messages = list(messages)

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> HaystackConversation:
        return cls(load_messages(state.get("messages", [])), state.get("context"))

    @property
    def history(self) -> list[ChatMessage]:
        """The messages that the next run begins with."""
        return list(self._messages) if self.spans is None else self.select(self.spans)

    def select(self, spans: Spans) -> list[ChatMessage]:
        return [message for first, end in spans for message in self._messages[first:end]]

    def extend(self, messages: Sequence[ChatMessage]) -> Spans:
        """Add the messages of a run that are new, and return the spans of all of them."""
        known = {id(item): number for number, item in enumerate(self._messages)}
        new = [item for item in messages if id(item) not in known]
        known |= {id(item): len(self._messages) + number for number, item in enumerate(new)}
        self._messages += new
        self.added += dump_messages(new)
        spans: Spans = []
        for place in (known[id(item)] for item in messages):
            if spans and spans[-1][1] == place:
                spans[-1][1] += 1
            else:
                spans.append([place, place + 1])
        self.spans = None if spans == [[0, len(self._messages)]] else spans
        return spans
