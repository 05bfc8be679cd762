"""The events of a stored list, each made once while the list only grows."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

from holdfast.adapters.ag2.event_list import load_events
from holdfast.adapters.base.loaded_list import LoadedList, fingerprint
from holdfast.adapters.base.state_copy import copy_value
from holdfast.codec.codec import Codec


class LoadedEvents(LoadedList):
    """The events that one resumable agent keeps.

    An element may refer to those before it. So if one event was changed, all are made again.
    """

    def __init__(self) -> None:
        super().__init__(load_events)
        self._stored: list[Any] = []
        self._events: list[Any] = []
        self._fingerprints: list[bytes | None] = []

    def take(self, stored: Sequence[Any], codec: Codec) -> list[Any]:
        known = len(self._stored)
        is_known = known <= len(stored) and all(map(operator.is_, self._stored, stored))
        if not is_known or None in self._fingerprints or [*map(fingerprint, self._events)] != self._fingerprints:
            known, self._events, self._fingerprints = 0, [], []
        self._events = load_events(copy_value(list(stored[known:]), codec), self._events)
        self._fingerprints += map(fingerprint, self._events[len(self._fingerprints) :])
        self._stored = list(stored)
        return list(self._events)
