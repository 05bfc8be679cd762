"""Digests of requests that repeat a long conversation: each message is digested once in a turn.

The turn stands for the messages before it, so each of them is known by its place.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from itertools import groupby
from typing import Any


def _ids(messages: Sequence[Any]) -> list[int]:
    return list(map(id, messages))


class MessageDigests:
    """The digests of one turn. `dump` returns a message as a text that is the same in every life.

    `keys` returns what tells messages before the turn apart, also if the framework has copied them.
    `is_unordered` says of which messages those in a row have any order: agents that work in parallel
    may be heard in another order in the next life.
    """

    def __init__(
        self,
        dump: Callable[[Any], str],
        keys: Callable[[Sequence[Any]], list[int]] = _ids,
        is_unordered: Callable[[Any], bool] = lambda _: False,
    ) -> None:
        self._dump = dump
        self._keys_of = keys
        self._is_unordered = is_unordered
        self._keys: list[int] = []  # of the messages before the turn, in their order
        self._places: dict[int, int] = {}
        self._digests: dict[int, tuple[Any, bytes]] = {}  # with the message, so that its id stays its own
        self._before: Sequence[Any] = ()  # likewise

    def set_history(self, messages: Sequence[Any]) -> None:
        """Let places stand for messages: those before the turn."""
        self._before = list(messages)
        self._keys = self._keys_of(self._before)
        self._places = {key: place for place, key in enumerate(self._keys)}

    def digest(self, messages: Sequence[Any]) -> str:
        keys = self._keys_of(messages)
        # Most requests begin with the conversation: then its length says which messages these are.
        start = len(self._keys) if keys[: len(self._keys)] == self._keys else 0
        whole = hashlib.sha256(f"first {start};".encode())
        digests = list(map(self._digest_in_request, messages[start:], keys[start:]))
        for is_unordered, group in groupby(range(len(digests)), lambda at: self._is_unordered(messages[start + at])):
            of_group = [digests[at] for at in group]
            whole.update(b"".join(sorted(of_group) if is_unordered else of_group))
        return whole.hexdigest()

    def _digest_in_request(self, message: Any, key: int) -> bytes:
        place = self._places.get(key)
        return self._digest_of(message) if place is None else f"message {place};".encode()

    def _digest_of(self, message: Any) -> bytes:
        found = self._digests.get(id(message))
        if found is None:
            found = (message, hashlib.sha256(self._dump(message).encode("utf-8", "surrogatepass")).digest())
            self._digests[id(message)] = found
        return found[1]
