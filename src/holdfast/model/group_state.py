"""The state of a group that consumes a topic, and its transitions. Pure: no clock, no store.

A group has a cursor: everything up to it was handed out. What was handed out and is not settled
has an entry: *open* (`holder` is None), or *in flight* with a holder. A settled message has none. A
claim gives a message a new token, and only that token settles it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import NamedTuple

from holdfast.model.lease import Process
from holdfast.model.message import MAX_ATTEMPTS

MAX_ENTRIES = 256
FIRST_BACKOFF_US, BACKOFF_FACTOR, LONGEST_BACKOFF_US = 200_000, 3, 60_000_000
MAX_REASONS = 10
LONGEST_REASON = 500


class Holder(NamedTuple):
    """Who has a message in flight: under which token, in which session, or (fence 0) until when.

    A message that a session has is lost with the session's lease, whose token is `fence`.
    """

    token: int
    tree: bytes
    session: str
    fence: int
    until_us: int
    process: Process


class GroupEntry(NamedTuple):
    """A message that was handed out and is not settled; `attempts` counts those that failed."""

    position: int
    id: bytes
    key: str | None
    at_us: int  # when it was published
    attempts: int = 0
    not_before_us: int = 0
    holder: Holder | None = None
    reasons: tuple[str, ...] = ()


class DeadEntry(NamedTuple):
    """A message that is given up, and why."""

    id: bytes
    attempts: int
    reasons: tuple[str, ...]


class GroupState(NamedTuple):
    """A group: cursor, last token, entries by position, and facts for people."""

    cursor: int
    token: int = 0
    entries: tuple[GroupEntry, ...] = ()
    contract: str | None = None
    seen_us: int = 0
    began_us: int = 0
    dead: int = 0
    has_imports: bool = False  # rows beside imported messages say whether the group has settled them elsewhere

    @property
    def has_room(self) -> bool:
        return len(self.entries) < MAX_ENTRIES

    @property
    def first_unsettled(self) -> int:
        """The lowest position that may not be settled."""
        return self.entries[0].position if self.entries else self.cursor + 1

    def is_settled(self, position: int, id_: bytes) -> bool:
        """Return whether a message was handed out, and needs no other delivery."""
        return position <= self.cursor and all(entry.id != id_ for entry in self.entries)

    def read(self, found: Iterable[GroupEntry], cursor: int) -> GroupState:
        """Return the state after messages behind the cursor became known, up to a new cursor."""
        return self._replace(entries=(*self.entries, *found), cursor=cursor)

    def claimable(self, now_us: int, passed_over: Collection[bytes] = ()) -> list[GroupEntry]:
        """Return the open messages that may be handed out now, at most one of each key, the first of it."""
        seen: set[str] = set()
        found = []
        for entry in self.entries:
            is_first = entry.key is None or entry.key not in seen
            is_due = entry.holder is None and entry.not_before_us <= now_us
            if is_first and is_due and entry.id not in passed_over:
                found.append(entry)
            if entry.key is not None:
                seen.add(entry.key)
        return found

    def claim(self, wanted: Collection[bytes], holder: Callable[[int], Holder]) -> GroupState:
        """Return the state with these messages in flight, under one new token."""
        token = self.token + 1
        held = holder(token)
        entries = (entry._replace(holder=held) if entry.id in wanted else entry for entry in self.entries)
        return self._replace(token=token, entries=tuple(entries))

    def settle(self, done: Iterable[tuple[bytes, int]]) -> GroupState:
        """Return the state without these messages, each with the token that it was claimed under."""
        settled = set(done)
        kept = (
            entry for entry in self.entries if entry.holder is None or (entry.id, entry.holder.token) not in settled
        )
        return self._replace(entries=tuple(kept))

    def release(self, id_: bytes, token: int) -> GroupState:
        """Return the state with a message open again, no attempt counted."""
        return self._change(id_, token, lambda entry: entry._replace(holder=None))

    def fail(
        self, id_: bytes, token: int, reason: str, now_us: int, *, is_final: bool = False
    ) -> tuple[GroupState, list[DeadEntry]]:
        """Return the state after an attempt failed, and the message if it is given up."""
        entry = self.in_flight(id_, token)
        if entry is None:
            return self, []
        attempts, reasons = entry.attempts + 1, (*entry.reasons, reason[:LONGEST_REASON])[-MAX_REASONS:]
        if is_final or attempts >= MAX_ATTEMPTS:
            kept = tuple(group_entry for group_entry in self.entries if group_entry is not entry)
            return self._replace(entries=kept, dead=self.dead + 1), [DeadEntry(id_, attempts, reasons)]
        due = now_us + backoff_us(attempts)
        opened = entry._replace(holder=None, attempts=attempts, reasons=reasons, not_before_us=due)
        return self._change(id_, token, lambda _: opened), []

    def in_flight(self, id_: bytes, token: int) -> GroupEntry | None:
        """Return the entry of a message that is in flight under this token."""
        held = (entry for entry in self.entries if entry.holder is not None)
        return next(
            (
                group_entry
                for group_entry in held
                if group_entry.id == id_ and group_entry.holder and group_entry.holder.token == token
            ),
            None,
        )

    def reopen(self, entry: GroupEntry) -> GroupState:
        """Return the state with a message open that was settled or dead; it is handed out again."""
        others = [group_entry for group_entry in self.entries if group_entry.id != entry.id]
        return self._replace(entries=tuple(sorted((*others, entry), key=lambda other: other.position)))

    def renew(self, id_: bytes, token: int, until_us: int) -> GroupState:
        """Return the state with more time for a message in flight."""

        def renewed(entry: GroupEntry) -> GroupEntry:
            return entry._replace(holder=entry.holder and entry.holder._replace(until_us=until_us))

        return self._change(id_, token, renewed)

    def _change(self, id_: bytes, token: int, change: Callable[[GroupEntry], GroupEntry]) -> GroupState:
        held = self.in_flight(id_, token)
        return self._replace(entries=tuple(change(entry) if entry is held else entry for entry in self.entries))


def backoff_us(attempts: int) -> int:
    """Return how long a message waits after so many failed attempts."""
    growth: int = BACKOFF_FACTOR ** (attempts - 1)
    return min(FIRST_BACKOFF_US * growth, LONGEST_BACKOFF_US)


def failed_first(batch: Sequence[GroupEntry], done: Collection[bytes]) -> GroupEntry | None:
    """Return the message that was at work when the holder of a batch died: the first that is not done."""
    return next((group_entry for group_entry in batch if group_entry.id not in done), None)
