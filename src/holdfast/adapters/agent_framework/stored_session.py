"""A session of the framework as plain data, and back.

The conversation, which a history provider keeps in the session, is a list of its own in the state.
So a turn stores and converts its own messages only. A session that was extracted by hand has the
conversation within it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_framework import AgentSession, Message

MESSAGES = "messages"
_SESSION = "session"
_PROVIDER = "history"


class SessionChange(NamedTuple):
    """What a turn has made of a session, for `TurnEnd`; `messages` are those that it added, as plain data."""

    state: dict[str, Any]
    appended: dict[str, list[Any]]
    messages: list[Any]


class StoredSession:
    """The session of a turn. `messages` are those of the conversation before it."""

    def __init__(
        self,
        state: Mapping[str, Any],
        session_id: str,
        *,
        stored: Sequence[Mapping[str, Any]] = (),
        loaded: Sequence[Message] = (),
    ) -> None:
        """`loaded` are the messages that are `stored` in a list of their own."""
        found = state.get(_SESSION)
        self.session = AgentSession(session_id=session_id) if found is None else AgentSession.from_dict(dict(found))
        self._stored: Sequence[Mapping[str, Any]] = ()
        if _PROVIDER in state:
            self._stored = stored
            self.session.state[state[_PROVIDER]][MESSAGES] = list(loaded)
        self.messages = list(_find_history(self.session)[1])

    def dump(self) -> SessionChange:
        """Return the session as plain data."""
        source, messages = _find_history(self.session)
        known = len(self._stored)
        is_kept = len(messages) >= known and all(map(_is_same, messages, self.messages, self._stored))
        added: list[Any] = [message.to_dict() for message in messages[known if is_kept else 0 :]]
        rest = AgentSession(session_id=self.session.session_id, service_session_id=self.session.service_session_id)
        rest.state = dict(self.session.state)
        if source is None:
            return SessionChange({_SESSION: rest.to_dict()}, {}, added)
        rest.state[source] = {name: one for name, one in rest.state[source].items() if name != MESSAGES}
        state = {_SESSION: rest.to_dict(), _PROVIDER: source}
        if is_kept:
            return SessionChange(state, {MESSAGES: added}, added)
        return SessionChange({**state, MESSAGES: added}, {}, added)


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[Message]:
    return [Message.from_dict(dict(one)) for one in stored]


def stored_messages(state: Mapping[str, Any]) -> list[Any]:
    """Return the conversation of a state, as plain data."""
    if _PROVIDER in state:
        return list(state[MESSAGES])
    kept = (state.get(_SESSION) or {}).get("state") or {}
    return next((one[MESSAGES] for one in kept.values() if isinstance(one, Mapping) and one.get(MESSAGES)), [])


def key_of(message: Message) -> int:
    """Return what tells a message from others within a turn.

    The framework copies messages, but not their contents.
    """
    return id(message.contents[0]) if message.contents else id(message)


def _is_same(message: Message, loaded: Message, plain: Mapping[str, Any]) -> bool:
    """Return whether a message is the one that was loaded. Providers mark messages in their properties."""
    return message is loaded and plain.get("additional_properties", {}) == message.additional_properties


def _find_history(session: AgentSession) -> tuple[str | None, list[Message]]:
    """Return the conversation that a history provider keeps in a session, and the provider's id."""
    return next(_histories(session), (None, []))


def _histories(session: AgentSession) -> Iterator[tuple[str, list[Message]]]:
    for source, kept in session.state.items():
        messages = kept.get(MESSAGES) if isinstance(kept, dict) else None
        if isinstance(messages, list) and messages and all(isinstance(one, Message) for one in messages):
            yield source, messages
