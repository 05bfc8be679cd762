"""Models for the tests of the agent loop: scripts that answer by what the conversation holds."""

from __future__ import annotations

import json
from typing import Any


def calls(*wanted: tuple[str, str, dict[str, Any]]) -> dict[str, Any]:
    """A message of the model that asks for tools: (id, name, arguments) each."""
    made = [
        {"id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for id_, name, arguments in wanted
    ]
    return {"role": "assistant", "content": None, "tool_calls": made}


class Script:
    """Gives its replies in turn, and remembers what it was told."""

    def __init__(self, *replies: Any) -> None:
        self.replies = list(replies)
        self.told: list[list[dict[str, Any]]] = []
        self.tools: list[Any] = []

    def __call__(self, messages, tools):
        self.told.append(messages)
        self.tools = tools
        reply = self.replies.pop(0)
        if isinstance(reply, BaseException):
            raise reply
        return reply

    @property
    def last_answers(self) -> list[str]:
        """What the tools answered since the model spoke before."""
        return [message["content"] for message in self.told[-1] if message["role"] == "tool"]


def by_answers(*replies: Any):
    """A model that gives the nth reply when n tools have answered since the last prompt: so it goes
    on right after a crash."""

    def model(messages, tools):
        asked = max(index for index, message in enumerate(messages) if message["role"] == "user")
        answered = sum(message["role"] == "tool" for message in messages[asked:])
        return replies[answered]

    return model
