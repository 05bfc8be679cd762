"""A session of the framework as plain data, and back; each message is converted once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from agent_framework import AgentSession, Message

_MESSAGES = "messages"


class StoredSession:
    """The session of a turn. `places` has where each message that was loaded is in the conversation.

    The framework copies messages, but not their contents: the id of the first one tells a message.
    """

    def __init__(self, state: Mapping[str, Any], session_id: str) -> None:
        found = state.get("session")
        self.session = AgentSession(session_id=session_id) if found is None else AgentSession.from_dict(dict(found))
        self.places: dict[int, int] = {}
        self._known: dict[int, tuple[Any, Mapping[str, Any]]] = {}  # with the content, so that its id stays its own
        self.remember(state)

    def remember(self, state: Mapping[str, Any]) -> None:
        """Take the messages of the session as those that a state has."""
        for source, messages in _histories(self.session):
            dumped = state["session"]["state"][source][_MESSAGES]
            for place, (message, plain) in enumerate(zip(messages, dumped, strict=True)):
                if message.contents:
                    self.places[key_of(message)] = place
                    self._known[key_of(message)] = (message.contents[0], plain)

    def dump(self) -> dict[str, Any]:
        """Return the state that a checkpoint has of the session."""
        histories = dict(_histories(self.session))
        rest = AgentSession(session_id=self.session.session_id, service_session_id=self.session.service_session_id)
        rest.state = {
            source: {**kept, _MESSAGES: []} if source in histories else kept
            for source, kept in self.session.state.items()
        }
        plain = rest.to_dict()
        for source, messages in histories.items():
            plain["state"][source][_MESSAGES] = [self._dump_message(message) for message in messages]
        return {"session": plain}

    def _dump_message(self, message: Message) -> Mapping[str, Any]:
        found = self._known.get(key_of(message))
        if found is not None and found[1].get("additional_properties", {}) == message.additional_properties:
            return found[1]
        plain: dict[str, Any] = message.to_dict()
        return plain


def key_of(message: Message) -> int:
    """Return what tells a message from others within a turn, whether it was copied or not."""
    return id(message.contents[0]) if message.contents else 0


def _histories(session: AgentSession) -> Iterator[tuple[str, list[Message]]]:
    """Yield the conversations that history providers keep in a session, by the ids of the providers."""
    for source, kept in session.state.items():
        messages = kept.get(_MESSAGES) if isinstance(kept, dict) else None
        if isinstance(messages, list) and messages and all(isinstance(one, Message) for one in messages):
            yield source, messages
