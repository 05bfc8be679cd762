"""Digests of requests that repeat a long conversation: each message is digested once in a turn.

The turn stands for the messages before it, so each of them is known by its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any


class MessageDigests:
    """The digests of one turn. `dump` returns a message as a text that is the same in every life.

    `key` returns what tells messages before the turn apart, also if the framework has copied them.
    """

    def __init__(self, dump: Callable[[Any], str], key: Callable[[Any], int] = id) -> None:
        self._dump = dump
        self._key = key
        self._places: dict[int, int] = {}
        self._digests: dict[int, tuple[Any, bytes]] = {}  # with the message, so that its id stays its own
        self._before: Sequence[Any] = ()  # likewise

    def know(self, messages: Sequence[Any]) -> None:
        """Let places stand for messages: those before the turn."""
        self._before = list(messages)
        self._places = {self._key(message): place for place, message in enumerate(self._before)}

    def digest(self, messages: Sequence[Any]) -> str:
        places = list(map(self._places.get, map(self._key, messages)))
        # Most requests begin with the conversation: then its length says which messages these are.
        known = list(self._places.values())
        start = len(known) if places[: len(known)] == known else 0
        whole = hashlib.sha256(f"first {start};".encode())
        for message, place in zip(messages[start:], places[start:], strict=True):
            whole.update(self._digest_of(message) if place is None else f"message {place};".encode())
        return whole.hexdigest()

    def _digest_of(self, message: Any) -> bytes:
        found = self._digests.get(id(message))
        if found is None:
            found = (message, hashlib.sha256(self._dump(message).encode("utf-8", "surrogatepass")).digest())
            self._digests[id(message)] = found
        return found[1]
