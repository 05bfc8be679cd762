"""The conversation of a session: AG2's events, and the same as stored.

`messages` in the state has every event of the session, in their order. AG2's compaction may drop or
replace events of the history that the model gets. The state then has that history, too, as places
of these events.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Mapping, Sequence
from typing import Any

from ag2.events import (
    BaseEvent,
    BuiltinToolCallEvent,
    BuiltinToolResultEvent,
    HumanInputRequest,
    HumanMessage,
    ToolCallEvent,
    ToolCallsEvent,
    ToolResultEvent,
    is_conversational,
)
from ag2.events.task_events import TaskEvent

from holdfast.adapters.ag2.event_list import dump_events, load_events
from holdfast.adapters.ag2.events import CREATED, dump_event
from holdfast.adapters.base.digest import digest

_OF_PROVIDER = (BuiltinToolCallEvent, BuiltinToolResultEvent)
# Told by responses and results, too, or not told to the model. Some have ids that differ in every life, or stand in
# the order in which parallel calls have ended.
_NOT_IN_REQUESTS = (ToolCallsEvent, ToolCallEvent, ToolResultEvent, HumanInputRequest, HumanMessage, TaskEvent)


class EventLog:
    """The events of a conversation. `history` are those that AG2 works with.

    `events` are those of the state, if they are known.
    """

    def __init__(self, state: Mapping[str, Any], events: list[BaseEvent] | None = None) -> None:
        self.added: list[dict[str, Any]] = []  # what is to be stored after the state's
        if events is None:
            events = load_events(state.get("messages", ()))
        self._window: list[int] | None = state.get("window")
        self._since: int = state.get("since", 0)
        self._places = {id(event): place for place, event in enumerate(events)}
        self._events = events  # so that the ids stay theirs
        self._digests: dict[int, tuple[BaseEvent, bytes]] = {}
        self.history: list[BaseEvent] = [events[place] for place in self._window or ()] + events[self._since :]

    @property
    def window(self) -> dict[str, Any]:
        """What the state has beside the messages."""
        return {} if self._window is None else {"window": self._window, "since": self._since}

    def extend(self, history: Sequence[BaseEvent]) -> None:
        """Take the history as a turn has left it."""
        known, is_longer = len(self.history), self._starts_with_history(history)
        added = [event for event in (history[known:] if is_longer else history) if id(event) not in self._places]
        is_longer = is_longer and len(history) == known + len(added)
        self.added += dump_events(added, len(self._events))
        for event in added:
            self._places[id(event)] = len(self._events)
            self._events.append(event)
        if not is_longer:
            self._window, self._since = [self._places[id(event)] for event in history], len(self._events)
        self.history = list(history)
        self._digests = {}

    def place_of(self, event: BaseEvent) -> int | None:
        return self._places.get(id(event))

    def event_at(self, place: int) -> BaseEvent:
        return self._events[place]

    def digest(self, events: Sequence[BaseEvent]) -> str:
        """Return what identifies the messages of a request.

        Those before the turn are known by their places: the turn stands for the conversation.
        """
        known = len(self.history)
        is_whole = self._starts_with_history(events)
        whole = hashlib.sha256(b"all;" if is_whole else b"")
        for event in events[known:] if is_whole else events:
            place = self._places.get(id(event))
            if place is not None:
                whole.update(b"%d;" % place)
            elif not isinstance(event, _NOT_IN_REQUESTS) or isinstance(event, _OF_PROVIDER):
                whole.update(self._digest_of(event))
        return whole.hexdigest()

    def _starts_with_history(self, events: Sequence[BaseEvent]) -> bool:
        known = len(self.history)
        return len(events) >= known and all(map(operator.is_, self.history, events))

    def _digest_of(self, event: BaseEvent) -> bytes:
        found = self._digests.get(id(event))
        if found is None:
            plain = {name: value for name, value in dump_event(event).items() if name != CREATED}
            found = (event, digest(plain).encode() if is_conversational(event) else b"")
            self._digests[id(event)] = found
        return found[1]
