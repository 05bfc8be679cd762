"""A session of the framework as plain data, and back.

The conversation, which a history provider keeps in the session, is a list of its own in the state.
So a turn stores and converts its own messages only. A session that was extracted by hand has the
conversation within it.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_framework import AgentSession, Message

from holdfast.adapters.base.credentials import strip_state
from holdfast.errors import CorruptError

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
        if not isinstance(self.session.service_session_id, str | None):
            raise CorruptError("the service_session_id of the stored session is no text")
        self._stored: Sequence[Mapping[str, Any]] = ()
        if _PROVIDER in state:
            self._stored = stored
            self.session.state[state[_PROVIDER]][MESSAGES] = list(loaded)
        self.messages = list(_find_history(self.session)[1])

    def dump(self) -> SessionChange:
        """Return the session as plain data."""
        source, messages = _find_history(self.session)
        known = len(self._stored)
        is_kept = (
            len(messages) >= known
            and all(map(operator.is_, messages[:known], self.messages))
            and _have_properties(messages, self._stored)
        )
        added: list[Any] = [message.to_dict() for message in messages[known if is_kept else 0 :]]
        rest = AgentSession(session_id=self.session.session_id, service_session_id=self.session.service_session_id)
        rest.state = dict(self.session.state)
        if source is None:
            return SessionChange({_SESSION: dump_session(rest)}, {}, added)
        rest.state[source] = {name: value for name, value in rest.state[source].items() if name != MESSAGES}
        state = {_SESSION: dump_session(rest), _PROVIDER: source}
        if is_kept:
            return SessionChange(state, {MESSAGES: added}, added)
        return SessionChange({**state, MESSAGES: added}, {}, added)


def dump_session(session: AgentSession) -> dict[str, Any]:
    """Return a session as plain data, without the credentials in its state."""
    fields: dict[str, Any] = session.to_dict()
    return {**fields, "state": strip_state(fields.get("state") or {}, "state of the session", kept=(MESSAGES,))}


def load_messages(stored: Sequence[Mapping[str, Any]]) -> list[Message]:
    loaded = [Message.from_dict(dict(item)) for item in stored]
    check_messages(loaded)
    return loaded


def check_messages(messages: Sequence[Message]) -> None:
    """Raise if messages that the framework has loaded have parts that it can't use: it checks few of them."""
    for content in (content for message in messages for content in message.contents):
        texts = (content.call_id, content.name, None if isinstance(content.arguments, Mapping) else content.arguments)
        if not isinstance(content.type, str) or not all(isinstance(text, str | None) for text in texts):
            raise CorruptError(f"a part of the stored conversation is none of agent-framework: {content!r:.80}")


def stored_messages(state: Mapping[str, Any]) -> list[Any]:
    """Return the conversation of a state, as plain data."""
    if _PROVIDER in state:
        return list(state[MESSAGES])
    kept = (state.get(_SESSION) or {}).get("state") or {}
    return next((item[MESSAGES] for item in kept.values() if isinstance(item, Mapping) and item.get(MESSAGES)), [])


def keys_of(messages: Sequence[Message]) -> list[int]:
    """Return what tells messages from others within a turn.

    The framework copies messages, but not their contents.
    """
    return [id(message.contents[0]) if message.contents else id(message) for message in messages]


def _have_properties(messages: Sequence[Message], stored: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether messages have the properties that are stored. Providers mark messages in them."""
    known = [item.get("additional_properties", {}) for item in stored]
    return known == [message.additional_properties for message in messages[: len(stored)]]


def _find_history(session: AgentSession) -> tuple[str | None, list[Message]]:
    """Return the conversation that a history provider keeps in a session, and the provider's id."""
    return next(_histories(session), (None, []))


def _histories(session: AgentSession) -> Iterator[tuple[str, list[Message]]]:
    for source, kept in session.state.items():
        messages = kept.get(MESSAGES) if isinstance(kept, dict) else None
        if (
            isinstance(messages, list)
            and messages
            and all(issubclass(kind, Message) for kind in set(map(type, messages)))
        ):
            yield source, messages
