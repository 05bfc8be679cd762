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

    def __init__(self) -> None:
        self._stored: list[dict[str, Any]] = []
        self._messages: list[ChatMessage] = []
        self._spans: Spans | None = None  # None: all of them

    @classmethod
    def load(cls, state: Mapping[str, Any]) -> HaystackConversation:
        made = cls()
        made._stored = list(state.get("messages", []))
        made._messages = load_messages(made._stored)
        made._spans = state.get("context")
        return made

    def is_stored_as(self, state: Mapping[str, Any]) -> bool:
        return self._stored == state.get("messages", []) and self._spans == state.get("context")

    def dump(self) -> dict[str, Any]:
        return {"messages": list(self._stored), "context": self._spans}

    @property
    def history(self) -> list[ChatMessage]:
        """The messages that the next run begins with."""
        return list(self._messages) if self._spans is None else self.select(self._spans)

    def select(self, spans: Spans) -> list[ChatMessage]:
        return [one for first, end in spans for one in self._messages[first:end]]

    def extend(self, said: Sequence[ChatMessage]) -> Spans:
        """Add the messages of a run that are new, and return the spans of all of them."""
        known = {id(one): number for number, one in enumerate(self._messages)}
        new = [one for one in said if id(one) not in known]
        known |= {id(one): len(self._messages) + number for number, one in enumerate(new)}
        self._messages += new
        self._stored += dump_messages(new)
        spans: Spans = []
        for place in (known[id(one)] for one in said):
            if spans and spans[-1][1] == place:
                spans[-1][1] += 1
            else:
                spans.append([place, place + 1])
        self._spans = None if spans == [[0, len(self._messages)]] else spans
        return spans
